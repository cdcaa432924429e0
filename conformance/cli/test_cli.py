"""Sandboxes from the command line: tables, JSON, exit codes, streams, terminals, files."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import signal
import socket
import tarfile
import urllib.error
import urllib.request

import pytest

from ..installation import wait_until
from ..registry import Registry
from .conftest import Client

NOT_FOUND, UNREACHABLE, NOT_NOW, REFUSED, USAGE = 66, 69, 75, 77, 64


# --- help and mistakes -------------------------------------------------------------------------


def test_without_arguments_it_prints_an_introduction(client):
    said = client.ok()
    assert "shoal serve" in said and "shoal sandbox create" in said


@pytest.mark.parametrize("words", [(), ("sandbox",), ("key",), ("image",), ("template",), ("pool",)])
def test_help_names_the_exit_codes(client, words):
    said = client.ok(*words, "--help")
    for code in (NOT_FOUND, UNREACHABLE, NOT_NOW, REFUSED, USAGE):
        assert f"   {code}  " in said


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("sandbox", "creat"), "create"),
        (("sandbx",), "sandbox"),
        (("sandbox", "create", "--timout", "5m"), "--timeout"),
        (("sandbox", "create", "--timeout", "5x"), "5m"),
        (("sandbox", "create", "--env", "A"), "NAME=VALUE"),
        (("sandbox", "url", "i1", "0"), "1..=65535"),
        (("sandbox", "cp", "a", "b"), "ID:PATH"),
        (("sandbox", "kill"), "ID"),
    ],
)
def test_a_wrong_command_line_gets_a_suggestion(client, words, word):
    answer = client.run(*words)
    assert answer.code == USAGE and word in answer.err, answer


def test_completions_are_printed_for_every_shell(client):
    for shell in ("bash", "zsh", "fish"):
        assert "sandbox" in client.ok("completions", shell)


def test_a_manual_page_is_written_for_each_command(client, tmp_path):
    client.ok("man", str(tmp_path / "man1"))
    pages = {page.name: page.read_text() for page in (tmp_path / "man1").iterdir()}
    assert {"shoal.1", "shoal-serve.1", "shoal-sandbox-create.1", "shoal-session-exec.1"} <= pages.keys()
    assert "\\-\\-template" in pages["shoal-sandbox-create.1"]
    blocked = client.run("man", "/dev/null/man1")
    assert blocked.code == 1 and "cannot write manual pages into /dev/null/man1" in blocked.err, blocked


def test_an_unreachable_server_says_how_to_start_one(shared):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        answer = Client(shared, SHOAL_URL=url).run("sandbox", "ls")
    assert answer.code == UNREACHABLE and "shoal serve" in answer.err, answer


def test_keys_are_found_in_the_order_that_help_says(shared, tmp_path):
    other = tmp_path / "other"
    assert Client(shared, SHOAL_DATA=str(other)).run("sandbox", "ls").code == REFUSED
    by_e2b = Client(shared, SHOAL_DATA=str(other), E2B_API_KEY=shared.key)
    assert by_e2b.run("sandbox", "ls").code == 0
    wrong = Client(shared, SHOAL_API_KEY="e2b_" + "0" * 40, E2B_API_KEY=shared.key)
    answer = wrong.run("sandbox", "ls")
    assert answer.code == REFUSED and "SHOAL_API_KEY" in answer.err, answer


def test_the_url_may_come_from_e2bs_variable(shared):
    client = Client(shared, E2B_API_URL=shared.url)
    del client.env["SHOAL_URL"]
    client.ok("sandbox", "ls")


# --- create, list, kill -------------------------------------------------------------------------


def test_create_prints_only_the_id_and_applies_its_options(client):
    made = client.ok(
        "sandbox", "create", "--timeout", "5m", "--env", "GREETING=hello", "--meta", "who=a b&c",
        "--runtime", "runc", "--no-internet",
    )
    assert made.isalnum()
    seen = client.run("sandbox", "get", made, "--json").json
    assert seen["metadata"]["who"] == "a b&c"
    assert seen["shoal"]["runtime"] == "runc"
    assert seen["allowInternetAccess"] is False
    assert client.ok("sandbox", "exec", made, "--", "sh", "-c", "echo $GREETING") == "hello"
    assert client.ok("sandbox", "ls", "-q", "--meta", "who=a b&c") == made
    assert client.ok("sandbox", "ls", "-q", "--meta", "who=nobody") == ""
    assert made in client.ok("sandbox", "ls", "--template", "base", "--state", "running")
    assert client.ok("sandbox", "kill", made) == made
    assert made not in client.ok("sandbox", "ls", "-q")


def test_get_and_ls_are_tables_for_people(client, sandbox):
    lines = client.ok("sandbox", "ls").splitlines()
    assert lines[0].split()[:3] == ["ID", "TEMPLATE", "STATE"]
    assert any(line.split()[:3] == [sandbox, "base", "running"] for line in lines[1:])
    assert "runtime" in client.ok("sandbox", "get", sandbox)


def test_an_unknown_id_suggests_a_similar_one(client, sandbox):
    near = sandbox[:-1] + ("0" if sandbox[-1] != "0" else "1")
    for words in (("get", near), ("kill", near), ("exec", near, "true"), ("logs", near)):
        answer = client.run("sandbox", *words)
        assert answer.code == NOT_FOUND, answer
        assert f"Did you mean {sandbox}?" in answer.err, answer


def test_an_unknown_template_suggests_a_similar_one(client):
    answer = client.run("sandbox", "create", "--template", "bsae")
    assert answer.code == NOT_FOUND and "Did you mean base?" in answer.err, answer


def test_kill_continues_after_an_unknown_sandbox(client, fresh):
    answer = client.run("sandbox", "kill", "inothere", fresh)
    assert (answer.code, answer.out.strip()) == (NOT_FOUND, fresh)


def test_kill_all_asks_first(shared, client):
    key = client.ok("key", "create", "all", "--team", "kill-all")
    theirs = Client(shared, SHOAL_API_KEY=key)
    made = {theirs.ok("sandbox", "create", "--runtime", "runc") for _ in range(2)}
    assert theirs.run("sandbox", "kill", "--all").code == USAGE
    asked = theirs.terminal("sandbox", "kill", "--all")
    asked.expect("Kill 2 sandboxes?")
    asked.type("n\n")
    assert asked.wait() == 130
    asked.close()
    assert set(theirs.ok("sandbox", "kill", "--all", "--yes").split()) == made
    assert theirs.ok("sandbox", "ls", "-q") == ""


# --- exec ---------------------------------------------------------------------------------------


def test_exec_separates_streams_and_returns_the_exit_code(client, sandbox):
    script = "echo out; echo err >&2; exit 7"
    answer = client.run("sandbox", "exec", sandbox, "--", "sh", "-c", script)
    assert (answer.code, answer.out, answer.err) == (7, "out\n", "err\n")


def test_exec_uses_the_given_user_and_directory(client, sandbox):
    how = ("--user", "root", "--cwd", "/etc", "--env", "A=b c")
    said = client.ok("sandbox", "exec", *how, sandbox, "--", "sh", "-c", 'id -un; pwd; echo "$A"')
    assert said.splitlines() == ["root", "/etc", "b c"]
    assert client.ok("sandbox", "exec", sandbox, "id", "-un") == "user"


def test_exec_forwards_all_input(client, sandbox):
    data = os.urandom(1 << 20).hex()
    assert client.ok("sandbox", "exec", sandbox, "--", "wc", "-c", stdin=data) == str(2 << 20)
    assert client.ok("sandbox", "exec", sandbox, "--", "cat", stdin="") == ""
    assert client.ok("sandbox", "exec", "-n", sandbox, "--", "cat", stdin="not read") == ""


def test_exec_prints_every_byte(client, sandbox):
    said = client.ok("sandbox", "exec", sandbox, "--", "seq", "200000")
    assert said == "\n".join(str(n) for n in range(1, 200001))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("nothere",), 127),
        (("sh", "-c", "kill -9 $$"), 137),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("false",), 1),
    ],
)
def test_exec_has_the_exit_codes_of_a_shell(client, sandbox, command, code):
    assert client.run("sandbox", "exec", sandbox, "--", *command).code == code


def test_exec_kills_a_command_after_its_timeout(client, sandbox):
    # Longer than a busy machine needs to start it: before that, the answer would be another.
    answer = client.run("sandbox", "exec", "--timeout", "5s", sandbox, "--", "sleep", "600")
    assert answer.code == 1 and "timed out" in answer.err, answer


def test_ctrl_c_reaches_the_command(client, sandbox):
    script = "trap 'echo ended; exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    running = client.start("sandbox", "exec", sandbox, "--", "bash", "-c", script)
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert running.stdout.read() == "ended\n"
    assert running.wait(120) == 9


def test_the_second_ctrl_c_kills(client, sandbox):
    script = "trap 'echo heard' TERM; echo ready; while :; do sleep 0.1; done"
    running = client.start("sandbox", "exec", sandbox, "--", "bash", "-c", script)
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline() == "heard\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == 137


def test_a_closed_output_ends_the_command(client, fresh):
    running = client.start("sandbox", "exec", fresh, "--", "yes")
    assert running.stdout.readline()
    running.stdout.close()
    assert running.wait(120) == 141
    gone = lambda: client.run("sandbox", "exec", fresh, "--", "pgrep", "-x", "yes").code == 1  # noqa: E731
    wait_until(gone, 60, "the end of the command")


def test_exec_reports_the_end_of_the_sandbox(client, fresh):
    running = client.start(
        "sandbox", "exec", fresh, "--", "sh", "-c", "echo ready; sleep 600", stderr=-1
    )
    assert running.stdout.readline() == "ready\n"
    client.ok("sandbox", "kill", fresh)
    assert running.wait(120) == NOT_FOUND
    assert "ended before the command did" in running.stderr.read()


# --- terminals ----------------------------------------------------------------------------------


def test_a_shell_has_the_size_of_the_window_and_restores_the_terminal(terminal, sandbox):
    window = terminal("sandbox", "shell", sandbox, columns=101, rows=33)
    window.expect("$ ")
    assert window.is_raw()
    window.type("stty size; echo $TERM; tty\n")
    window.expect("33 101")
    window.expect("xterm-256color")
    window.expect("/dev/pts/")
    window.resize(90, 20)
    window.process.send_signal(signal.SIGWINCH)
    window.type("until [ \"$(stty size)\" = '20 90' ]; do sleep 0.1; done; echo res''ized\n")
    window.expect("resized")
    window.type("exit 5\n")
    assert window.wait() == 5
    assert window.is_as_before()


def test_ctrl_c_in_a_shell_reaches_the_shell(terminal, sandbox):
    window = terminal("sandbox", "shell", sandbox)
    window.expect("$ ")
    # Only output of a separate program shows that it has the terminal, and not the shell.
    window.type("sh -c 'echo be\"\"gun; exec sleep 600'\n")
    window.expect("begun\r\n")
    window.type("\x03")
    window.expect("$ ")
    window.type("echo still''here\n")
    window.expect("stillhere")
    window.type("\x04")
    window.wait()
    assert window.is_as_before()


def test_a_killed_shell_restores_the_terminal(terminal, sandbox):
    window = terminal("sandbox", "shell", sandbox)
    window.expect("$ ")
    assert window.is_raw()
    window.process.send_signal(signal.SIGTERM)
    assert window.wait() == 130
    assert window.is_as_before()


def test_a_shell_whose_sandbox_ends_restores_the_terminal(terminal, client, fresh):
    window = terminal("sandbox", "shell", fresh)
    window.expect("$ ")
    client.ok("sandbox", "kill", fresh)
    assert window.wait() == NOT_FOUND
    assert window.is_as_before()


def test_exec_with_a_terminal_has_one(terminal, sandbox):
    window = terminal("sandbox", "exec", "--tty", sandbox, "--", "sh", "-c", "tty; read x; exit $x")
    window.expect("/dev/pts/")
    window.type("4\n")
    assert window.wait() == 4
    assert window.is_as_before()


def test_exec_has_a_terminal_only_on_request(terminal, sandbox):
    window = terminal("sandbox", "exec", sandbox, "--", "sh", "-c", "tty; cat; exit 3")
    window.expect("not a tty")
    assert window.wait() == 3


# --- files --------------------------------------------------------------------------------------


def test_a_tree_is_copied_in_and_out_unchanged(client, sandbox, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "plain").write_text("plain")
    (tree / "sub" / "blob").write_bytes(os.urandom(3 << 20))
    (tree / "sub" / "run me").write_text("#!/bin/sh\necho ran\n")
    (tree / "sub" / "run me").chmod(0o755)
    (tree / "secret").write_text("x")
    (tree / "secret").chmod(0o600)
    (tree / "link").symlink_to("plain")
    (tree / "loop").symlink_to(".")
    answer = client.run("sandbox", "cp", str(tree), f"{sandbox}:copy", "--json")
    assert (answer.code, answer.json["files"]) == (0, 5), answer
    assert "skipped" in answer.err and "loop: it is neither" in answer.err
    assert client.ok("sandbox", "exec", sandbox, "--", "copy/sub/run me") == "ran"
    back = tmp_path / "back"
    client.ok("sandbox", "cp", f"{sandbox}:copy", str(back))
    names = ("plain", "sub/blob", "sub/run me", "secret")
    for name in names:
        assert (back / name).read_bytes() == (tree / name).read_bytes()
        assert (back / name).stat().st_mode == (tree / name).stat().st_mode
    assert (back / "sub" / "empty").is_dir()
    assert not list(back.rglob("*.part"))


def test_a_file_goes_into_a_directory_under_its_own_name(client, sandbox, tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    for to in ("/tmp", "/tmp/new/", ""):
        client.ok("sandbox", "cp", str(tmp_path / "note.txt"), f"{sandbox}:{to}")
    for path in ("/tmp/note.txt", "/tmp/new/note.txt", "/home/user/note.txt"):
        assert client.ok("sandbox", "cp", f"{sandbox}:{path}", "-") == "hello"
    out = tmp_path / "out"
    out.mkdir()
    client.ok("sandbox", "cp", f"{sandbox}:note.txt", str(out))
    assert (out / "note.txt").read_text() == "hello"


def test_streams_are_copied(client, sandbox):
    data = os.urandom(5 << 20).hex()
    client.ok("sandbox", "cp", "-", f"{sandbox}:/tmp/streamed", stdin=data)
    assert client.ok("sandbox", "cp", f"{sandbox}:/tmp/streamed", "-") == data


def test_copying_a_missing_file_fails_and_leaves_nothing(client, sandbox, tmp_path):
    assert client.run("sandbox", "cp", str(tmp_path / "no"), f"{sandbox}:").code == NOT_FOUND
    assert client.run("sandbox", "cp", f"{sandbox}:no", str(tmp_path)).code == NOT_FOUND
    assert client.run("sandbox", "cp", f"{sandbox}:/dev/zero", str(tmp_path)).code == USAGE
    assert list(tmp_path.iterdir()) == []


# --- logs, top, url -----------------------------------------------------------------------------


def test_logs_show_output_and_follow_until_the_end(client, fresh):
    client.ok("sandbox", "exec", fresh, "--", "echo", "first words")
    logged = lambda: "first words" in client.ok("sandbox", "logs", fresh).splitlines()  # noqa: E731
    wait_until(logged, 60, "what the command printed")
    following = client.start("sandbox", "logs", "--follow", "--tail", "1", fresh)
    # It has started when it shows the last line so far.
    assert following.stdout.readline()
    client.ok("sandbox", "exec", fresh, "--", "echo", "later words")
    while following.stdout.readline() != "later words\n":
        assert following.poll() is None
    client.ok("sandbox", "kill", fresh)
    following.communicate(timeout=120)
    assert following.returncode == 0


def test_top_prints_once_for_programs_and_repeats_for_people(client, terminal, sandbox):
    lines = client.ok("sandbox", "top").splitlines()
    assert lines[0].split()[:4] == ["ID", "TEMPLATE", "CPU", "MEMORY"]
    assert any(line.startswith(sandbox) for line in lines)
    one = client.run("sandbox", "top", sandbox, "--json").json
    assert [row["sandbox"]["sandboxID"] for row in one] == [sandbox]
    window = terminal("sandbox", "top", "--every", "1s")
    for _ in range(2):
        window.expect("\x1b[H\x1b[J")
        window.expect(sandbox)
    window.type("\x03")
    assert window.wait() == 0


def status_of(ask: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(ask, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def test_the_url_of_a_port_works(client, sandbox):
    url = client.ok("sandbox", "url", sandbox, "8123")
    assert url.startswith(f"http://8123-{sandbox}.localhost:")
    script = "cd /etc && exec python3 -m http.server 8123 --bind 127.0.0.1"
    serving = client.start("sandbox", "exec", sandbox, "--", "sh", "-c", script)
    try:
        # Not every resolver knows names below `localhost`; the server uses the header.
        host = url.removeprefix("http://")
        ask = urllib.request.Request(f"{client.server.url}/hostname", headers={"Host": host})
        wait_until(lambda: status_of(ask) == 200, 60, "the program to listen")
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait(120)


# --- keys, images, templates --------------------------------------------------------------------


def test_a_key_is_made_used_listed_masked_and_removed(shared, client):
    key = client.ok("key", "create", "ci", "--team", "cli-keys")
    theirs = Client(shared, SHOAL_API_KEY=key)
    assert theirs.ok("sandbox", "ls", "-q") == ""
    assert theirs.run("key", "ls").code == REFUSED
    assert theirs.run("image", "ls").code == REFUSED
    row = next(row for row in client.run("key", "ls", "--json").json if row["team"] == "cli-keys")
    assert "secret" not in row and key not in client.ok("key", "ls")
    assert client.ok("key", "rm", row["id"]) == row["id"]
    assert theirs.run("sandbox", "ls").code == REFUSED
    assert client.run("key", "rm", row["id"]).code == NOT_FOUND


def test_another_teams_sandbox_is_not_found(shared, client, sandbox):
    key = client.ok("key", "create", "spy", "--team", "cli-spies")
    theirs = Client(shared, SHOAL_API_KEY=key)
    for words in (("get", sandbox), ("kill", sandbox), ("exec", sandbox, "id"), ("shell", sandbox)):
        answer = theirs.run("sandbox", *words)
        assert answer.code == NOT_FOUND and sandbox not in answer.err.split("mean")[-1:], answer


def test_pools_are_listed_and_an_unknown_one_is_an_error(client):
    assert client.ok("pool", "ls").startswith("TEMPLATE")
    assert client.ok("pool", "top", "--once").startswith("TEMPLATE")
    assert isinstance(client.run("pool", "ls", "--json").json, list)
    for words in (("ls", "nothing"), ("rm", "nothing")):
        assert client.run("pool", *words).code == NOT_FOUND


def test_a_template_is_made_used_shown_and_removed(client):
    # Not an arbitrary image of the list: other tests import images without a shell.
    image = client.run("template", "get", "base", "--json").json["image"]
    assert image in [row["name"] for row in client.run("image", "ls", "--json").json]
    made = client.ok(
        "template", "create", "cli-small", "--image", image, "--memory", "256M", "--cpu", "0.5",
        "--runtime", "runc", "--env", "COLOUR=blue", "--description", "small",
    )
    assert made == "cli-small"
    try:
        again = client.run("template", "create", "cli-small", "--image", image)
        assert again.code == NOT_NOW, again
        assert client.run("template", "get", "cli-small", "--json").json["memoryMB"] == 256
        near = client.run("template", "get", "cli-smal")
        assert near.code == NOT_FOUND and "Did you mean cli-small?" in near.err, near
        assert client.run("image", "rm", image).code == NOT_NOW
        sandbox = client.ok("sandbox", "create", "--template", "cli-small")
        assert client.ok("sandbox", "exec", sandbox, "--", "sh", "-c", "echo $COLOUR") == "blue"
        assert client.run("template", "rm", "cli-small").code in (NOT_NOW, USAGE)
        client.ok("sandbox", "kill", sandbox)
    finally:
        assert client.ok("template", "rm", "cli-small") == "cli-small"


def test_images_that_cannot_be_pulled_are_errors(client, tmp_path):
    assert client.run("image", "rm", "none:1").code == NOT_FOUND
    assert client.run("image", "import", str(tmp_path / "none"), "x:1").code == NOT_FOUND
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"no archive" * 100)
    answer = client.run("image", "import", str(bad), "x:1")
    assert answer.code == 1 and "x:1" in answer.err, answer
    assert client.run("template", "create", "t", "--image", "none:1").code == NOT_FOUND


def test_an_image_is_pulled_from_a_registry_and_sandboxes_start_from_it(client, tmp_path):
    registry = Registry(tmp_path / "registry")
    registry.start()
    sandbox, name = "none", ""
    try:
        passwd = "root:x:0:0:root:/root:/bin/sh\n"
        name = registry.add("cli/pulled:1", {"etc/passwd": passwd, "root/marker": "pulled"}, User="root:root")
        assert client.run("image", "pull", f"{registry.address}/cli/none:1").code == NOT_FOUND
        assert client.ok("image", "pull", name) == name
        row = next(r for r in client.run("image", "ls", "--json").json if r["name"] == name)
        assert row["layers"] == 1
        client.ok("template", "create", "cli-pulled", "--image", name, "--runtime", "runc")
        sandbox = client.ok("sandbox", "create", "--template", "cli-pulled")
        assert client.ok("sandbox", "cp", f"{sandbox}:marker", "-") == "pulled"
    finally:
        registry.stop()
        client.run("sandbox", "kill", sandbox)
        client.run("template", "rm", "cli-pulled")
        removed = client.run("image", "rm", name)
    assert removed.code == 0, removed


def archive_of(files: dict[str, str]) -> bytes:
    """An archive of `docker save` with one layer of these files."""

    def tar(entries: dict[str, bytes]) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, data in entries.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return out.getvalue()

    layer = tar({name: text.encode() for name, text in files.items()})
    config = {
        "architecture": {"aarch64": "arm64"}.get(platform.machine(), "amd64"),
        "os": "linux",
        "config": {"User": "root:root"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": ["layer.tar"]}]
    return tar({
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    })


def test_an_archive_is_imported_and_sandboxes_start_from_it(client, tmp_path):
    archive = tmp_path / "image.tar"
    passwd = "root:x:0:0:root:/root:/bin/sh\n"
    archive.write_bytes(archive_of({"etc/passwd": passwd, "root/marker": "here"}))
    assert client.ok("image", "import", str(archive), "cli/tiny:1") == "cli/tiny:1"
    sandbox = "none"
    try:
        row = next(r for r in client.run("image", "ls", "--json").json if r["name"] == "cli/tiny:1")
        assert row["layers"] == 1
        client.ok("template", "create", "cli-tiny", "--image", "cli/tiny:1", "--runtime", "runc")
        sandbox = client.ok("sandbox", "create", "--template", "cli-tiny")
        assert client.ok("sandbox", "cp", f"{sandbox}:marker", "-") == "here"
    finally:
        client.run("sandbox", "kill", sandbox)
        client.run("template", "rm", "cli-tiny")
        assert client.ok("image", "rm", "cli/tiny:1") == "cli/tiny:1"
