"""Access without the SDK: signed URLs of files, and the ports of a sandbox."""

import asyncio
import hashlib

import httpx
import pytest
import websockets

from .conftest import done

#: Echoes requests, counts in server-sent events, and echoes over a WebSocket.
SERVER = r"""
import base64, hashlib, http.server, json, socketserver, struct, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): pass

    def say(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for n in range(3):
                # Sends the next event after the last was received.
                chunk = b"data: %d\n\n" % n
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk)); self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        elif self.headers.get("Upgrade", "").lower() == "websocket":
            accept = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
            self.send_response(101)
            self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept.digest()).decode())
            self.end_headers()
            head = self.rfile.read(2); size = head[1] & 127
            if size == 126: size = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([0x81, len(data)]) + data); self.wfile.flush()
            self.close_connection = True
        else:
            self.say(json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode())

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size); self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers["Content-Length"]))
        self.say(hashlib.sha256(data).hexdigest().encode(), "text/plain")

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

with Server((sys.argv[2], int(sys.argv[1])), Handler) as server:
    print("ready", flush=True)
    server.serve_forever()
"""


async def serve(sandbox, port=8000, address="0.0.0.0"):
    """Starts the server in a sandbox and waits until it listens."""
    await done(sandbox.files.write("/home/user/server.py", SERVER))
    log = f"/tmp/{port}.log"
    await done(sandbox.commands.run(f"touch {log}"))
    handle = await done(
        sandbox.commands.run(f"python3 server.py {port} {address} >{log} 2>&1", background=True, timeout=0)
    )
    await done(sandbox.commands.run(f"until grep -q . {log}; do sleep 0.05; done; grep -q ready {log}"))
    await done(handle.disconnect())


@pytest.fixture(scope="module")
async def serving(sandbox):
    await serve(sandbox)
    return sandbox


class Port:
    """A port of a sandbox, with the SDK's host name but without a resolver."""

    def __init__(self, sandbox, shared, port=8000):
        self.shared = shared
        self.host = sandbox.get_host(port)
        self.client = httpx.Client(base_url=shared.url, headers={"Host": self.host}, timeout=60)

    def get(self, path="/", **more):
        return self.client.get(path, **more)


async def test_a_host_is_named_as_e2b_does(sandbox):
    assert sandbox.get_host(8000) == f"8000-{sandbox.sandbox_id}.e2b.app"


async def test_a_port_is_reached_by_its_host(serving, shared):
    answer = Port(serving, shared).get("/some/path?and=query")
    assert answer.json()["path"] == "/some/path?and=query"
    assert answer.json()["headers"]["host"] == serving.get_host(8000)


async def test_a_port_is_reached_by_headers(serving, shared):
    headers = {"E2b-Sandbox-Id": serving.sandbox_id, "E2b-Sandbox-Port": "8000"}
    assert httpx.get(f"{shared.url}/x", headers=headers, timeout=60).json()["path"] == "/x"


async def test_half_of_the_headers_is_a_mistake(serving, shared):
    answer = httpx.get(shared.url, headers={"E2b-Sandbox-Id": serving.sandbox_id}, timeout=60)
    assert (answer.status_code, "missing header" in answer.text.lower()) == (400, True)


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
async def test_a_port_that_listens_on_loopback_is_reached(sandbox, shared, address):
    port = 8101 if address == "127.0.0.1" else 8102
    await serve(sandbox, port, address)
    for _ in range(100):
        answer = Port(sandbox, shared, port).get()
        if answer.status_code == 200:
            break
    assert answer.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_goes_through_whole(serving, shared, chunked):
    data = bytes(range(256)) * 20_000
    body = (data[at : at + 100_000] for at in range(0, len(data), 100_000)) if chunked else data
    answer = Port(serving, shared).client.post("/", content=body)
    assert answer.text == hashlib.sha256(data).hexdigest()


async def test_events_stream(serving, shared):
    with Port(serving, shared).client.stream("GET", "/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line for line in answer.iter_lines() if line]
    assert lines == ["data: 0", "data: 1", "data: 2"]


async def test_a_web_socket_goes_through(serving, shared):
    host = serving.get_host(8000)
    where = {"host": "127.0.0.1", "port": shared.port, "proxy": None}
    async with websockets.connect(f"ws://{host}/", open_timeout=60, **where) as socket:
        await socket.send("hello")
        assert await asyncio.wait_for(socket.recv(), 60) == "hello"


async def test_a_closed_port_says_so(sandbox, shared):
    answer = Port(sandbox, shared, 9).get()
    assert answer.status_code == 502
    assert answer.json() == {
        "sandboxId": sandbox.sandbox_id,
        "message": "The sandbox is running but port is not open",
        "port": 9,
        "code": 502,
    }


async def test_a_browser_is_told_in_html(sandbox, shared):
    browser = {"User-Agent": "Mozilla/5.0 AppleWebKit/537.36 Chrome/126.0 Safari/537.36", "Accept": "text/html"}
    answer = Port(sandbox, shared, 9).get(headers=browser)
    assert answer.status_code == 502
    assert answer.text.startswith("<html") and answer.text.rstrip().endswith("</html>")
    assert "no service running on port" in answer.text and sandbox.sandbox_id in answer.text


async def test_a_sandbox_that_is_not_there_says_so(shared):
    answer = httpx.get(shared.url, headers={"Host": "80-inothingofthatname000.e2b.app"}, timeout=60)
    assert (answer.status_code, answer.json()["message"]) == (502, "The sandbox was not found")


@pytest.mark.parametrize("host", ["0-iabc.e2b.app", "70000-iabc.e2b.app", "80-UPPER_case.e2b.app"])
async def test_a_host_that_cannot_be_is_refused(shared, host):
    assert httpx.get(shared.url, headers={"Host": host}, timeout=60).status_code in (400, 502)


async def test_a_private_port_wants_its_token(sdk, runtime, shared):
    made = await sdk.create(runtime=runtime, network={"allow_public_traffic": False})
    await serve(made)
    assert made.traffic_access_token
    port = Port(made, shared)
    denied = port.get()
    assert denied.status_code == 403 and "is missing" in denied.json()["message"]
    wrong = port.get(headers={"e2b-traffic-access-token": "wrong"})
    assert wrong.status_code == 403 and "is invalid" in wrong.json()["message"]
    right = port.get(headers={"e2b-traffic-access-token": made.traffic_access_token})
    assert right.status_code == 200
    assert (await done(made.commands.run("echo sdk"))).stdout == "sdk\n"
    await done(made.kill())


async def test_a_host_is_masked(sdk, runtime, shared):
    made = await sdk.create(runtime=runtime, network={"mask_request_host": "masked.example:${PORT}"})
    await serve(made)
    headers = Port(made, shared).get().json()["headers"]
    assert headers["host"] == "masked.example:8000"
    await done(made.kill())


async def test_a_link_reads_a_file(sandbox):
    await done(sandbox.files.write("linked file.txt", "linked"))
    assert httpx.get(sandbox.download_url("linked file.txt"), timeout=60).text == "linked"
    assert httpx.get(sandbox.download_url("/etc/hostname", user="root"), timeout=60).status_code == 200
    answer = httpx.get(sandbox.download_url("linked file.txt", use_signature_expiration=60), timeout=60)
    assert answer.text == "linked"


async def test_a_link_reads_a_part(sandbox):
    await done(sandbox.files.write("ranged.txt", "0123456789"))
    answer = httpx.get(sandbox.download_url("ranged.txt"), headers={"Range": "bytes=2-4"}, timeout=60)
    assert (answer.status_code, answer.text) == (206, "234")


async def test_a_link_writes_a_file(sandbox):
    for more in ({}, {"use_signature_expiration": 60}):
        url = sandbox.upload_url("uploaded.txt", **more)
        answer = httpx.post(url, files={"file": ("uploaded.txt", f"up{len(more)}")}, timeout=60)
        assert answer.status_code == 200, answer.text
        assert await done(sandbox.files.read("uploaded.txt")) == f"up{len(more)}"


async def test_a_link_whose_time_is_over_is_refused(sandbox):
    url = sandbox.download_url("/etc/hostname", use_signature_expiration=-10)
    answer = httpx.get(url, timeout=60)
    assert answer.status_code == 401
    assert answer.json() == {"code": 401, "message": "signature is already expired"}


async def test_a_link_is_good_for_what_it_says_and_no_more(sandbox):
    url = sandbox.download_url("/etc/hostname")
    assert httpx.get(url.replace("hostname", "passwd"), timeout=60).status_code == 404
    assert httpx.post(url, files={"file": ("x", "x")}, timeout=60).status_code == 404
    assert httpx.get(url.split("&signature")[0], timeout=60).status_code >= 400


async def test_the_daemon_wants_its_token(sandbox, shared):
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    url = f"{shared.url}/files?path=/etc/hostname"
    assert httpx.get(url, headers=headers, timeout=60).status_code == 401
    assert httpx.get(url, headers=headers | {"X-Access-Token": "wrong"}, timeout=60).status_code == 401
    assert httpx.get(f"{shared.url}/health", headers=headers, timeout=60).status_code == 204
