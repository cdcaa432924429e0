"""Sessions over the native API and the command line: a machine that comes and goes, and windows in it."""

from __future__ import annotations

import json
import os
import subprocess
import threading

import httpx
import pytest
from websockets.sync.client import connect

from ..installation import program, wait_until
from .test_native import NATIVE, Native


@pytest.fixture(scope="module")
def native(shared):
    return Native(shared)


@pytest.fixture
def session(native):
    made = native("POST", "/sessions", 201, json={"metadata": {"purpose": "test"}})
    yield made["id"]
    native("DELETE", f"/sessions/{made['id']}")


def events(native, session: str, command: str, window: str = "main"):
    """The lines of an answer, as they come."""
    asked = {"command": command, "window": window}
    with native.http.stream("POST", f"{NATIVE}/sessions/{session}/exec", json=asked) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "application/x-ndjson"
        for line in answer.iter_lines():
            yield json.loads(line)


def run(native, session: str, command: str, window: str = "main") -> tuple[str, dict]:
    """The output of a command, and its end."""
    *output, end = events(native, session, command, window)
    return "".join(piece["data"] for piece in output), end


def machine(native, session: str) -> str | None:
    return native("GET", f"/sessions/{session}").get("sandboxId")


def test_r2_011_r2_012_r2_020_r2_023_r2_024_and_r2_100_a_machine_comes_with_the_first_command_and_again_after_a_reset(native, session):
    seen = native("GET", f"/sessions/{session}")
    assert seen["windows"] == [] and "sandboxId" not in seen and seen["metadata"] == {"purpose": "test"}
    assert run(native, session, "echo here; false") == ("here\n", {"type": "exit", "code": 1})
    first = native("GET", f"/sessions/{session}")
    assert first["endsAt"] and [window["name"] for window in first["windows"]] == ["main"]
    assert native("GET", f"/sandbox/{first['sandboxId']}")["id"] == first["sandboxId"]
    assert first["isolation"] == "gvisor", "R2-008: what isolates it is said"
    run(native, session, "echo left > /tmp/left; export LEFT=left; sleep 1000 &")
    # R2-026: nothing ends without a confirmation.
    question = native("POST", f"/sessions/{session}/reset", 202, json={})
    assert question["done"] is False and machine(native, session) == first["sandboxId"]
    native("POST", f"/sessions/{session}/reset", 409, json={"token": "0" * 32})
    assert run(native, session, "cat /tmp/left")[0] == "left\n"
    assert native("POST", f"/sessions/{session}/reset", json={"token": question["token"]})["done"] is True
    native("POST", f"/sessions/{session}/reset", 409, json={"token": question["token"]})
    assert machine(native, session) is None
    native("GET", f"/sandbox/{first['sandboxId']}", 404)
    assert "isolation" not in native("GET", f"/sessions/{session}")
    output, end = run(native, session, "echo -$LEFT-; ls /tmp/left; pgrep -c sleep")
    assert output.startswith("--\n") and "No such file" in output and end["code"] == 1
    assert machine(native, session) not in (None, first["sandboxId"])


def test_r2_069_r2_070_r2_071_and_r2_072_a_window_comes_with_its_first_use_and_keeps_its_shell_and_shares_it_with_none(native, session):
    run(native, session, "cd /tmp; export COLOUR=blue; twice() { echo $1$1; }")
    assert run(native, session, "pwd; echo $COLOUR; twice a")[0] == "/tmp\nblue\naa\n"
    windows = lambda: [window["name"] for window in native("GET", f"/sessions/{session}")["windows"]]  # noqa: E731
    assert windows() == ["main"]
    assert run(native, session, "echo -$COLOUR-; pwd", "other")[0].startswith("--\n/home/")
    assert windows() == ["main", "other"]


def test_r2_075_a_command_cancels_the_one_before_it_and_no_other(native, session):
    run(native, session, "true")
    ends = {}

    def wait(window: str) -> None:
        ends[window] = run(native, session, f"echo {window}; sleep 1000", window)

    waiting = [threading.Thread(target=wait, args=(window,)) for window in ("main", "other")]
    for thread in waiting:
        thread.start()
    busy = lambda: sum("running" in one for one in native("GET", f"/sessions/{session}")["windows"]) == 2  # noqa: E731
    wait_until(busy, 60, "both commands")
    assert "endsAt" not in native("GET", f"/sessions/{session}"), "R2-015: a running command counts as activity"
    assert run(native, session, "echo next") == ("next\n", {"type": "exit", "code": 0})
    waiting[0].join(30)
    assert ends["main"][1] == {"type": "cancelled"} and "other" not in ends
    native("POST", f"/sessions/{session}/windows/other/cancel")
    waiting[1].join(30)
    assert ends["other"][1] == {"type": "cancelled"}
    native("POST", f"/sessions/{session}/windows/absent/cancel", 404)


def test_a_command_continues_without_its_client(native, session):
    with native.http.stream("POST", f"{NATIVE}/sessions/{session}/exec", json={"command": "echo begun; sleep 2; echo > /tmp/done"}) as answer:
        assert json.loads(next(answer.iter_lines())) == {"type": "output", "data": "begun\n"}
    ended = lambda: run(native, session, "ls /tmp/done", "other")[1]["code"] == 0  # noqa: E731
    wait_until(ended, 60, "the end of the command")


def test_a_machine_that_was_killed_is_replaced(native, session):
    run(native, session, "cd /tmp")
    killed = machine(native, session)
    native("DELETE", f"/sandbox/{killed}")
    output, end = run(native, session, "pwd")
    assert end == {"type": "exit", "code": 0} and output.startswith("/home/")
    assert machine(native, session) != killed


def test_a_terminal_attaches_to_a_window_and_leaves_it_open(native, session):
    run(native, session, "echo before")
    address = native.server.url.replace("http", "ws", 1) + f"{NATIVE}/sessions/{session}/windows/main/ws"
    for number in range(2):
        with connect(address, additional_headers={"X-API-Key": native.key}) as socket:
            socket.send(json.dumps({"type": "init", "cols": 100, "rows": 30}))
            typed = f"echo $((6 * 7))-{number}\n"
            socket.send(json.dumps({"type": "input", "data": typed}))
            shown = ""
            while f"42-{number}" not in shown:
                message = json.loads(socket.recv(timeout=60))
                assert message["type"] in ("ready", "output"), message
                shown += message.get("data", "")
            assert "before" in shown, "what was on the terminal is repeated"
    assert run(native, session, "echo after")[0] == "after\n"


def test_r2_016_persist_moves_the_deadline(native, session):
    run(native, session, "true")
    hour = native("GET", f"/sessions/{session}")
    day = native("PATCH", f"/sessions/{session}", json={"persist": True})
    assert day["persist"] and day["metadata"] == {"purpose": "test"}
    assert day["endsAt"] > hour["endsAt"]
    assert native("PATCH", f"/sessions/{session}", json={"persist": False, "metadata": {}})["endsAt"] == hour["endsAt"]


@pytest.mark.parametrize(
    ("asked", "status", "names"),
    [
        ({"cpu_count": 17}, 400, ["cpu_count"]), ({"memory_gb": 0}, 400, ["memory_gb"]),
        ({"gpu_count": 1}, 400, ["gpu_count", "gpu_type"]), ({"gpu_type": "T5"}, 400, ["gpu_type"]),
        ({"privileged": True, "gpu_type": "T4"}, 400, ["privileged", "gpu_type"]),
        ({"docker_image": "python:3.11"}, 400, ["docker_image", "privileged"]),
        ({"ssh_connection": "me@host:22", "ssh_private_key": "k", "cpu_count": 1}, 400, ["cpu_count", "ssh_connection"]),
        ({"ssh_connection": "me@host:22"}, 400, ["ssh_connection", "ssh_private_key"]),
        ({"gpu_type": "T4"}, 501, ["gpu_type"]), ({"gpu_type": "H100", "gpu_count": 2}, 501, ["gpu_type"]),
        ({"privileged": True}, 501, ["privileged", "sessions.privileged"]),
        ({"privileged": True, "docker_image": "python:3.11"}, 501, ["docker_image"]),
        ({"ssh_connection": "me@host:22", "ssh_private_key": "k"}, 400, ["ssh_private_key"]),
    ],
    ids=str,
)
def test_r2_098_a_machine_is_refused_by_name_before_anything_starts(native, asked, status, names):
    before = len(native("GET", "/sessions"))
    told = native("POST", "/sessions", status, json={"machine": asked})
    assert all(f"`{name}`" in told for name in names), told
    assert len(native("GET", "/sessions")) == before


def test_r2_078_a_machine_has_the_processors_and_the_memory_that_were_asked_for(native):
    made = native("POST", "/sessions", 201, json={"machine": {"cpu_count": 1, "memory_gb": 1}})
    try:
        assert run(native, made["id"], "echo here")[0] == "here\n"
        sandbox = native("GET", f"/sandbox/{machine(native, made['id'])}")
        assert (sandbox["cpu_limit"], sandbox["memory_limit"]) == ("1000m", "1024Mi"), sandbox
    finally:
        native("DELETE", f"/sessions/{made['id']}")


@pytest.mark.parametrize("command", ["", " \n", "a\0b"])
def test_no_command_is_refused(native, session, command):
    assert "command" in native("POST", f"/sessions/{session}/exec", 400, json={"command": command})
    assert "window" in native("POST", f"/sessions/{session}/exec", 400, json={"command": "true", "window": "a b"})
    assert machine(native, session) is None


def test_sessions_survive_a_kill_of_the_server(another):
    server = another("sessions")
    native = Native(server)
    made = native("POST", "/sessions", 201, json={"persist": True})["id"]
    run(native, made, "echo kept > /tmp/kept")
    before = machine(native, made)
    server.crash()
    server.start()
    native = Native(server)
    seen = native("GET", f"/sessions/{made}")
    assert seen["persist"] and seen["sandboxId"] == before and seen["windows"] == []
    assert run(native, made, "cat /tmp/kept") == ("kept\n", {"type": "exit", "code": 0})
    assert machine(native, made) == before
    native("DELETE", f"/sessions/{made}")
    native("GET", f"/sandbox/{before}", 404)
    server.crash()
    server.start()
    assert Native(server)("GET", "/sessions") == []


def shoal(server, *arguments: str, code: int = 0) -> str:
    told = subprocess.run(
        [program(), "session", *arguments], env=os.environ | {"SHOAL_URL": server.url, "SHOAL_API_KEY": server.key},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )
    assert told.returncode == code, (told.stdout, told.stderr)
    return told.stdout if code == 0 else told.stdout + told.stderr


def test_the_command_line(shared):
    assert "`gpu_type`" in shoal(shared, "create", "--gpu-type", "A100", "--gpu-count", "2", code=70)
    assert "`docker_image`" in shoal(shared, "create", "--privileged", "--docker-image", "python:3.11", code=70)
    made = shoal(shared, "create", "--metadata", "purpose=cli").strip()
    assert shoal(shared, "exec", made, "echo $((6 * 7)); echo x >&2") == "42\nx\n"
    assert shoal(shared, "exec", made, "--window", "w", "exit 3", code=3)
    assert made in shoal(shared, "ls") and "purpose=cli" in shoal(shared, "ls")
    assert "main" in shoal(shared, "info", made) and "gvisor" in shoal(shared, "info", made)
    shoal(shared, "persist", made, "on")
    assert json.loads(shoal(shared, "info", made, "--json"))["persist"] is True
    # Without a terminal it cannot ask.
    assert "--yes" in shoal(shared, "reset", made, code=64)
    assert json.loads(shoal(shared, "info", made, "--json"))["sandboxId"]
    shoal(shared, "reset", made, "--yes")
    assert "sandboxId" not in json.loads(shoal(shared, "info", made, "--json"))
    assert shoal(shared, "rm", made).strip() == made
    assert "not found" in shoal(shared, "info", made, code=66)
    assert httpx.get(f"{shared.url}{NATIVE}/sessions/{made}", headers={"X-API-Key": shared.key}).status_code == 404
