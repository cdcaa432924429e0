"""Secrets and memories of sessions: who sees a value, where it is kept, and when it is gone."""

from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from websockets.sync.client import connect

from ..installation import program
from .test_native import NATIVE, Native
from .test_sessions import events, machine, run, shoal

#: Values that are nowhere else.
FIRST, SECOND = "vFr-correct-horse-7f3a", "vSe-battery-staple-91c2"
#: The state of a window, without the value.
LENGTH = "env | grep -c ^TOKEN=; sh -c 'echo ${#TOKEN}'"


@pytest.fixture(scope="module")
def native(shared):
    return Native(shared)


@pytest.fixture
def session(native):
    made = native("POST", "/sessions", 201, json={})
    yield made["id"]
    native("DELETE", f"/sessions/{made['id']}")


def put(native, session: str, value: str, name: str = "TOKEN") -> dict:
    return native("PUT", f"/sessions/{session}/secrets/{name}", json={"value": value})


def turn(native, session: str, how: str, name: str = "TOKEN") -> dict:
    return native("POST", f"/sessions/{session}/secrets/{name}/{how}")


def listed(native, session: str) -> dict[str, bool]:
    shown = native("GET", f"/sessions/{session}/secrets")
    assert all(set(one) == {"name", "active", "setAt"} for one in shown), "no value is told"
    return {one["name"]: one["active"] for one in shown}


def reset(native, session: str) -> None:
    token = native("POST", f"/sessions/{session}/reset", 202, json={})["token"]
    assert native("POST", f"/sessions/{session}/reset", json={"token": token})["done"]


def found(server, *values: str) -> list[str]:
    """The files with one of the values, also encoded: of the data directory, and of the state in /run."""
    forms = []
    for value in values:
        raw = value.encode()
        # Base64 cuts it at one of three places.
        forms += [value, raw.hex(), *(base64.b64encode(raw[at : at + 15]).decode() for at in range(3))]
    patterns = [part for form in forms for part in ("-e", form)]
    places = [str(server.data), str(Path("/run/shoal") / server.instance)]
    told = subprocess.run(
        ["grep", "--recursive", "--files-with-matches", "--fixed-strings", "--devices=skip", "--no-messages", *patterns, *places],
        capture_output=True, text=True, timeout=600,
    )
    return told.stdout.splitlines()


def test_r2_104_and_r2_105_a_value_is_in_no_file_and_no_log(another):
    server = another("secrets")
    native = Native(server)
    session = native("POST", "/sessions", 201, json={})["id"]
    assert put(native, session, FIRST)["active"] is False
    assert turn(native, session, "activate")["active"] is True
    assert run(native, session, "echo \"<$TOKEN>\"; echo $TOKEN >&2") == ("<***>\n***\n", {"type": "exit", "code": 0})
    assert run(native, session, LENGTH, "other")[0] == f"1\n{len(FIRST)}\n"
    # The machine ends by its own end and by a crash of the server between two commands.
    put(native, session, SECOND)
    assert run(native, session, LENGTH)[0] == f"1\n{len(SECOND)}\n"
    native("GET", f"/sandbox/{machine(native, session)}")
    logs = native("GET", f"/logs/sandbox/{machine(native, session)}")
    assert FIRST not in json.dumps(logs) and SECOND not in json.dumps(logs)
    # A mark that is looked for in the same way shows that the search finds something.
    native("PUT", f"/sessions/{session}/memories/mark", json={"text": "a-mark-of-its-own"})
    native("PATCH", f"/sessions/{session}", json={"metadata": {"a": "b"}})
    assert str(server.data / "shoal.db-wal") in found(server, "a-mark-of-its-own")
    assert found(server, FIRST, SECOND) == []
    assert (server.data / "secrets-key").stat().st_mode & 0o777 == 0o600
    server.crash()
    assert found(server, FIRST, SECOND) == []
    server.start()
    native = Native(server)
    assert listed(native, session) == {"TOKEN": True}, "its machine runs on"
    assert run(native, session, f"{LENGTH}; echo $TOKEN")[0] == f"1\n{len(SECOND)}\n***\n"
    assert turn(native, session, "deactivate")["active"] is False
    assert run(native, session, LENGTH)[0] == "0\n0\n"
    put(native, session, FIRST, "OTHER")
    native("DELETE", f"/sessions/{session}/secrets/OTHER")
    assert listed(native, session) == {"TOKEN": False}
    native("DELETE", f"/sessions/{session}")
    native("GET", f"/sessions/{session}/secrets", 404)
    server.stop()
    assert found(server, FIRST, SECOND) == []
    # Not even the encrypted form of a deleted secret stays: no row is left.
    stored = subprocess.run(
        ["python3", "-c", "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("
         "'select (select count(*) from session_secrets), (select count(*) from session_memories)').fetchone())",
         str(server.data / "shoal.db")], capture_output=True, text=True, check=True,
    )
    assert stored.stdout.split() == ["0", "0"]


def test_r2_102_and_r2_106_a_secret_is_a_variable_of_the_machine_that_it_was_activated_for(native, session):
    put(native, session, FIRST)
    assert listed(native, session) == {"TOKEN": False} and machine(native, session) is None
    run(native, session, "cd /tmp; A=1")
    assert run(native, session, LENGTH)[0] == "0\n0\n"
    turn(native, session, "activate")
    # In the window that is open, which keeps its state, and in a new one.
    assert run(native, session, f"{LENGTH}; pwd; echo $A")[0] == f"1\n{len(FIRST)}\n/tmp\n1\n"
    assert run(native, session, LENGTH, "other")[0] == f"1\n{len(FIRST)}\n"
    reset(native, session)
    assert listed(native, session) == {"TOKEN": False}
    assert run(native, session, LENGTH)[0] == "0\n0\n"
    reset(native, session)
    # Without a machine, it is for the next one.
    assert turn(native, session, "activate")["active"] is True and machine(native, session) is None
    assert run(native, session, LENGTH)[0] == f"1\n{len(FIRST)}\n"
    # One that was killed behind the session's back takes the activation along.
    native("DELETE", f"/sandbox/{machine(native, session)}")
    assert run(native, session, LENGTH)[0] == "0\n0\n"
    assert listed(native, session) == {"TOKEN": False}


def test_r2_001_and_r2_103_another_session_does_not_see_it_nor_files_and_processes(native, session):
    other = native("POST", "/sessions", 201, json={})["id"]
    try:
        put(native, session, FIRST)
        turn(native, session, "activate")
        assert run(native, session, LENGTH)[0] == f"1\n{len(FIRST)}\n"
        run(native, session, "echo mine > /tmp/mine; sleep 54321 &")
        assert run(native, other, "ls /tmp/mine; pgrep -f 'slee[p] 54321'")[1]["code"] == 1
        assert run(native, session, "cat /tmp/mine; pgrep -cf 'slee[p] 54321'")[0] == "mine\n1\n"
        assert listed(native, other) == {} and run(native, other, LENGTH)[0] == "0\n0\n"
        native("POST", f"/sessions/{other}/secrets/TOKEN/activate", 404)
    finally:
        native("DELETE", f"/sessions/{other}")


def test_r2_104_inside_it_is_in_no_history_and_no_argument_and_no_list_of_processes(native, session):
    put(native, session, FIRST)
    run(native, session, "set -o history; HISTCONTROL=")
    turn(native, session, "activate")
    run(native, session, "true")
    part = FIRST[1:-1]
    # The pattern does not match itself.
    look = f"[{part[0]}]{part[1:]}"
    assert run(native, session, f"history | grep -c '{look}'; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '{look}'")[0] == "0\n0\n"
    assert run(native, session, f"grep -rl '{look}' ~ /tmp /dev/shm /run /var 2>/dev/null")[0] == ""
    from e2b import Sandbox

    box = Sandbox.connect(machine(native, session), **native.server.options())
    processes = str([vars(process) for process in box.commands.list()])
    assert "bash" in processes and FIRST not in processes, processes


def test_r2_104_what_a_window_shows_has_no_value_however_it_is_printed(native, session):
    put(native, session, FIRST)
    turn(native, session, "activate")
    split = f"printf %s '{FIRST[:9]}'; sleep 1; echo '{FIRST[9:]}'; echo $TOKEN | fold -w 3 | tr -d '\\n'; echo -$TOKEN$TOKEN-"
    assert run(native, session, split)[0] == "***\n***-***-\n"
    assert run(native, session, f"echo {FIRST[:9]}; printf x")[0] == f"{FIRST[:9]}\nx", "all else stays"
    told = events(native, session, f"sh -c 'echo begun; exec sleep 1000' {FIRST}", "busy")
    assert next(told)["data"] == "begun\n"
    assert FIRST not in json.dumps(native("GET", f"/sessions/{session}"))
    native("POST", f"/sessions/{session}/windows/busy/cancel")
    assert list(told)[-1] == {"type": "cancelled"}
    address = native.server.url.replace("http", "ws", 1) + f"{NATIVE}/sessions/{session}/windows/main/ws"
    with connect(address, additional_headers={"X-API-Key": native.key}) as socket:
        socket.send(json.dumps({"type": "init", "cols": 100, "rows": 30}))
        socket.send(json.dumps({"type": "input", "data": "echo \"[$TOKEN]\" $((6 * 7))\n"}))
        shown = ""
        while "[***] 42" not in shown:
            shown += json.loads(socket.recv(timeout=60)).get("data", "")
    assert FIRST not in shown and "__shoal" not in shown, shown
    # Programs may have it longer than the window.
    run(native, session, "COPY=$TOKEN")
    turn(native, session, "deactivate")
    assert run(native, session, "echo $COPY; echo ${#TOKEN}")[0] == "***\n0\n"


@pytest.mark.parametrize("name", ["PATH", "HOME", "PUBLIC_HOSTNAME", "LD_PRELOAD", "BASH_ENV"])
def test_a_name_with_another_use_is_refused_by_name(native, session, name):
    told = native("PUT", f"/sessions/{session}/secrets/{name}", 400, json={"value": FIRST})
    assert name in told and FIRST not in told


@pytest.mark.parametrize(
    "body", [{"value": ""}, {"value": FIRST + "\0"}, {"value": FIRST * 2000}, {"valeu": FIRST}, {"value": [FIRST]}, FIRST, [FIRST], None],
    ids=["empty", "nul", "long", "field", "list", "text", "array", "none"],
)
def test_r2_104_a_refusal_does_not_tell_the_value(native, session, body):
    told = native("PUT", f"/sessions/{session}/secrets/TOKEN", 400, json=body)
    assert FIRST not in told
    assert listed(native, session) == {}


def test_what_is_not_there_is_not_found(native, session):
    for method, path in [
        ("DELETE", "secrets/TOKEN"), ("POST", "secrets/TOKEN/activate"), ("POST", "secrets/TOKEN/deactivate"),
        ("GET", "memories/plan"), ("DELETE", "memories/plan"),
    ]:
        native(method, f"/sessions/{session}/{path}", 404)
    assert native("PUT", f"/sessions/{session}/secrets/a-b", 400, json={"value": "x"})
    assert native("PUT", f"/sessions/{session}/memories/.a", 400, json={"text": "x"})
    assert native("PUT", f"/sessions/{session}/memories/a", 400, json={"text": "x" * 65537})


def test_r2_018_memories_outlive_the_machine_and_the_server(another):
    server = another("memories")
    native = Native(server)
    session = native("POST", "/sessions", 201, json={})["id"]
    text = "1. build\n2. täst\n"
    assert native("PUT", f"/sessions/{session}/memories/plan", json={"text": text})["text"] == text
    native("PUT", f"/sessions/{session}/memories/done", json={"text": ""})
    assert machine(native, session) is None, "a memory needs no machine"
    run(native, session, "true")
    reset(native, session)
    server.crash()
    server.start()
    native = Native(server)
    shown = native("GET", f"/sessions/{session}/memories")
    assert [(one["name"], one["bytes"]) for one in shown] == [("done", 0), ("plan", len(text.encode()))]
    assert native("GET", f"/sessions/{session}/memories/plan")["text"] == text
    native("DELETE", f"/sessions/{session}/memories/done")
    native("GET", f"/sessions/{session}/memories/done", 404)
    native("DELETE", f"/sessions/{session}")
    native("GET", f"/sessions/{session}/memories/plan", 404)


def test_the_command_line(shared):
    made = shoal(shared, "create").strip()
    environment = os.environ | {"SHOAL_URL": shared.url, "SHOAL_API_KEY": shared.key}
    command = [str(program()), "session", "secret", "set", made, "TOKEN"]
    told = subprocess.run(command, env=environment, input=FIRST + "\n", capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    shoal(shared, "secret", "activate", made, "TOKEN")
    assert shoal(shared, "exec", made, "echo $TOKEN ${#TOKEN}") == f"*** {len(FIRST)}\n"
    assert "TOKEN" in shoal(shared, "secret", "ls", made) and FIRST not in shoal(shared, "secret", "ls", made, "--json")
    shoal(shared, "secret", "deactivate", made, "TOKEN")
    assert shoal(shared, "exec", made, "echo ${#TOKEN}") == "0\n"
    typed(command, environment, SECOND)
    shoal(shared, "secret", "activate", made, "TOKEN")
    assert shoal(shared, "exec", made, "echo ${#TOKEN}") == f"{len(SECOND)}\n"
    assert shoal(shared, "secret", "rm", made, "TOKEN").strip() == "TOKEN"
    assert "TOKEN" in shoal(shared, "secret", "rm", made, "TOKEN", code=66)
    assert "reserved" in subprocess.run(
        [*command[:-1], "PATH"], env=environment, input="x", capture_output=True, text=True, timeout=60,
    ).stderr
    shoal(shared, "memory", "set", made, "plan", "1. build")
    assert shoal(shared, "memory", "get", made, "plan") == "1. build"
    assert "plan" in shoal(shared, "memory", "ls", made)
    assert shoal(shared, "memory", "rm", made, "plan").strip() == "plan"
    shoal(shared, "rm", made)


def typed(command: list[str], environment: dict, value: str) -> None:
    """Types a value at the prompt of a command. The terminal must not show it."""
    mine, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as asking:
        shown = b""
        while b"TOKEN: " not in shown:
            shown += os.read(mine, 1024)
        os.write(mine, value.encode() + b"\n")
        assert asking.wait(60) == 0
    os.close(theirs)
    try:
        while more := os.read(mine, 1024):
            shown += more
    except OSError:
        # The other side has closed.
        pass
    os.close(mine)
    assert value.encode() not in shown, shown
