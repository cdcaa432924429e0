"""Forwarding by the gateway: requests and responses unchanged, without delay, until the end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os

import httpx
import pytest
import websockets
from e2b import Sandbox

#: A server with every feature: responses echo the request; it also has WebSockets and streams.
INSIDE = r'''
import asyncio, base64, hashlib, json, signal, socket

OPEN = set()

def push():
    for writer in OPEN:
        writer.write(b"\x81\x04push")

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
                    # Sends the next one only after the last was seen outside.
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
    except asyncio.IncompleteReadError:
        pass
    except ConnectionError as error:
        with open("/tmp/broken", "a") as broken:
            broken.write(f"{error!r}\n")
    finally:
        writer.close()

async def websocket(reader, writer, headers):
    key = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    writer.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  f"Sec-WebSocket-Accept: {accept}\r\n\r\n").encode())
    OPEN.add(writer)
    try:
        await echo(reader, writer)
    finally:
        OPEN.discard(writer)

async def echo(reader, writer):
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
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, push)
    for host, port in (("0.0.0.0", 8000), ("127.0.0.1", 8001)):
        await asyncio.start_server(handle, host, port, limit=1 << 20)
    both = socket.create_server(("::", 8002), family=socket.AF_INET6, dualstack_ipv6=True)
    await asyncio.start_server(handle, sock=both, limit=1 << 20)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
'''


def begin(sandbox: Sandbox) -> None:
    """Starts the server inside, and waits until it listens."""
    sandbox.files.write("site.py", INSIDE)
    handle = sandbox.commands.run("python3 site.py", background=True, timeout=0)
    next(out for out, _, _ in handle if out and "ready" in out)


@pytest.fixture(scope="module")
def site(shared, runtime):
    made = Sandbox.create(metadata={"shoal/runtime": runtime}, timeout=600, **shared.options())
    begin(made)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def client(shared, site):
    """Calls that address the sandbox with headers."""
    with httpx.Client(base_url=shared.url, timeout=60) as http:

        def call(method: str, path: str, port: int = 8000, **more) -> httpx.Response:
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


@pytest.mark.parametrize("port", [8000, 8001, 8002])
def test_wherever_it_listens(client, port):
    """Also for servers on loopback only, and on `::`."""
    assert client("GET", "/", port=port).status_code == 200


def test_the_host_form_of_old_clients(shared, site):
    host = f"8000-{site.sandbox_id}-6532622b.example.com:1234"
    assert httpx.get(shared.url, headers={"Host": host}, timeout=60).status_code == 200


@pytest.mark.parametrize("status", [200, 201, 204, 301, 400, 404, 418, 500, 502, 503])
def test_statuses_come_through(client, status):
    answer = client("GET", f"/status/{status}")
    assert answer.status_code == status and answer.headers["x-own"] == "yes"


def test_a_large_body_both_ways(client):
    body = os.urandom(1 << 20) * 32
    said = client("POST", "/", content=body).json()
    assert (said["size"], said["sha"]) == (len(body), hashlib.sha256(body).hexdigest())


def test_a_chunked_body(client):
    said = client("POST", "/", content=(bytes(1000) for _ in range(100))).json()
    assert said["size"] == 100_000 and said["headers"]["transfer-encoding"] == "chunked"


def test_server_sent_events_come_one_by_one(shared, site, client):
    headers = {"E2b-Sandbox-Id": site.sandbox_id, "E2b-Sandbox-Port": "8000"}
    seen = []
    with httpx.stream("GET", f"{shared.url}/events", headers=headers, timeout=60) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line.startswith("data:"):
                seen.append(line)
                client("GET", "/seen")
    assert seen == [f"data: tick {n}" for n in range(5)]


async def test_a_websocket(shared, site):
    url = f"ws://127.0.0.1:{shared.port}/socket"
    headers = {"E2b-Sandbox-Id": site.sandbox_id, "E2b-Sandbox-Port": "8000"}
    async with websockets.connect(url, additional_headers=headers, open_timeout=60) as socket:
        for message in ("hello", "ä" * 1000, b"\0\1\2" * 9000):
            await socket.send(message)
            assert await asyncio.wait_for(socket.recv(), 60) == message


async def test_a_websocket_is_cut_when_the_sandbox_ends(shared, runtime):
    box = Sandbox.create(metadata={"shoal/runtime": runtime}, timeout=300, **shared.options())
    begin(box)
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000"}
    address = f"ws://127.0.0.1:{shared.port}/"
    async with websockets.connect(address, additional_headers=headers, open_timeout=60) as socket:
        await socket.send("x")
        assert await socket.recv() == "x"
        box.kill()
        with pytest.raises(websockets.ConnectionClosed):
            await asyncio.wait_for(socket.recv(), 60)


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


def test_the_daemons_own_routes_are_not_for_clients(client):
    answer = client("POST", "/init", port=49983, content=b"{}")
    assert answer.status_code == 404 and answer.json()["code"] == 404


def test_many_at_once(shared, site):
    async def all_of_them():
        headers = {"E2b-Sandbox-Id": site.sandbox_id, "E2b-Sandbox-Port": "8000"}
        async with httpx.AsyncClient(base_url=shared.url, headers=headers, timeout=60) as http:
            return await asyncio.gather(*(http.get(f"/{n}") for n in range(100)))

    answers = asyncio.run(all_of_them())
    assert [json.loads(one.text)["path"] for one in answers] == [f"/{n}" for n in range(100)]
