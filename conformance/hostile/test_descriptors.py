"""One tenant's connections, and a server that has run out of descriptors or memory."""

from __future__ import annotations

import os
import socket
import time

import h2.connection
import h2.events
import pytest
from e2b.exceptions import SandboxUnreachableException

from ..installation import resident_kib, wait_until
from .conftest import create, furnished
from .machine import Call, run

#: The server's descriptor limit, far below the number of ports of one sandbox.
DESCRIPTORS = 2048
FIRST, PORTS = 10000, 2300

#: How long the calls of another tenant may take together, on a machine that other suites use, too.
PROMPT = 60

#: A few processes: a sandbox of a server with few descriptors has few per process, too.
LISTENER = f"""
import os, resource, selectors, socket
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
first, last = {FIRST}, {FIRST + PORTS}
while last - first > 400:
    if not os.fork():
        last = first + 400
    else:
        first += 400
look = selectors.DefaultSelector()
for port in range(first, last):
    s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(("0.0.0.0", port)); s.listen(64); s.setblocking(False)
    look.register(s, 1, True)
open("/tmp/listening-%d" % last, "w").close()
while True:
    for key, _ in look.select():
        try:
            if key.data:
                c = key.fileobj.accept()[0]; c.setblocking(False); look.register(c, 1, False)
                continue
            if not (said := key.fileobj.recv(65536)):
                look.unregister(key.fileobj); key.fileobj.close()
            elif b"/hang" not in said:
                key.fileobj.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
        except OSError:
            pass
"""


@pytest.fixture(scope="module")
def small(scratch):
    """A server with few descriptors, and an attacker's sandbox that listens on thousands of ports."""
    under = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", "--"]
    with furnished(scratch, "descriptors", under=under) as server:
        yield server


@pytest.fixture(scope="module")
def attacker(small):
    made = create(small, "runc", template="base", team="other", timeout=900)
    made.files.write("/tmp/listen.py", LISTENER)
    made.commands.run("python3 /tmp/listen.py", background=True, user="root", timeout=0)
    processes = -(-PORTS // 400)
    listening = lambda: run(made, f"test $(ls /tmp/listening-* | wc -l) = {processes}").code == 0  # noqa: E731
    wait_until(listening, 60, "the attacker's ports")
    yield made
    made.kill()


@pytest.fixture(scope="module")
def neighbour(small):
    made = create(small, "runc", timeout=900)
    yield made
    made.kill()


def descriptors(server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@pytest.fixture(scope="module")
def quiet(small, attacker, neighbour) -> int:
    """The server's descriptors before the first attack."""
    return descriptors(small)


def goes_on(server, neighbour):
    """Another tenant's operations all succeed promptly."""
    begun = time.monotonic()
    assert Call(server, None, timeout=PROMPT).get("/health")[0] == 204
    try:
        here = neighbour.commands.run("echo here")
    except SandboxUnreachableException:
        # The server closed its idle connection at the moment of its use. HTTP/1.1 cannot prevent that.
        here = neighbour.commands.run("echo here")
    assert here.stdout == "here\n"
    made = create(server, "runc", timeout=300)
    assert made.commands.run("echo new").stdout == "new\n"
    made.kill()
    assert time.monotonic() - begun < PROMPT
    assert descriptors(server) < DESCRIPTORS - 200


def head_of(sandbox, port: int, path: str = "/") -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: {sandbox.sandbox_id}\r\n"
        f"E2b-Sandbox-Port: {port}\r\n\r\n"
    ).encode()


def test_one_client_of_thousands_of_ports_does_not_block_others(small, attacker, neighbour, quiet):
    """Each port costs a connection into the sandbox; only few are kept."""
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as line:
        for port in range(FIRST, FIRST + PORTS):
            line.sendall(head_of(attacker, port))
            heard = b""
            while not heard.endswith(b"ok"):
                piece = line.recv(4096)
                assert piece, heard
                heard += piece
            if port % 500 == 0:
                assert descriptors(small) < DESCRIPTORS // 2
        goes_on(small, neighbour)
    assert "cannot accept a connection" not in small.log_tail(100_000)


def test_hanging_requests_only_limit_their_own_sandbox(small, attacker, neighbour):
    """Hundreds of clients, each with a request that is never answered."""
    lines, refused = [], 0
    try:
        # As many clients as are accepted, except for a few places for others.
        for number in range(400):
            line = socket.create_connection(("127.0.0.1", small.port), timeout=60)
            line.sendall(head_of(attacker, FIRST + number, "/hang"))
            lines.append(line)
        goes_on(small, neighbour)
        for line in lines:
            line.settimeout(0.01)
            try:
                heard = line.recv(4096)
            except TimeoutError:
                continue
            assert heard.startswith(b"HTTP/1.1 429"), heard
            refused += 1
    finally:
        for line in lines:
            line.close()
    assert refused > 100
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as line:
        def answered() -> bool:
            line.sendall(head_of(attacker, FIRST))
            return line.recv(4096).startswith(b"HTTP/1.1 200")
        wait_until(answered, 60, "the attacker's own places to come back")


class Streams:
    """An HTTP/2 connection with many concurrent requests."""

    def __init__(self, server):
        self.line = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.http = h2.connection.H2Connection()
        self.http.initiate_connection()

    def ask(self, sandbox, ports) -> None:
        for port in ports:
            self.http.send_headers(self.http.get_next_available_stream_id(), [
                (":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/hang"),
                ("e2b-sandbox-id", sandbox.sandbox_id), ("e2b-sandbox-port", str(port)),
            ], end_stream=True)
        self.line.sendall(self.http.data_to_send())

    def statuses(self) -> list[str]:
        """The responses received since the last call."""
        self.line.settimeout(0.05)
        found = []
        try:
            while data := self.line.recv(65536):
                for event in self.http.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        found.append(dict(event.headers)[b":status"].decode())
                self.line.sendall(self.http.data_to_send())
        except TimeoutError:
            pass
        return found


def test_http2_streams_are_counted_individually(small, attacker, neighbour, quiet):
    """A few connections of one client with hundreds of streams, each to another port."""
    # Connections of the last test that are still being closed would hide the ones of this test.
    wait_until(lambda: descriptors(small) < quiet + 50, 60, "the descriptors of the last test")
    begun, answered = descriptors(small), []
    clients = [Streams(small) for _ in range(4)]
    try:
        for number, client in enumerate(clients):
            first = FIRST + number * 100
            client.ask(attacker, range(first, first + 100))

        def refused() -> bool:
            for client in clients:
                answered.extend(client.statuses())
            return len(answered) > 100

        # Admitted requests hang; the others are refused.
        wait_until(refused, 60, "the refusals")
        assert set(answered) == {"429"}
        # Refusals need no connection into the sandbox, so they may come first.
        wait_until(lambda: descriptors(small) > begun + 100, 60, "the admitted requests' connections")
        goes_on(small, neighbour)
    finally:
        for client in clients:
            client.line.close()
    wait_until(lambda: descriptors(small) < begun + 50, 60, "the descriptors to be given back")


def test_idle_clients_make_room_for_others(small, neighbour):
    """As many idle connections as the server accepts: queued ones are still served."""
    lines = []
    try:
        for _ in range(DESCRIPTORS):
            line = socket.create_connection(("127.0.0.1", small.port), timeout=60)
            line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            lines.append(line)
            # One moment of a busy machine is no sign among the first.
            line.settimeout(0.2 if len(lines) > 200 else 60)
            try:
                assert line.recv(100).startswith(b"HTTP/1.1 204")
            except TimeoutError:
                # All places are taken.
                break
        assert 200 < len(lines) < DESCRIPTORS // 2
        line.settimeout(60)
        assert line.recv(100).startswith(b"HTTP/1.1 204")
        goes_on(small, neighbour)
    finally:
        for line in lines:
            line.close()


def test_bodies_that_never_end_leave_memory_for_others(small, neighbour):
    """Forty calls, each one byte short of the largest body."""
    size = 16 << 20
    begun, lines, refused = resident_kib(small.process.pid), [], 0
    head = (
        f"POST /sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {small.keys['other']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    ).encode()
    try:
        for _ in range(40):
            line = socket.create_connection(("127.0.0.1", small.port), timeout=60)
            lines.append(line)
            try:
                line.sendall(head + b" " * (size - 1))
            except (BrokenPipeError, ConnectionResetError):
                pass
        goes_on(small, neighbour)
        # The other tenant's own bodies find room, too.
        assert Call(small).post("/sandboxes", b" " * (4 << 20) + b"{")[0] == 400
        assert resident_kib(small.process.pid) - begun < 400 << 10
        for line in lines:
            line.settimeout(0.05)
            try:
                refused += line.recv(4096).startswith(b"HTTP/1.1 429")
            except (TimeoutError, ConnectionResetError):
                pass
        assert refused > 20
    finally:
        for line in lines:
            line.close()


def test_a_body_with_too_many_values_is_refused_before_parsing(small):
    step = b'{"type":"RUN","args":["x"]},'
    body = b'{"steps":[' + step * ((16 << 20) // len(step) - 10) + b'{"type":"RUN","args":["x"]}]}'
    begun = resident_kib(small.process.pid)
    status, said = Call(small, "other").post("/v2/templates/any/builds/any", body)
    assert status == 400 and "values" in said["message"], said
    assert resident_kib(small.process.pid) - begun < 64 << 10
