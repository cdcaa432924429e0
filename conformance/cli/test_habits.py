"""Commands that users of docker, kubectl and e2b type out of habit."""

from __future__ import annotations

import json
import signal
import time

import pytest

from .conftest import Client

NOT_FOUND, NOT_NOW, USAGE, INTERRUPTED = 66, 75, 64, 130


@pytest.fixture
def named(client):
    """A sandbox with a name, and the name."""
    name = f"box-{time.monotonic_ns()}"
    made = client.ok("create", "base", "--name", name, "-l", "who=habits", "--runtime", "runc", "--timeout", "10m")
    yield made, name
    client.run("kill", made)


# --- short forms --------------------------------------------------------------------------------


def test_short_forms_do_what_the_long_ones_do(client, sandbox, tmp_path):
    assert sandbox in client.ok("ps", "-q").split() and sandbox in client.ok("ls", "-a")
    assert client.ok("exec", sandbox, "--", "echo", "short") == "short"
    note = tmp_path / "note"
    note.write_text("noted")
    client.ok("cp", str(note), f"{sandbox}:/tmp/short-note")
    assert client.ok("cp", f"{sandbox}:/tmp/short-note", "-") == "noted"
    for words in (("inspect",), ("info",), ("logs",), ("top",), ("metrics",)):
        client.ok(*words, sandbox)
    assert client.ok("images").startswith("NAME")
    made = client.ok("spawn", "base", "--runtime", "runc")
    assert client.ok("rm", made) == made


def test_run_makes_a_sandbox_for_one_command(client):
    answer = client.run("run", "--rm", "--runtime", "runc", "-e", "A=b", "base", "--", "sh", "-c", "echo $A; exit 3")
    assert (answer.code, answer.out) == (3, "b\n"), answer
    made = answer.err.split()[-1]
    assert client.run("get", made).code == NOT_FOUND
    kept = client.run("run", "--runtime", "runc", "base", "true")
    made = kept.err.split()[-1]
    assert kept.code == 0 and client.ok("kill", made) == made


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "-d", "base", "true"), "shoal sandbox create"),
        (("run", "-p", "80:80", "base", "true"), "shoal sandbox url"),
        (("run", "-v", "/a:/b", "base", "true"), "shoal sandbox cp"),
        (("stop", "i1"), "shoal sandbox pause"),
        (("commit", "i1"), "shoal snapshot create"),
        (("exce", "i1"), "Did you mean `shoal exec`?"),
        (("sandbox", "exce", "i1"), "exec"),
        (("timeout", "i1", "5x"), "5m"),
        (("kill", "-l", "no-pair"), "NAME=VALUE"),
        (("create", "base", "-t", "base"), "cannot be used with"),
    ],
)
def test_unsupported_commands_suggest_an_alternative(client, words, said):
    answer = client.run(*words)
    assert answer.code == USAGE and said in answer.err, answer


def test_an_image_name_explains_how_to_create_a_template(client):
    answer = client.run("create", "-t", "python:3.13-slim")
    assert answer.code == NOT_FOUND, answer
    assert "shoal template create python --image python:3.13-slim" in answer.err, answer


def test_exec_takes_the_flags_of_docker(client, terminal, sandbox):
    window = terminal("exec", "-it", sandbox, "sh")
    window.expect("$ ")
    window.type("tty && exit 4\n")
    window.expect("/dev/pts/")
    assert window.wait() == 4
    assert client.ok("exec", "-i", sandbox, "--", "cat", stdin="given") == "given"


def test_ctrl_c_ends_a_command_with_130(client, sandbox):
    running = client.start("exec", sandbox, "--", "sh", "-c", "echo ready; exec sleep 600")
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == INTERRUPTED
    running = client.start("exec", sandbox, "--", "sh", "-c", "echo ready; exec sleep 600")
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    assert running.wait(120) == 143


# --- which sandbox ------------------------------------------------------------------------------


def test_a_sandbox_is_found_by_name_and_by_id_prefix(client, named):
    made, name = named
    for said in (name, made[:12], f"sbx-base-{made}"):
        answer = client.run("get", said, "--json")
        # Only a sandbox without a name is named after its template.
        if said.startswith("sbx-"):
            assert answer.code == NOT_FOUND, answer
        else:
            assert answer.json["sandboxID"] == made, answer
    assert client.ok("exec", name, "--", "echo", "by name") == "by name"
    assert client.ok("cp", f"{name}:/etc/hostname", "-")
    assert client.ok("url", name, "80").startswith(f"http://80-{made}.")
    near = client.run("get", name[:-1])
    assert near.code == NOT_FOUND and f"Did you mean {name}?" in near.err, near
    assert client.ok("kill", name) == made


def test_an_ambiguous_id_prefix_is_an_error(shared, client):
    key = client.ok("key", "create", "two", "--team", "habits-two")
    theirs = Client(shared, SHOAL_API_KEY=key)
    made = [theirs.ok("create", "--runtime", "runc") for _ in range(2)]
    try:
        assert theirs.run("kill", "i").code == NOT_FOUND
        assert sorted(theirs.ok("ps", "-q").split()) == sorted(made)
        assert theirs.run("create", "--name", "twin", "--runtime", "runc").code == 0
        assert theirs.run("create", "--name", "twin", "--runtime", "runc").code == NOT_NOW
    finally:
        theirs.ok("kill", "--all", "--yes")


def test_sandboxes_are_ended_by_a_label(shared, client):
    key = client.ok("key", "create", "label", "--team", "habits-label")
    theirs = Client(shared, SHOAL_API_KEY=key)
    one = theirs.ok("create", "-l", "job=a", "--runtime", "runc")
    two = theirs.ok("create", "-l", "job=b", "--runtime", "runc")
    assert theirs.run("kill", "-l", "job=a").code == USAGE, "nobody can be asked"
    assert theirs.ok("kill", "-l", "job=a", "-y") == one
    assert theirs.ok("ls", "-q", "-l", "job=b") == two == theirs.ok("ps", "-q")
    theirs.ok("kill", two)


# --- what a sandbox is given --------------------------------------------------------------------


def test_create_takes_resources_and_rules(client):
    made = client.ok(
        "create", "--cpu", "1", "--memory", "256m", "--no-internet", "--allow-out", "203.0.113.0/24",
        "--runtime", "runc", "--timeout", "90s",
    )
    try:
        seen = client.run("get", made, "-o", "json").json
        assert (seen["cpuCount"], seen["memoryMB"]) == (1, 256)
        assert seen["network"]["allowOut"] == ["203.0.113.0/24"]
        shown = client.ok("get", made)
        assert "203.0.113.0/24" in shown and "1m 30s after its start" in shown, shown
        assert "shoal sandbox timeout" in shown
        (line,) = [line for line in client.ok("ls").splitlines() if line.startswith(made)]
        assert "256 MiB" in line
    finally:
        client.ok("kill", made)


def test_a_timeout_is_changed_with_a_unit(client, fresh):
    assert client.ok("timeout", fresh, "1h") == fresh
    assert "1h" in client.ok("get", fresh)
    assert client.run("timeout", "inothere", "1h").code == NOT_FOUND


def test_rules_are_replaced_shown_and_cleared(client, fresh):
    assert client.ok("network", fresh, "--no-internet", "--allow", "203.0.113.7", "--deny", "198.51.100.0/24") == fresh
    shown = client.run("network", fresh, "--json").json
    assert any(rule.startswith("203.0.113.7") for rule in shown["allowOut"]), shown
    assert "198.51.100.0/24" in shown["denyOut"], shown
    assert "198.51.100.0/24" in client.ok("network", fresh)
    assert client.ok("network", fresh, "--clear") == fresh
    assert "198.51.100.0/24" not in client.ok("network", fresh)
    assert client.run("network", fresh, "--allow", "nonsense").code == USAGE


def test_resize_fork_and_resume_take_units(client):
    made = client.ok("create", "--runtime", "runsc", "--memory", "256m", "--timeout", "5m")
    try:
        assert "512 MiB" in client.ok("resize", made, "--memory", "512m")
        copy = client.ok("fork", made, "--timeout", "20m")
        assert "20m after its start" in client.ok("get", copy)
        client.ok("kill", copy)
        client.ok("pause", made)
        refused = client.run("exec", made, "true")
        assert refused.code == NOT_NOW and f"shoal sandbox resume {made}" in refused.err, refused
        assert client.ok("resume", made, "--timeout", "30m") == made
        assert "in 29m" in client.ok("get", made)
    finally:
        client.run("kill", made)


def test_an_ended_sandbox_reports_when_and_why(client):
    # Long enough for a busy machine to follow its log before.
    made = client.ok("create", "--runtime", "runc", "--timeout", "25s")
    following = client.start("logs", "--follow", made)
    out, _ = following.communicate(timeout=240)
    last = out.splitlines()[-1]
    assert "its time (25 s) was up" in last, out
    gone = client.run("get", made)
    assert gone.code == NOT_FOUND and "its time was up" in gone.err and "--timeout" in gone.err, gone
    assert "not listening" not in out
    killed = client.ok("create", "--runtime", "runc")
    client.ok("kill", killed)
    assert "it was killed" in client.run("get", killed).err


def test_top_is_sorted_and_summed_up(client, sandbox, fresh):
    lines = client.ok("top", "--sort", "memory").splitlines()
    assert lines[-1].split()[0] == "TOTAL" and "sandboxes" in lines[-1]
    assert json.loads(client.ok("top", sandbox, "-o", "json"))[0]["sandbox"]["sandboxID"] == sandbox
    assert client.run("top", "--sort", "nonsense").code == USAGE


# --- the server ---------------------------------------------------------------------------------


def test_doctor_reports_a_port_of_another_installation(client, tmp_path):
    listen = f"127.0.0.1:{client.server.port}"
    told = client.run("doctor", "--listen", listen, "--data", str(tmp_path), "--json").json
    (port,) = [check for check in told["checks"] if check["what"] == "port"]
    assert port["health"] == "good" and "a shoal server runs: see --data" in port["detail"], port
    ours = client.run("doctor", "--listen", listen, "--data", str(client.server.data), "--json").json
    (port,) = [check for check in ours["checks"] if check["what"] == "port"]
    assert port["detail"] == f"{listen} is served by shoal", port


def test_output_without_a_terminal_has_no_colours(client, tmp_path):
    # The file is kept between runs: the last start is this server's.
    log = (client.server.data / "server.log").read_bytes().splitlines()
    assert b"\x1b[" not in [line for line in log if b"serving" in line][-1]
    told = client.run("doctor", "--data", str(tmp_path))
    assert "\x1b[" not in told.out + told.err


# --- the catalogue ------------------------------------------------------------------------------


def test_lint_shows_the_list_that_a_command_with_blanks_needs(client, tmp_path):
    def lint(command):
        entry = {
            "name": "warm", "image": "python:3.13-slim", "description": "warm",
            "pool": {"size": 1, "warmupCmd": command, "resources": {"cpu": "0.2", "memory": "100Mi"}},
        }
        file = tmp_path / "templates.json"
        file.write_text(json.dumps([entry]))
        return client.run("template", "lint", "--strict", str(file))

    odd = lint("sh,-c echo warmed > /tmp/warm")
    assert odd.code == 1 and '["sh","-c","echo warmed > /tmp/warm"]' in odd.out and "no quoting" in odd.out, odd
    for good in (["sh", "-c", "echo warmed > /tmp/warm"], "python3,-m http.server 8888"):
        assert lint(good).code == 0, good
    assert lint([]).code == USAGE
