"""`shoal snapshot`, and pause, resume, fork and resize of `shoal sandbox`."""

from __future__ import annotations

import json

import pytest

NOT_FOUND = 66


@pytest.fixture
def gvisor(client) -> str:
    """A sandbox of one test whose memory can be saved."""
    made = client.ok("sandbox", "create", "--timeout", "10m", "--runtime", "runsc")
    yield made
    client.run("sandbox", "kill", made)


def inside(client, sandbox: str, command: str) -> str:
    return client.ok("sandbox", "exec", sandbox, "--", "sh", "-c", command)


def test_a_sandbox_is_paused_and_resumed(client, gvisor):
    inside(client, gvisor, "echo kept > /tmp/kept")
    assert client.ok("sandbox", "pause", gvisor) == gvisor
    assert gvisor in client.ok("sandbox", "ls", "-q", "--state", "paused")
    again = client.run("sandbox", "pause", gvisor)
    assert again.code != 0 and "paused" in again.err
    assert client.ok("sandbox", "resume", gvisor) == gvisor
    assert inside(client, gvisor, "cat /tmp/kept") == "kept"
    client.ok("sandbox", "pause", gvisor, "--files-only")
    answer = client.run("sandbox", "resume", gvisor, "--json").json
    assert answer["sandboxID"] == gvisor and answer["shoal"]["origin"] == "cold"


def test_saving_memory_under_runc_is_refused_with_an_alternative(client, fresh):
    answer = client.run("sandbox", "pause", fresh)
    assert answer.code != 0 and "runtime runc cannot keep memory" in answer.err
    assert client.ok("sandbox", "pause", fresh, "--files-only") == fresh
    assert client.ok("sandbox", "resume", fresh) == fresh


def test_snapshots_are_taken_listed_started_and_removed(client, gvisor):
    inside(client, gvisor, "echo before > /tmp/kept")
    name = client.ok("snapshot", "create", gvisor, "--name", "cli-work", "--ttl", "30m")
    assert name.endswith("/cli-work:default")
    lines = client.ok("snapshot", "ls").splitlines()
    assert lines[0].split()[:2] == ["SNAPSHOT", "KEEPS"]
    (line,) = [line for line in lines if line.startswith(name)]
    assert "memory,filesystem" in line and gvisor in line
    (row,) = client.run("snapshot", "ls", "--sandbox", gvisor, "--json").json
    assert row["snapshotID"] == name and row["shoal"]["freeze"] > 0
    clone = client.ok("sandbox", "create", "--template", "cli-work")
    assert inside(client, clone, "cat /tmp/kept") == "before"
    client.ok("sandbox", "kill", clone)
    near = client.run("snapshot", "rm", name.replace("cli-work", "cli-wrk"))
    assert near.code == NOT_FOUND and f"Did you mean {name}?" in near.err
    assert client.ok("snapshot", "rm", name) == name
    assert client.run("snapshot", "rm", name).code == NOT_FOUND


def test_a_snapshot_may_stop_its_source(client, gvisor):
    name = client.ok("snapshot", "create", gvisor, "--files-only", "--stop")
    assert gvisor not in client.ok("sandbox", "ls", "-q")
    client.ok("snapshot", "rm", name)
    gone = client.run("snapshot", "create", gvisor)
    assert gone.code == NOT_FOUND


def test_a_snapshot_is_exported_and_imported(client, gvisor, tmp_path):
    name = client.ok("snapshot", "create", gvisor, "--name", "cli-carried")
    file = tmp_path / "carried"
    live = client.run("snapshot", "export", name, str(file))
    assert live.code != 0 and f"the access token of sandbox {gvisor}" in live.err
    client.ok("sandbox", "kill", gvisor)
    assert client.ok("snapshot", "export", name, str(file)) == str(file)
    again = client.run("snapshot", "export", name, str(file))
    assert again.code != 0 and "is there already" in again.err
    taken = client.ok("snapshot", "import", str(file), "--name", "cli-landed")
    clone = client.ok("sandbox", "create", "--template", "cli-landed")
    assert inside(client, clone, "hostname") == clone
    client.ok("sandbox", "kill", clone)
    client.ok("snapshot", "rm", name, taken)
    missing = client.run("snapshot", "import", str(tmp_path / "none"))
    assert missing.code == NOT_FOUND
    (tmp_path / "bad").write_text("nonsense")
    bad = client.run("snapshot", "import", str(tmp_path / "bad"))
    assert bad.code != 0 and "cannot be started" in bad.err
    meaning = client.ok("snapshot", "import", "--help")
    assert "--trust" in meaning and "the runtime restores its memory" in " ".join(meaning.split())


def test_fork_prints_one_id_per_line(client, gvisor):
    made = client.ok("sandbox", "fork", gvisor, "--count", "3").split()
    assert len(set(made)) == 3
    for one in made:
        assert inside(client, one, "hostname") == one
    client.ok("sandbox", "kill", *made)


def test_a_sandbox_is_resized_while_it_runs(client, gvisor):
    assert client.ok("sandbox", "resize", gvisor, "--cpu", "500m", "--memory", "2Gi") == (
        "0.5 processors, 2048 MiB"
    )
    much = client.run("sandbox", "resize", gvisor, "--cpu", "100")
    assert much.code != 0 and "than this machine has" in much.err
    none = client.run("sandbox", "resize", gvisor, "--cpu", "much")
    assert none.code == 64 and "say 2, 0.5 or 500m" in none.err
    little = client.run("sandbox", "resize", gvisor, "--memory", "64")
    assert little.code == 0 or "less than the sandbox uses" in little.err


def test_tokens_are_rotated_and_printed(client, fresh):
    before = json.loads(client.ok("sandbox", "get", fresh, "--json"))["envdAccessToken"]
    printed = client.ok("sandbox", "rotate-token", fresh)
    after = json.loads(client.ok("sandbox", "get", fresh, "--json"))["envdAccessToken"]
    assert printed == f"access token: {after}" and after != before
    tokens = json.loads(client.ok("sandbox", "rotate-token", fresh, "--json"))
    assert tokens["sandbox"] == fresh and tokens["envdAccessToken"] not in (before, after)
    # The command line uses the new one.
    assert client.ok("sandbox", "exec", fresh, "--", "echo", "in") == "in"
    missing = client.run("sandbox", "rotate-token", "i" + "z" * 20)
    assert missing.code == NOT_FOUND and "no sandbox" in missing.err
