"""Sandboxes outlive the server: no program inside notices its end, however sudden."""

import json
import socket

import pytest
from e2b import Sandbox

from ..installation import wait_until
from .conftest import Sdk, done


@pytest.fixture(scope="module")
def mortal(another):
    """A server that tests may kill."""
    return another("mortal")


async def test_a_sandbox_survives_a_kill_of_the_server(request, sdk, runtime, mortal):
    own = Sdk(sdk.name, mortal)
    made = await own.create(runtime=runtime, timeout=600, metadata={"who": "survivor"})
    await done(made.files.write("kept.txt", "kept"))
    handle = await done(made.commands.run("echo $$ >pid; exec sleep 1000", background=True, timeout=0))
    before = await done(made.get_info())
    await done(handle.disconnect())
    mortal.crash()
    mortal.start()
    # The same object still works: id, token, time, files and processes are unchanged.
    after = await done(made.get_info())
    assert (after.end_at, after.started_at) == (before.end_at, before.started_at)
    assert after.metadata == before.metadata
    assert await done(made.files.read("kept.txt")) == "kept"
    assert handle.pid in [process.pid for process in await done(made.commands.list())]
    assert (await done(made.commands.run("kill -0 $(cat pid) && echo alive"))).stdout == "alive\n"
    await done(made.set_timeout(900))
    assert await done(made.commands.kill(handle.pid)) is True
    assert await done(made.kill()) is True
    wait_until(lambda: mortal.processes(made.sandbox_id) == set(), 60, "the end of its processes")


async def test_a_sandbox_survives_an_orderly_end_of_the_server(sdk, runtime, mortal):
    own = Sdk(sdk.name, mortal)
    made = await own.create(runtime=runtime, timeout=600)
    mortal.stop()
    mortal.start()
    assert (await done(made.commands.run("echo still"))).stdout == "still\n"
    assert await done(made.kill()) is True


async def test_time_goes_on_while_there_is_no_server(sdk, mortal):
    own = Sdk(sdk.name, mortal)
    made = await own.create(timeout=1)
    mortal.crash()
    mortal.start()
    wait_until(lambda: not mortal.processes(made.sandbox_id), 60, "the end of its time")
    assert await done(made.is_running()) is False


def answer(connection: socket.socket) -> str:
    """All that the server sends until it closes the connection."""
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()


def test_a_stop_refuses_new_calls_and_ends_those_under_way(mortal):
    def send(line: str, *headers: str, length: int = 0) -> socket.socket:
        head = [
            f"{line} HTTP/1.1", "Host: localhost", f"X-API-Key: {mortal.key}", "Connection: close",
            "Content-Type: application/json", f"Content-Length: {length}", *headers, "", "",
        ]
        connection = socket.create_connection(("127.0.0.1", mortal.port), timeout=60)
        connection.sendall("\r\n".join(head).encode())
        return connection

    def refused(path: str) -> dict | None:
        try:
            head, _, body = answer(send(f"GET {path}")).partition("\r\n\r\n")
        except ConnectionResetError:
            # As it begins to stop, the server closes connections that have sent nothing yet.
            return None
        if head.startswith("HTTP/1.1 503 "):
            assert "\r\nretry-after: 5\r\n" in head
            return json.loads(body)
        return None

    # A first create prepares the template's image. The one below must end within the time of a stop.
    Sandbox.create("base", timeout=60, **mortal.options()).kill()
    body = json.dumps({"templateID": "base", "timeout": 60}).encode()
    # The server asks for the body once it handles the call.
    creating = send("POST /v2/sandboxes", "Expect: 100-continue", length=len(body))
    assert creating.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    mortal.process.terminate()
    # Any of these connections may be one that is closed as the stop begins.
    assert wait_until(lambda: refused("/health"), 60, "the stop")["error_code"] == "server_stopping"
    assert wait_until(lambda: refused("/api/v1/status"), 60, "the same of the native API")["code"] == "503"
    creating.sendall(body)
    made = answer(creating)
    assert made.startswith("HTTP/1.1 201 "), made
    assert mortal.process.wait(60) == 0
    mortal.process = None
    mortal.start()
    assert mortal.processes(json.loads(made.partition("\r\n\r\n")[2])["sandboxID"])
