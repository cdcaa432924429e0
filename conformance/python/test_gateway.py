"""What runs inside is reached from outside: HTTP, WebSocket, server-sent events; and when not."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
import websockets
from e2b import Sandbox

from .halves import done, eventually

#: A server with everything: answers say what came in; it also speaks WebSocket and streams.
INSIDE = r'''
import asyncio, base64, hashlib, json, sys

async def handle(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            method, path, _ = first.split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (l.partition(":") for l in lines if l)}
            if "sec-websocket-key" in headers:
                return await websocket(reader, writer, headers)
            body = b""
            if headers.get("transfer-encoding") == "chunked":
                while size := int((await reader.readline()).split(b";")[0], 16):
                    body += await reader.readexactly(size)
                    await reader.readline()
                await reader.readline()
            elif "content-length" in headers:
                body = await reader.readexactly(int(headers["content-length"]))
            if path.startswith("/events"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                for n in range(5):
                    event = f"id: {n}\ndata: tick {n}\n\n".encode()
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    await writer.drain()
                    # The next one only when the last was seen outside.
                    await SEEN.get()
                writer.write(b"0\r\n\r\n")
            elif path.startswith("/seen"):
                SEEN.put_nowait(1)
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            elif path.startswith("/status/"):
                writer.write(f"HTTP/1.1 {path[8:]} Odd\r\nContent-Length: 3\r\nX-Own: yes\r\n\r\nodd".encode())
            else:
                said = {"method": method, "path": path, "headers": headers, "size": len(body),
                        "sha": hashlib.sha256(body).hexdigest()}
                out = json.dumps(said).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(out))
                writer.write(b"" if method == "HEAD" else out)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()

async def websocket(reader, writer, headers):
    key = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    writer.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  f"Sec-WebSocket-Accept: {accept}\r\n\r\n").encode())
    while True:
        one, two = await reader.readexactly(2)
        size = two & 127
        if size == 126: size = int.from_bytes(await reader.readexactly(2), "big")
        elif size == 127: size = int.from_bytes(await reader.readexactly(8), "big")
        mask = await reader.readexactly(4)
        data = bytes(b ^ mask[n % 4] for n, b in enumerate(await reader.readexactly(size)))
        out = bytes([one]) + (bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")) + data
        writer.write(out)
        await writer.drain()
        if one & 15 == 8:
            return writer.close()

async def main():
    global SEEN
    SEEN = asyncio.Queue()
    for host, port in (("0.0.0.0", 8000), ("127.0.0.1", 8001), ("::1", 8002), ("::", 8003)):
        try: await asyncio.start_server(handle, host, port, limit=1 << 20)
        except OSError as error: print(host, error, flush=True)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
'''


@pytest.fixture(scope="module")
def site(sandbox):
    """The server inside runs."""
    sandbox.files.write("site.py", INSIDE)
    handle = sandbox.commands.run("python3 site.py", background=True, timeout=0)
    for out, _, _ in handle:
        if out and "ready" in out:
            break
    return sandbox


@pytest.fixture
def client(server, site):
    """A client that names the sandbox with headers; `port` is a parameter of its calls."""
    with httpx.Client(base_url=server.url, timeout=30) as http:

        def call(method: str, path: str, port: int = 8000, **more):
            headers = {"E2b-Sandbox-Id": site.sandbox_id, "E2b-Sandbox-Port": str(port)} | more.pop("headers", {})
            return http.request(method, path, headers=headers, **more)

        yield call


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method(client, method):
    answer = client(method, "/a%2Fb/c?x=1&y=%20", content=b"body")
    assert answer.status_code == 200
    said = answer.json()
    assert (said["method"], said["path"], said["size"]) == (method, "/a%2Fb/c?x=1&y=%20", 4)


def test_head(client):
    answer = client("HEAD", "/")
    assert answer.status_code == 200 and int(answer.headers["content-length"]) > 0 and answer.content == b""


@pytest.mark.parametrize("port", [8000, 8001, 8002, 8003])
def test_wherever_it_listens(client, port):
    """Also on loopback alone."""
    assert client("GET", "/", port=port).status_code == 200


def test_the_host_form(site, server):
    answer = httpx.get(f"{server.url}/x", headers={"Host": site.get_host(8000)})
    assert answer.status_code == 200
    assert answer.json()["headers"]["host"] == site.get_host(8000)


def test_the_host_form_of_old_clients(site, server):
    host = f"8000-{site.sandbox_id}-6532622b.example.com:1234"
    assert httpx.get(server.url, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("status", [200, 201, 204, 301, 400, 404, 418, 500, 502, 503])
def test_statuses_come_through(client, status):
    answer = client("GET", f"/status/{status}")
    assert answer.status_code == status and answer.headers["x-own"] == "yes"


def test_a_large_body_both_ways(client):
    import hashlib
    import os

    body = os.urandom(1 << 20) * 32
    said = client("POST", "/", content=body).json()
    assert (said["size"], said["sha"]) == (len(body), hashlib.sha256(body).hexdigest())


def test_a_chunked_body(client):
    said = client("POST", "/", content=(bytes(1000) for _ in range(100))).json()
    assert said["size"] == 100_000 and said["headers"]["transfer-encoding"] == "chunked"


def test_server_sent_events_come_one_by_one(server, site, client):
    headers = {"E2b-Sandbox-Id": site.sandbox_id, "E2b-Sandbox-Port": "8000"}
    seen = []
    with httpx.stream("GET", f"{server.url}/events", headers=headers, timeout=20) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line.startswith("data:"):
                seen.append(line)
                client("GET", "/seen")
    assert seen == [f"data: tick {n}" for n in range(5)]


async def test_a_websocket(server, site):
    url = f"ws://127.0.0.1:{server.port}/socket"
    headers = {"E2b-Sandbox-Id": site.sandbox_id, "E2b-Sandbox-Port": "8000"}
    async with websockets.connect(url, additional_headers=headers) as socket:
        for message in ("hello", "ä" * 1000, b"\0\1\2" * 9000):
            await socket.send(message)
            assert await asyncio.wait_for(socket.recv(), 10) == message


async def test_a_websocket_is_cut_when_the_sandbox_ends(server, options):
    box = Sandbox.create(timeout=60, **options)
    box.files.write("site.py", INSIDE)
    handle = box.commands.run("python3 site.py", background=True, timeout=0)
    next(out for out, _, _ in handle if out and "ready" in out)
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000"}
    async with websockets.connect(f"ws://127.0.0.1:{server.port}/", additional_headers=headers) as socket:
        await socket.send("x")
        assert await socket.recv() == "x"
        box.kill()
        with pytest.raises(websockets.ConnectionClosed):
            await asyncio.wait_for(socket.recv(), 10)


def test_a_closed_port(client, site):
    answer = client("GET", "/", port=9)
    assert answer.status_code == 502 and answer.headers["content-type"].startswith("application/json")
    assert answer.json() == {
        "sandboxId": site.sandbox_id, "message": "The sandbox is running but port is not open", "port": 9, "code": 502
    }


def test_a_sandbox_that_is_not_there(client):
    answer = client("GET", "/", headers={"E2b-Sandbox-Id": "inosuchsandbox0000000"})
    assert answer.status_code == 502
    assert answer.json() == {
        "sandboxId": "inosuchsandbox0000000", "message": "The sandbox was not found", "code": 502
    }


BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36"


def test_a_browser_gets_a_page(client, site):
    answer = client("GET", "/", port=9, headers={"User-Agent": BROWSER, "Accept": "text/html"})
    assert answer.status_code == 502 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.lstrip().lower().startswith("<html") and answer.text.rstrip().endswith("</html>")
    assert site.sandbox_id in answer.text and "no service running on port" in answer.text


@pytest.mark.parametrize(
    "headers, text",
    [
        ({"E2b-Sandbox-Port": ""}, "port"), ({"E2b-Sandbox-Port": "0"}, "port"),
        ({"E2b-Sandbox-Port": "65536"}, "port"), ({"E2b-Sandbox-Port": "http"}, "port"),
        ({"E2b-Sandbox-Id": "UPPER/../x"}, "id"),
    ],
)
def test_headers_that_name_nothing(client, headers, text):
    answer = client("GET", "/", headers=headers)
    assert answer.status_code == 400 and text in answer.text.lower()


def test_one_header_without_the_other(server, sandbox):
    for header in ({"E2b-Sandbox-Id": sandbox.sandbox_id}, {"E2b-Sandbox-Port": "8000"}):
        answer = httpx.get(server.url, headers=header)
        assert answer.status_code == 400 and "missing header" in answer.text.lower()


def test_the_daemons_own_routes_are_not_for_clients(client):
    answer = client("POST", "/init", port=49983, content=b"{}")
    assert answer.status_code == 404 and answer.json()["code"] == 404


async def test_traffic_that_is_not_public(sdk, options, server):
    box = await done(sdk.create(network={"allow_public_traffic": False}, timeout=100, **options))
    try:
        assert box.traffic_access_token
        await done(box.files.write("site.py", INSIDE))
        handle = await done(box.commands.run("python3 site.py", background=True, timeout=0))
        named = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000"}
        right = {"e2b-traffic-access-token": box.traffic_access_token}

        def up():
            return httpx.get(server.url, headers=named | right).status_code == 200

        await eventually(up, "the server inside")
        for header, part in (({}, "is missing"), ({"e2b-traffic-access-token": "wrong"}, "is invalid")):
            answer = httpx.get(server.url, headers=named | header)
            assert answer.status_code == 403 and answer.json()["code"] == 403
            assert "e2b-traffic-access-token" in answer.json()["message"] and part in answer.json()["message"]
        await done(handle.kill())
    finally:
        await done(box.kill())


async def test_the_host_that_is_shown_inside(sdk, options, server):
    box = await done(sdk.create(network={"mask_request_host": "${PORT}-mine.example.com"}, timeout=100, **options))
    try:
        await done(box.files.write("site.py", INSIDE))
        await done(box.commands.run("python3 site.py", background=True, timeout=0))
        named = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000"}

        def up():
            answer = httpx.get(server.url, headers=named)
            return answer if answer.status_code == 200 else None

        said = (await eventually(up, "the server inside")).json()["headers"]
        assert said["host"] == said["x-forwarded-host"] == "8000-mine.example.com"
        # The daemon does not see it: the SDK goes on.
        assert (await done(box.commands.run("echo hi"))).stdout == "hi\n"
    finally:
        await done(box.kill())


def test_a_server_that_starts_late_is_waited_for(client, site):
    """The first request comes while the port is about to open."""
    site.commands.run("sleep 0.3; exec python3 -m http.server 8555 --bind 127.0.0.1", background=True, timeout=0)
    assert client("GET", "/", port=8555).status_code in (200, 502)


def test_many_at_once(server, site):
    async def all_of_them():
        headers = {"E2b-Sandbox-Id": site.sandbox_id, "E2b-Sandbox-Port": "8000"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30) as http:
            return await asyncio.gather(*(http.get(f"/{n}") for n in range(100)))

    answers = asyncio.run(all_of_them())
    assert [json.loads(one.text)["path"] for one in answers] == [f"/{n}" for n in range(100)]
