"""Malicious requests: smuggled, endless, slow, ambiguous, huge."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..installation import resident_kib, wait_until
from .conftest import SMALL, create
from .machine import Call


@pytest.fixture(scope="module")
def target(server):
    """A sandbox whose port 8002 echoes each request."""
    made = create(server, "runc", timeout=900)
    made.files.write("/tmp/echo.py", (
        "import http.server,json\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        " protocol_version='HTTP/1.1'\n"
        " def answer(s):\n"
        "  n=int(s.headers.get('Content-Length') or 0)\n"
        "  if s.headers.get('Transfer-Encoding'):\n"
        "   d=b''\n"
        "   while True:\n"
        "    k=int(s.rfile.readline(),16); d+=s.rfile.read(k); s.rfile.readline()\n"
        "    if not k: break\n"
        "  else: d=s.rfile.read(n)\n"
        "  open('/tmp/asked','a').write(s.command+' '+s.path+'\\n')\n"
        "  b=json.dumps({'path':s.path,'headers':s.headers.items(),'body':d.decode('latin-1')}).encode()\n"
        "  s.send_response(200); s.send_header('Content-Length',str(len(b))); s.end_headers(); s.wfile.write(b)\n"
        " do_GET=do_POST=do_PUT=do_DELETE=answer\n"
        "class S(http.server.ThreadingHTTPServer): request_queue_size=256\n"
        "S(('0.0.0.0',8002),H).serve_forever()\n"
    ))
    made.commands.run("python3 /tmp/echo.py", background=True)
    made.commands.run("for n in $(seq 600); do curl -s localhost:8002 >/dev/null && break; sleep .1; done")
    yield made
    made.kill()


#: How long an answer may take that must come, in seconds.
PATIENCE = 60


def talk(server, data: bytes, first: float = 2, then: float = 2) -> bytes:
    """Sends raw bytes, and reads until the server closes the connection or stops sending.

    `first` and `then` are how long the first and each other part of an answer may take.
    """
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        line.sendall(data)
        line.settimeout(first)
        heard = b""
        try:
            while piece := line.recv(65536):
                heard += piece
                line.settimeout(then)
        except (TimeoutError, ConnectionResetError):
            pass
        return heard


def head(sandbox, port: int = 8002) -> bytes:
    return (f"Host: x\r\nE2b-Sandbox-Id: {sandbox.sandbox_id}\r\nE2b-Sandbox-Port: {port}\r\n").encode()


def answers(heard: bytes) -> list[int]:
    """The statuses of all responses on a connection."""
    return [int(part[:3]) for part in heard.split(b"HTTP/1.1 ")[1:]]


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 40\r\n",
        b"Content-Length: 4, 40\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 0x4\r\n",
        b"Content-Length : 4\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding\t: chunked\r\n",
        b" Transfer-Encoding: chunked\r\n",
        b"X: a\nContent-Length: 4\r\n",
        b"X: a\rContent-Length: 40\r\n",
    ],
)
def test_requests_cannot_be_smuggled(server, target, framing):
    """An ambiguous message is at most one request."""
    target.commands.run("rm -f /tmp/asked")
    body = b"0\r\n\r\n" + SMUGGLED
    heard = talk(server, b"POST /outer HTTP/1.1\r\n" + head(target) + framing + b"\r\n" + body)
    asked = target.commands.run("cat /tmp/asked 2>/dev/null || true").stdout
    assert "/smuggled" not in asked, (asked, heard)
    # The server itself may see a second request, which reaches the API without a key.
    assert all(status >= 400 for status in answers(heard)[1:]), heard


@pytest.mark.parametrize(
    "chunks",
    [b"4\r\nabcd\r\n0\r\n\r\n", b"4;x=" + b"y" * 100 + b"\r\nabcd\r\n0\r\n\r\n"],
)
def test_chunked_bodies_are_forwarded_completely(server, target, chunks):
    data = b"POST /c HTTP/1.1\r\n" + head(target) + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks
    heard = talk(server, data, PATIENCE, PATIENCE)
    assert answers(heard) == [200] and b'"abcd"' in heard


@pytest.mark.parametrize(
    "chunks",
    [b"-1\r\n", b"4\nabcd\n0\n\n", b"FFFFFFFFFFFFFFFFF\r\n", b"4\r\nabcdEXTRA\r\n0\r\n\r\n", b"0x4\r\nabcd\r\n0\r\n\r\n",
     b"4" + b";" + b"x" * 100_000 + b"\r\nabcd\r\n0\r\n\r\n", b" 4\r\nabcd\r\n0\r\n\r\n"],
)
def test_malformed_chunks_end_the_request(server, target, chunks):
    target.commands.run("rm -f /tmp/asked")
    talk(server, b"POST /c HTTP/1.1\r\n" + head(target) + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + SMUGGLED)
    asked = target.commands.run("cat /tmp/asked 2>/dev/null || true").stdout
    assert "/smuggled" not in asked, asked
    assert Call(server).get("/health")[0] == 204


def test_ambiguous_targets_are_refused(server, target, bystander):
    """Two ids, two hosts, a host and a pair: whichever applies, its own token is required."""
    token = Call(server).get(f"/sandboxes/{target.sandbox_id}")[1]["envdAccessToken"]
    mine, theirs = target.sandbox_id, bystander.sandbox_id
    cases = [
        f"Host: x\r\nE2b-Sandbox-Id: {mine}\r\nE2b-Sandbox-Id: {theirs}\r\nE2b-Sandbox-Port: 49983\r\n",
        f"Host: x\r\nE2b-Sandbox-Id: {theirs}\r\nE2b-Sandbox-Id: {mine}\r\nE2b-Sandbox-Port: 49983\r\n",
        f"Host: 49983-{theirs}.x\r\nE2b-Sandbox-Id: {mine}\r\nE2b-Sandbox-Port: 49983\r\n",
        f"Host: 49983-{mine}.x\r\nE2b-Sandbox-Id: {theirs}\r\nE2b-Sandbox-Port: 49983\r\n",
        f"Host: 49983-{mine}.x\r\nHost: 49983-{theirs}.x\r\n",
        f"Host: 49983-{theirs}.x\r\nHost: 49983-{mine}.x\r\n",
        f"Host: x\r\nE2b-Sandbox-Id: {mine},{theirs}\r\nE2b-Sandbox-Port: 49983\r\n",
    ]
    for case in cases:
        for asked in ("/files?path=secret.txt", f"http://49983-{theirs}.x/files?path=secret.txt",
                      f"http://49983-{mine}.x/files?path=secret.txt"):
            request = f"GET {asked} HTTP/1.1\r\n{case}X-Access-Token: {token}\r\nConnection: close\r\n\r\n"
            heard = talk(server, request.encode())
            assert b"bystander" not in heard, (case, asked)


@pytest.mark.parametrize(
    "line",
    [b"GET http://169.254.169.254/ HTTP/1.1", b"GET http://127.0.0.1:22/ HTTP/1.1", b"CONNECT 127.0.0.1:22 HTTP/1.1",
     b"GET //127.0.0.1:22/ HTTP/1.1", b"GET @127.0.0.1:22/ HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET /\x00 HTTP/1.1",
     b"GET / HTTP/1.0", b"GET / HTTP/9.9", b"PRI * HTTP/2.0", b"GET / HTTP/1.1\r\nHost: a b", b"\x16\x03\x01\x00\xa5"],
)
def test_the_gateway_is_no_open_proxy(server, target, line):
    for more in (b"Host: x\r\n", head(target)):
        heard = talk(server, line + b"\r\n" + more + b"Connection: close\r\n\r\n")
        assert b"SSH-" not in heard and b"root:" not in heard
        assert Call(server).get("/health")[0] == 204


def test_endless_headers_are_refused(server):
    for name, data in {
        "one that is long": b"GET / HTTP/1.1\r\nX: " + b"a" * (4 << 20),
        "many": b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(20_000)),
        "a path": b"GET /" + b"a" * (4 << 20) + b" HTTP/1.1\r\n",
    }.items():
        begun = resident_kib(server.process.pid)
        try:
            heard = talk(server, data)
        except (BrokenPipeError, ConnectionResetError):
            heard = b""
        assert not heard or answers(heard)[0] in (400, 414, 431), (name, heard[:80])
        assert resident_kib(server.process.pid) - begun < 32 << 10, name


BODIES = {
    "no JSON": b"{", "another kind": b"[]", "text": b"\xff\xfe\x00", "deep": b"[" * 500_000,
    "deep objects": b'{"metadata":' * 100_000, "a number": b"1e999999999", "null": b"null",
    "deep in its place": b'{"templateID":"base","metadata":' + b'{"a":' * 50_000,
    "twice": b'{"templateID":"base","templateID":["x"]}',
    "negative": b'{"templateID":"base","timeout":-1}', "huge": b'{"templateID":"base","timeout":1e30}',
    "surrogate": b'{"templateID":"\\ud800"}', "zero byte": b'{"templateID":"a\\u0000b"}',
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_bodies_are_refused(server, name):
    for path in ("/v2/sandboxes", "/sandboxes"):
        status, answer = Call(server).post(path, BODIES[name])
        assert status in (400, 404, 413, 415, 422), (name, status, answer)
    assert Call(server).get("/health")[0] == 204


def test_endless_bodies_are_refused(server):
    begun = resident_kib(server.process.pid)
    start = f"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {server.key}\r\nContent-Type: application/json\r\n"
    for framing in (b"Content-Length: 99999999999\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
            line.sendall(start.encode() + framing)
            block = b" " * 65536
            sent = 0
            try:
                while sent < 64 << 20:
                    line.sendall(block if b"chunked" not in framing else b"10000\r\n" + block + b"\r\n")
                    sent += len(block)
            except (BrokenPipeError, ConnectionResetError, TimeoutError):
                pass
        assert sent < 64 << 20, "it read on"
    assert resident_kib(server.process.pid) - begun < 96 << 10


@pytest.mark.parametrize(
    "first", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"PRI * HTTP/2.0\r\n", b"P"], ids=repr
)
def test_silent_clients_time_out(server, first):
    """Slowloris: a connection has only seconds to complete a request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        line.sendall(first)
        begun = time.monotonic()
        while line.recv(4096):
            pass
        assert time.monotonic() - begun < PATIENCE - 10


def test_slow_clients_time_out(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        begun, closed = time.monotonic(), False
        for byte in b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: aaaaaaaaaaaaaa":
            try:
                line.sendall(bytes([byte]))
                line.settimeout(0.5)
                closed = line.recv(1) == b""
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                closed = True
            if closed:
                break
        assert closed and time.monotonic() - begun < PATIENCE - 10


def test_clients_may_be_idle_between_requests_but_not_within_one(server):
    """Idle connections are kept; one that starts a request's head must complete it."""
    ask = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        for _ in range(2):
            line.sendall(ask)
            assert line.recv(4096).startswith(b"HTTP/1.1 204")
            # Longer than the timeout of a head.
            time.sleep(6)
        line.sendall(ask[:-2])
        begun = time.monotonic()
        assert line.recv(4096)[:12] in (b"", b"HTTP/1.1 408")
        assert time.monotonic() - begun < PATIENCE - 10


def test_a_thousand_idle_connections_do_not_block_others(server, target):
    before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    lines = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(1000)]
    try:
        for _ in range(5):
            begun = time.monotonic()
            assert Call(server, timeout=PATIENCE).get("/health")[0] == 204
            assert time.monotonic() - begun < PATIENCE
        assert target.commands.run("echo served").stdout == "served\n"
    finally:
        for line in lines:
            line.close()
    descriptors = lambda: len(os.listdir(f"/proc/{server.process.pid}/fd"))  # noqa: E731
    wait_until(lambda: descriptors() < before + 50, 60, "the descriptors to be given back")


def test_slow_bodies_at_the_gateway_do_not_block_others(server, target):
    """Incomplete uploads to one sandbox do not block other requests to it, or the API."""
    start = b"POST /slow HTTP/1.1\r\n" + head(target) + b"Content-Length: 1000\r\n\r\nx"
    lines = []
    try:
        for _ in range(100):
            line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            line.sendall(start)
            lines.append(line)
        status, answer = Call(server, None, timeout=PATIENCE).get(
            "/q", headers={"E2b-Sandbox-Id": target.sandbox_id, "E2b-Sandbox-Port": "8002"}
        )
        assert status == 200, answer
    finally:
        for line in lines:
            line.close()


def test_endless_answers_are_not_buffered(server, target):
    """Ten clients do not read a port's flood: the server does not buffer it."""
    target.files.write("/tmp/flood.py", (
        "import socket\n"
        "s=socket.create_server(('0.0.0.0',8003),backlog=64)\n"
        "import threading\n"
        "def go(c):\n"
        " c.recv(65536); c.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n')\n"
        " try:\n"
        "  while True: c.sendall(b'x'*65536)\n"
        " except OSError: pass\n"
        "while True: threading.Thread(target=go,args=(s.accept()[0],),daemon=True).start()\n"
    ))
    flood = target.commands.run("python3 /tmp/flood.py", background=True)
    target.commands.run("for n in $(seq 600); do (: </dev/tcp/127.0.0.1/8003) 2>/dev/null && break; sleep .1; done")
    port = {"E2b-Sandbox-Id": target.sandbox_id, "E2b-Sandbox-Port": "8003"}
    begun, lines = resident_kib(server.process.pid), []
    try:
        for _ in range(10):
            line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + "".join(f"{k}: {v}\r\n" for k, v in port.items()).encode() + b"\r\n")
            assert line.recv(16).startswith(b"HTTP/1.1 200")
            lines.append(line)
        threading.Event().wait(1)
        assert resident_kib(server.process.pid) - begun < 64 << 10
    finally:
        for line in lines:
            line.close()
        flood.kill()


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x00" * 1000, b"HTTP/1.1 999999 X\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nabcde",
     b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1_000_000, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
     b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n"],
    ids=lambda answer: repr(answer[:30]),
)
def test_malformed_answers_harm_nothing(server, target, answer):
    target.files.write("/tmp/answer", answer)
    target.files.write("/tmp/liar.py", (
        "import socket\n"
        "s=socket.socket(); s.setsockopt(1,2,1); s.bind(('0.0.0.0',8004)); s.listen(8)\n"
        "a=open('/tmp/answer','rb').read()\n"
        "for _ in range(2):\n"
        " c=s.accept()[0]; c.recv(65536); c.sendall(a); c.close()\n"
    ))
    liar = target.commands.run("python3 /tmp/liar.py", background=True)
    try:
        heard = talk(server, b"GET / HTTP/1.1\r\n" + head(target, 8004) + b"Connection: close\r\n\r\n")
        assert len(heard) < 4 << 20
        assert all(status in (200, 502) for status in answers(heard)), heard[:200]
        assert Call(server).get("/health")[0] == 204
    finally:
        liar.kill()


def test_a_page_of_another_origin_gets_no_credentials(server, target):
    """Cookies, which a browser sends by itself, grant nothing; a page does not have what does."""
    request = (
        b"GET /process.Process/Start HTTP/1.1\r\n" + head(target, 49983) +
        b"Origin: https://evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Cookie: token=1\r\n\r\n"
    )
    assert answers(talk(server, request, PATIENCE))[0] == 401
    status = Call(server, None).get(
        "/sandboxes", headers={"Origin": "https://evil.example", "Cookie": f"X-API-Key={server.key}"}
    )[0]
    assert status == 401
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        line.sendall(b"OPTIONS /sandboxes HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n"
                     b"Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n")
        heard = b""
        while piece := line.recv(4096):
            heard += piece
    assert b"access-control-allow-credentials" not in heard.lower()


def test_parallel_creates_do_not_exceed_a_limit(server):
    """Fifty concurrent creates of one tenant that disconnect: another tenant is still served."""
    def abandon(_):
        line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        body = json.dumps({"templateID": SMALL, "timeout": 20, "metadata": {"shoal/runtime": "runc"}}).encode()
        line.sendall(
            f"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {server.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        line.close()

    before = set(Call(server).ids())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(abandon, range(50)))
    begun = time.monotonic()
    assert Call(server, "other", timeout=PATIENCE).get("/v2/sandboxes")[0] == 200
    assert time.monotonic() - begun < PATIENCE
    # Sandboxes without a client can be killed, or end at their deadline.
    def cleared() -> bool:
        for sandbox in set(Call(server).ids()) - before:
            Call(server).delete(f"/sandboxes/{sandbox}")
        return set(Call(server).ids()) <= before
    wait_until(cleared, 240, "the abandoned sandboxes to end")
