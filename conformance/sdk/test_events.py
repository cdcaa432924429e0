"""Server-sent events of sandboxes and sessions, and the generated client in Python."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest

from ..installation import ROOT, program
from .test_native import NATIVE, Native

sys.path.insert(0, str(ROOT / "clients" / "python"))

from shoal_sessions import Sessions, ShoalError  # noqa: E402


@pytest.fixture(scope="module")
def native(shared):
    return Native(shared)


@pytest.fixture(scope="module")
def client(shared):
    return Sessions(shared.url, shared.key)


@pytest.fixture
def session(client):
    made = client.create_session({"metadata": {"purpose": "test"}})
    yield made["id"]
    with contextlib.suppress(ShoalError):
        client.delete_session(made["id"])


@contextlib.contextmanager
def listening(native, path: str) -> Iterator[Iterator[tuple[str, dict]]]:
    """The names and the data of events, after the first."""
    with native.http.stream("GET", NATIVE + path) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        told = read(answer)
        assert next(told) == ("ready", {})
        yield told


def read(answer: httpx.Response) -> Iterator[tuple[str, dict]]:
    name = ""
    for line in answer.iter_lines():
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            yield name, json.loads(value)


def until(told: Iterator, **wanted) -> dict:
    """The next event with these fields."""
    for item in told:
        data = item[1] if isinstance(item, tuple) else item.data
        if data and wanted.items() <= data.items():
            return data
    raise AssertionError(f"no event has {wanted}")


def test_what_happens_to_sandboxes_is_told_while_it_happens(native):
    with listening(native, "/sandboxes/events") as told:
        made = native("POST", "/sandbox", 201, json={})
        created = until(told, type="created", sandboxId=made["id"])
        assert created["name"] == made["name"] and created["user"] == made["user"]
        native("POST", f"/sandbox/pause/{made['id']}")
        until(told, type="paused", sandboxId=made["id"])
        native("DELETE", f"/sandbox/{made['id']}")
        until(told, type="killed", sandboxId=made["id"])


def test_a_stream_of_events_ends_with_its_key_and_with_the_server(another):
    server = another("events")
    native = Native(server)
    made = native("POST", "/keys", 201, json={"name": "reader", "team": "default"})
    reader = Native(server, made["secret"])
    with listening(reader, "/sandboxes/events") as told:
        native("DELETE", f"/keys/{made['id']}")
        with contextlib.suppress(httpx.RemoteProtocolError):
            assert list(told) == []
    with listening(native, "/sandboxes/events") as told:
        server.stop()
        assert list(told) == []


def test_the_events_of_a_session_by_the_client(client, session):
    with client.follow_session(session) as told:
        assert next(told).name == "ready"
        *output, end = client.run_in_session(session, {"command": "echo here; echo made > made.txt; (exit 3)"})
        assert "".join(line["data"] for line in output if line["type"] == "output") == "here\n"
        assert end == {"type": "exit", "code": 3}
        sandbox = client.get_session(session)["sandboxId"]
        assert until(told, type="machine_started")["sandboxId"] == sandbox
        until(told, type="window_opened", window="main")
        assert "echo here" in until(told, type="command_started", window="main")["command"]
        # The event of the file may come before the end of its command, or after it.
        wanted = [{"type": "command_ended", "outcome": "exited", "exitCode": 3}, {"type": "files", "changed": ["made.txt"]}]
        while wanted:
            data = next(told).data
            wanted = [one for one in wanted if not (data and one.items() <= data.items())]
        question = client.reset_session(session)
        assert question["done"] is False
        assert client.reset_session(session, {"token": question["token"]})["done"] is True
        until(told, type="reset")
        until(told, type="machine_ended", sandboxId=sandbox)
        client.delete_session(session)
        until(told, type="deleted")
        assert list(told) == []


def test_files_are_watched_below_a_path(client, session):
    with client.watch_session_files(session, path="src") as told:
        assert next(told).name == "ready"
        client.write_session_file(session, b"1", path="other.txt")
        client.write_session_file(session, b"1", path="src/a.txt")
        assert next(told).data["changed"] == ["src/a.txt"]
        client.remove_session_files(session, path="src")
        assert next(told).data["removed"] == ["src/a.txt"]


def test_every_operation_of_the_client(client, session):
    assert session in [one["id"] for one in client.list_sessions()]
    changed = client.change_session(session, {"persist": True})
    assert changed["persist"] and changed["metadata"] == {"purpose": "test"}
    # Files.
    written = client.write_session_file(session, b"text\n", path="a b/é.txt", executable=True, if_none_match="*")
    assert written["path"] == "a b/é.txt" and written["executable"]
    with pytest.raises(ShoalError) as refused:
        client.write_session_file(session, b"", path="a b/é.txt", if_none_match="*")
    assert refused.value.status == 412
    assert client.read_session_file(session, path="a b/é.txt") == b"text\n"
    assert client.move_session_files(session, {"from": "a b", "to": "c"}) == {"files": 1}
    assert [file["path"] for file in client.list_session_files(session, path="c")] == ["c/é.txt"]
    assert client.get_session_sync(session)["state"] == "synced"
    assert client.remove_session_files(session, path="c") == {"files": 1}
    # Secrets and memories.
    assert client.set_session_secret(session, "TOKEN", {"value": "a long token"})["active"] is False
    assert client.activate_session_secret(session, "TOKEN")["active"]
    assert [secret["name"] for secret in client.list_session_secrets(session)] == ["TOKEN"]
    assert client.deactivate_session_secret(session, "TOKEN")["active"] is False
    client.delete_session_secret(session, "TOKEN")
    assert client.put_session_memory(session, "plan", {"text": "build"})["text"] == "build"
    assert client.get_session_memory(session, "plan")["text"] == "build"
    assert [memory["name"] for memory in client.list_session_memories(session)] == ["plan"]
    client.delete_session_memory(session, "plan")
    # A window: its output is read while the command runs.
    lines = client.run_in_session(session, {"command": "echo begun; sleep 1000", "window": "server"})
    assert next(line for line in lines if line["type"] == "output")["data"] == "begun\n"
    client.cancel_in_session(session, "server")
    assert list(lines) == [{"type": "cancelled"}]
    assert [window["name"] for window in client.get_session(session)["windows"]] == ["server"]
    with pytest.raises(ShoalError, match="404"):
        client.get_session("0" * 16)


def test_the_command_line_prints_events_and_files(shared, client, session):
    environment = os.environ | {"E2B_API_URL": shared.url, "E2B_API_KEY": shared.key}
    follow = [program(), "session", "events", session]
    watch = [program(), "session", "file", "watch", session]
    piped = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(follow, **piped) as events, subprocess.Popen(watch, **piped) as files:
        # Neither reports that its subscription exists: files are written until both have reported one.
        told: list[str] = []
        for process, word in ((events, " files changed="), (files, "changed ")):
            told += [written_until(process, word, client, session)]
        client.delete_session(session)
        rest, _ = events.communicate(timeout=60)
        files.communicate(timeout=60)
    assert rest.rstrip().endswith(" deleted"), rest
    assert events.returncode == files.returncode == 0
    assert "file-" in told[0] and told[1].startswith("changed file-")


def written_until(process: subprocess.Popen, word: str, client, session: str) -> str:
    """Writes files until the process tells of one."""
    lines: list[str] = []

    def tell() -> None:
        lines.append(next(line for line in process.stdout if word in line))

    reader = threading.Thread(target=tell)
    reader.start()
    for number in range(600):
        client.write_session_file(session, b"%d" % number, path=f"file-{number}")
        reader.join(0.1)
        if not reader.is_alive():
            break
    assert lines, "nothing is told"
    return lines[0]
