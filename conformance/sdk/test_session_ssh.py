"""Sessions whose machine is an external one, which is reached over SSH."""

from __future__ import annotations

import json
import os
import threading

import pytest

from ..installation import wait_until
from ..sshd import Sshd
from .test_native import Native
from .test_session_preview import ask
from .test_session_secrets import found, put, reset, turn
from .test_sessions import run, shoal

#: Loopback has to be named.
SETTINGS = ["sessions.ssh_networks=public,127.0.0.0/8", "log.level=debug"]


@pytest.fixture(scope="module")
def server(another):
    return another("external", SETTINGS)


@pytest.fixture(scope="module")
def native(server):
    return Native(server)


@pytest.fixture
def sshd():
    made = Sshd()
    yield made
    made.stop()


def asked(sshd: Sshd, **more) -> dict:
    return {"machine": {"ssh_connection": sshd.address, "ssh_private_key": sshd.key}, **more}


@pytest.fixture
def session(native, sshd):
    made = native("POST", "/sessions", 201, json=asked(sshd))
    yield made["id"]
    native("DELETE", f"/sessions/{made['id']}")


def files(native, session: str) -> list[str]:
    return [one["path"] for one in native("GET", f"/sessions/{session}/files")]


def content(native, session: str, path: str, text: str | None = None):
    """Reads a file of the session, or writes it."""
    where = f"{native.server.url}/api/v1/sessions/{session}/files/content"
    method = "GET" if text is None else "PUT"
    answer = native.http.request(method, where, params={"path": path}, content=text)
    return answer.text if answer.status_code < 300 else None


def body(sshd: Sshd) -> str:
    """The middle of the private key, without what all keys have."""
    return sshd.key.splitlines()[3]


def test_r2_093_commands_run_on_the_external_machine_and_windows_keep_their_shells(native, session, sshd):
    assert sshd.accepted == 0, "nothing is connected before the first command"
    assert run(native, session, "id -un; pwd; false") == (f"tester\n{sshd.home}\n", {"type": "exit", "code": 1})
    seen = native("GET", f"/sessions/{session}")
    assert seen["machine"] == {"ssh_connection": sshd.address} and "sandboxId" not in seen and seen["endsAt"]
    assert seen["sshHostKey"].startswith("SHA256:") and seen["system"]
    # R2-070 to R2-072
    run(native, session, "cd /tmp; export COLOUR=blue; twice() { echo $1$1; }")
    assert run(native, session, "pwd; echo $COLOUR; twice a")[0] == "/tmp\nblue\naa\n"
    assert run(native, session, "echo -$COLOUR-; pwd", "other")[0] == f"--\n{sshd.home}\n"
    # R2-101
    assert run(native, session, "echo $PUBLIC_HOSTNAME")[0].strip() == seen["publicHostname"]


def test_r2_075_r2_076_a_command_cancels_the_one_before_it_with_its_processes(native, session, sshd):
    run(native, session, "true")
    ends = {}
    stubborn = "trap '' INT; sh -c 'echo $$ >pid; trap \"\" INT; while :; do sleep 1; done'"
    waiting = threading.Thread(target=lambda: ends.update(main=run(native, session, stubborn)))
    waiting.start()
    pid = sshd.home / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().strip(), 60, "the command")
    process = int(pid.read_text())
    assert run(native, session, "echo next") == ("next\n", {"type": "exit", "code": 0})
    waiting.join(60)
    assert ends["main"][1] == {"type": "cancelled"}
    wait_until(lambda: not os.path.exists(f"/proc/{process}"), 60, "the end of its processes")


def test_r2_037_r2_038_r2_058_files_go_both_ways(native, session, sshd):
    sshd.write("theirs/notes.md", "theirs")
    sshd.write(".ssh/id_ed25519", "private")
    sshd.write(".bash_history", "ls")
    content(native, session, "mine/app.py", "print('mine')")
    # R2-021: they are there before the command runs.
    assert run(native, session, "cat mine/app.py")[0] == "print('mine')"
    assert files(native, session) == ["mine/app.py", "theirs/notes.md"]
    inode = (sshd.home / "mine/app.py").stat().st_ino
    content(native, session, "mine/app.py", "print('edited')")
    wait_until(lambda: (sshd.home / "mine/app.py").read_text() == "print('edited')", 60, "the edit")
    assert (sshd.home / "mine/app.py").stat().st_ino == inode, "R2-057: the same file, for those who watch it"
    run(native, session, "echo made > made.txt; rm -r theirs; mkdir -p node_modules; echo > node_modules/x.js")
    assert files(native, session) == ["made.txt", "mine/app.py"]
    assert content(native, session, "made.txt") == "made\n"
    native("DELETE", f"/sessions/{session}/files?path=mine")
    wait_until(lambda: not (sshd.home / "mine").exists(), 60, "the removal")
    assert native("GET", f"/sessions/{session}/sync")["state"] == "synced"


def test_r2_056_nothing_is_written_or_read_through_a_link(native, session, sshd):
    outside = sshd.directory / "outside"
    outside.mkdir()
    os.chown(outside, 64242, 64242)
    (outside / "a.txt").write_text("outside")
    (sshd.home / "dir").symlink_to(outside)
    (sshd.home / "a.txt").symlink_to(outside / "a.txt")
    content(native, session, "dir/new.txt", "x")
    content(native, session, "a.txt", "x")
    content(native, session, ".ssh/authorized_keys", "x")
    assert run(native, session, "true")[1]["code"] == 0
    state = native("GET", f"/sessions/{session}/sync")
    assert state["state"] == "behind" and len(state["notes"]) == 3, state
    assert [path.name for path in outside.iterdir()] == ["a.txt"] and (outside / "a.txt").read_text() == "outside"
    assert not (sshd.home / ".ssh").exists()


def test_a_lost_connection_ends_the_command_and_the_next_connects_again(native, session, sshd):
    run(native, session, "true")
    ends = {}
    waiting = threading.Thread(target=lambda: ends.update(main=run(native, session, "echo > begun; sleep 1000")))
    waiting.start()
    wait_until(lambda: (sshd.home / "begun").exists(), 60, "the command")
    sshd.cut()
    waiting.join(60)
    assert ends["main"][1]["type"] == "lost" and sshd.address in ends["main"][1]["reason"], ends
    sshd.write("meanwhile.txt", "written")
    assert run(native, session, "echo again") == ("again\n", {"type": "exit", "code": 0})
    assert "meanwhile.txt" in files(native, session)


def test_r2_025_a_reset_closes_the_connection_and_removes_nothing(native, session, sshd):
    sshd.write("kept.txt", "kept")
    put(native, session, "value-of-a-secret")
    run(native, session, "X=1")
    turn(native, session, "activate")
    assert run(native, session, "echo $X ${#TOKEN}")[0] == "1 17\n"
    reset(native, session)
    assert "endsAt" not in native("GET", f"/sessions/{session}")
    assert (sshd.home / "kept.txt").read_text() == "kept"
    # R2-023: variables and activations have ended.
    assert run(native, session, "echo -$X- ${#TOKEN}; cat kept.txt")[0] == "-- 0\nkept"


def test_r2_093_another_key_and_a_changed_host_key_are_refused(native, sshd):
    sshd.make_key("other")
    other = (sshd.directory / "other").read_text()
    made = native("POST", "/sessions", 201, json={"machine": {"ssh_connection": sshd.address, "ssh_private_key": other}})
    told = native("POST", f"/sessions/{made['id']}/exec", 502, json={"command": "true"})
    assert "refuses the private key" in told and sshd.address in told
    native("DELETE", f"/sessions/{made['id']}")
    made = native("POST", "/sessions", 201, json=asked(sshd))
    run(native, made["id"], "true")
    known = native("GET", f"/sessions/{made['id']}")["sshHostKey"]
    reset(native, made["id"])
    sshd.make_key("host_key")
    told = native("POST", f"/sessions/{made['id']}/exec", 409, json={"command": "true"})
    assert "has changed" in told and known in told, told
    native("DELETE", f"/sessions/{made['id']}")


def test_r2_094_the_key_is_in_no_answer_no_file_and_no_log(another, sshd):
    server = another("sealed", SETTINGS)
    native = Native(server)
    made = native("POST", "/sessions", 201, json=asked(sshd))
    session = made["id"]
    run(native, session, "echo here")
    sshd.cut()
    run(native, session, "echo here")
    for answer in (made, native("GET", f"/sessions/{session}"), native("GET", "/sessions")):
        assert body(sshd) not in json.dumps(answer)
    assert found(server, body(sshd)) == []
    server.crash()
    assert found(server, body(sshd)) == []
    server.start()
    native = Native(server)
    assert run(native, session, "echo again")[0] == "again\n"
    native("DELETE", f"/sessions/{session}")
    server.stop()
    assert found(server, body(sshd)) == []


@pytest.mark.parametrize(
    ("machine", "names"),
    [
        ({"ssh_connection": "me@host:22"}, ["ssh_connection", "ssh_private_key"]),
        ({"ssh_private_key": "k"}, ["ssh_connection", "ssh_private_key"]),
        ({"cpu_count": 1}, ["cpu_count", "ssh_connection"]), ({"memory_gb": 1}, ["memory_gb", "ssh_connection"]),
        ({"gpu_type": "T4"}, ["gpu_type", "ssh_connection"]), ({"gpu_count": 1}, ["gpu_count", "ssh_connection"]),
        ({"privileged": True}, ["privileged", "ssh_connection"]),
        ({"docker_image": "python:3.11"}, ["docker_image", "ssh_connection"]),
        ({"ssh_connection": "host:22"}, ["ssh_connection"]), ({"ssh_connection": "me@host"}, ["ssh_connection"]),
        ({"ssh_connection": "me@host:0"}, ["ssh_connection"]), ({"ssh_connection": "me@host:65536"}, ["ssh_connection"]),
        ({"ssh_private_key": "no key"}, ["ssh_private_key"]), ({"ssh_connection": "me@10.0.0.1:22"}, ["ssh_connection"]),
        ({"ssh_connection": "me@169.254.169.254:22"}, ["ssh_connection"]),
    ],
    ids=str,
)
def test_r2_092_r2_094_to_r2_098_what_does_not_go_together_is_refused_by_name(native, sshd, machine, names):
    single = len(machine) == 1 and names == ["ssh_connection", "ssh_private_key"]
    base = {} if single else {"ssh_connection": sshd.address, "ssh_private_key": sshd.key}
    told = native("POST", "/sessions", 400, json={"machine": base | machine})
    assert all(f"`{name}`" in told for name in names), told
    assert sshd.accepted == 0 and native("GET", "/sessions") == []


def test_r2_094_a_key_with_a_passphrase_is_refused(native, sshd):
    sshd.make_key("closed", "-N", "passphrase")
    closed = (sshd.directory / "closed").read_text()
    told = native("POST", "/sessions", 400, json={"machine": {"ssh_connection": sshd.address, "ssh_private_key": closed}})
    assert "`ssh_private_key`" in told and "passphrase" in told
    told = native("POST", "/sessions", 400, json=asked(sshd, wakeOnRequest=True))
    assert "`wakeOnRequest`" in told and "`ssh_connection`" in told


def test_own_networks_are_closed_unless_they_are_named(another, sshd):
    native = Native(another("closed"))
    told = native("POST", "/sessions", 400, json=asked(sshd))
    assert "`ssh_connection`" in told and "sessions.ssh_networks" in told
    named = {"ssh_connection": f"tester@localhost:{sshd.port}", "ssh_private_key": sshd.key}
    made = native("POST", "/sessions", 201, json={"machine": named})
    told = native("POST", f"/sessions/{made['id']}/exec", 400, json={"command": "true"})
    assert "`ssh_connection`" in told and sshd.accepted == 0
    native("DELETE", f"/sessions/{made['id']}")


def test_the_command_line(server, native, sshd):
    key = str(sshd.directory / "key")
    made = shoal(server, "create", "--ssh", sshd.address, "--ssh-key", key).strip()
    assert shoal(server, "exec", made, "id -un") == "tester\n"
    assert sshd.address in shoal(server, "info", made)
    assert "--ssh-key" in shoal(server, "create", "--ssh", sshd.address, code=64)
    shoal(server, "rm", made)


#: A page on port 8080 of the account's localhost.
PAGE = """
echo hello from the account > index.html
python3 -m http.server 8080 --bind 127.0.0.1 > site.log 2>&1 & echo $! > site.pid
until (: < /dev/tcp/127.0.0.1/8080) 2> /dev/null; do sleep 0.1; done
"""


def test_r2_061_the_preview_leads_to_port_8080_of_the_account(native, server, session, sshd):
    host = native("GET", f"/sessions/{session}")["publicHostname"]
    assert ask(server, host).status_code == 503, "nothing is connected before the first command"
    run(native, session, "true")
    assert ask(server, host).status_code == 502, "nothing listens"
    run(native, session, PAGE, "site")
    try:
        answers = [ask(server, host, "/index.html") for _ in range(3)]
        assert [answer.text for answer in answers] == ["hello from the account\n"] * 3
        assert ask(server, host, "/other").status_code == 404, "the answer of its server"
    finally:
        run(native, session, "kill $(cat site.pid)")
    reset(native, session)
    assert ask(server, host).status_code == 503
