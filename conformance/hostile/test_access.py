"""Keys and tokens that end, names across tenants, registries of tenants, and log flooding."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from e2b import Sandbox
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from ..installation import wait_until
from .conftest import create, furnished
from .fake_internet import HOST, NAMESPACE, inside
from .machine import Call, run

NATIVE = "/api/v1"


@pytest.fixture
def minted(server):
    """Creates keys of a team, which are deleted at the end if they still exist."""
    admin, made = Call(server), []

    def mint(team: str) -> tuple[str, str]:
        status, answer = admin.post(f"{NATIVE}/keys", {"name": "short-lived", "team": team})
        assert status == 201, answer
        made.append(answer["data"]["id"])
        return answer["data"]["id"], answer["data"]["secret"]

    yield mint
    for key in made:
        admin.delete(f"{NATIVE}/keys/{key}")


# --- names of templates ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def squatter(server):
    """A team that publishes templates with misleading names."""
    server.add_team("squatter")
    call = Call(server, "squatter")
    made = []
    for name in ("pytools", "code-interpreter-v2", "bsae"):
        status, begun = call.post("/v3/templates", {"name": name})
        assert status == 202, begun
        made.append(begun["templateID"])
        build = f"/templates/{begun['templateID']}/builds/{begun['buildID']}"
        assert call.post(f"/v2{build}", {"fromTemplate": "base"})[0] == 202
        wait_until(lambda build=build: call.get(f"{build}/status")[1]["status"] == "ready", 120, "the build's end")
        assert call("PATCH", f"/templates/{name}", {"public": True})[0] == 200
    yield call
    for template in made:
        call.delete(f"/templates/{template}")


def test_a_name_never_means_another_teams_template(server, squatter):
    victim = Call(server, "other")
    unknown = victim.post("/v2/sandboxes", {"templateID": "no-such-name"})
    for name in ("pytools", "pytools:default", "bsae", "code-interpreter-v2", "other/pytools", "default/pytools"):
        status, answer = victim.post("/v2/sandboxes", {"templateID": name})
        assert status == unknown[0] == 404, (name, answer)
        assert str(answer).replace(name, "X") == str(unknown[1]).replace("no-such-name", "X")
        bare = name.replace("/", "%2F")
        for path in (f"/templates/{bare}", f"/templates/{bare}/tags", f"/templates/aliases/{bare}"):
            assert victim.get(path)[0] == 404, path
    begun = victim.post("/v3/templates", {"name": "stands-on-a-typo"})[1]
    build = f"/templates/{begun['templateID']}/builds/{begun['buildID']}"
    assert victim.post(f"/v2{build}", {"fromTemplate": "pytools"})[0] == 202
    wait_until(lambda: victim.get(f"{build}/status")[1]["status"] == "error", 60, "the build's end")
    victim.delete(f"/templates/{begun['templateID']}")
    # The team's own namespace selects its template, and the list shows which one that is.
    status, made = victim.post("/v2/sandboxes", {"templateID": "squatter/pytools", "timeout": 60})
    assert status == 201, made
    victim.delete(f"/sandboxes/{made['sandboxID']}")
    assert victim.get("/templates/aliases/squatter%2Fpytools")[0] == 200
    assert ["squatter/pytools"] in [one["names"] for one in victim.get("/templates")[1]]


# --- what a stranger leaves in a log -----------------------------------------------------------


def test_a_stranger_cannot_push_a_tenants_entries_out_of_the_log(server):
    sandbox = create(server, "runc", team="other", timeout=600)
    try:
        run(sandbox, "echo first-word-of-the-tenant")
        call = Call(server, "other")
        path = f"/v2/sandboxes/{sandbox.sandbox_id}/logs?limit=1000"
        wait_until(lambda: "first-word-of-the-tenant" in str(call.get(path)[1]), 60, "the tenant's entry")
        long = "/" + "x" * 6000
        head = f"GET {long} HTTP/1.1\r\nHost: 49983-{sandbox.sandbox_id}.e2b.app\r\n\r\n".encode()
        batch, asked = 100, 0
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
            answers = stranger.makefile("rb")
            for _ in range(110):
                stranger.sendall(head * batch)
                for _ in range(batch):
                    status = answers.readline()
                    assert b" 401 " in status, status
                    length = 0
                    while (line := answers.readline()) not in (b"\r\n", b""):
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    answers.read(length)
                    asked += 1
        assert asked == 11_000
        run(sandbox, "echo last-word-of-the-tenant")
        wait_until(lambda: "last-word-of-the-tenant" in str(call.get(path)[1]), 60, "the tenant's entry")
        logs = call.get(path)[1]["logs"]
        assert "first-word-of-the-tenant" in str(logs)
        refused = [entry for entry in logs if entry["message"].startswith("refused")]
        assert 1 <= len(refused) <= 10, len(refused)
        assert all(len(json.dumps(entry)) < 1000 for entry in refused)
    finally:
        sandbox.kill()


# --- keys that are deleted ---------------------------------------------------------------------


def test_deleting_a_key_ends_its_terminals(server, minted):
    sandbox = create(server, "runc", team="other", timeout=600)
    try:
        key, secret = minted("other")
        address = server.url.replace("http", "ws", 1) + f"{NATIVE}/terminal/sandbox/{sandbox.sandbox_id}/ws"
        headers = {"X-API-Key": secret}
        with connect(address, additional_headers=headers, open_timeout=30) as socket_, \
                connect(address, additional_headers=headers, open_timeout=30) as silent:
            socket_.send(json.dumps({"type": "init", "cols": 80, "rows": 24}))
            socket_.send(json.dumps({"type": "input", "data": "touch /tmp/before\n"}))
            wait_until(lambda: run(sandbox, "test -e /tmp/before").code == 0, 60, "the first line")
            assert Call(server).delete(f"{NATIVE}/keys/{key}")[0] == 200
            for one in (socket_, silent):
                with pytest.raises(ConnectionClosed):
                    one.send(json.dumps({"type": "init"}))
                    one.send(json.dumps({"type": "input", "data": "touch /tmp/after\n"}))
                    while True:
                        one.recv(timeout=60)
        # The shell has ended too.
        assert run(sandbox, "test -e /tmp/after").code != 0
        programs = "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
        wait_until(lambda: "-il" not in run(sandbox, programs).out.split(), 60, "the shell's end")
    finally:
        sandbox.kill()


def test_deleting_a_key_ends_its_streams(server, minted):
    sandbox = create(server, "runc", team="other", timeout=600)
    try:
        key, secret = minted("other")
        program = (
            "import http.server,time\n"
            "class H(http.server.BaseHTTPRequestHandler):\n"
            "  def do_GET(self):\n"
            "    self.send_response(200); self.end_headers()\n"
            "    while True: self.wfile.write(b'tick\\n'); self.wfile.flush(); time.sleep(.2)\n"
            "http.server.ThreadingHTTPServer(('', 8080), H).serve_forever()\n"
        )
        sandbox.files.write("/tmp/server.py", program)
        sandbox.commands.run("python3 /tmp/server.py", background=True)
        listening = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8080))'"
        wait_until(lambda: run(sandbox, listening).code == 0, 60, "the server inside")
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as opened:
            head = f"GET /sandbox/{sandbox.sandbox_id}/?port=8080 HTTP/1.1\r\nHost: x\r\nX-API-Key: {secret}\r\n\r\n"
            opened.sendall(head.encode())
            seen = b""
            while b"tick" not in seen:
                seen += opened.recv(4096)
            assert Call(server).delete(f"{NATIVE}/keys/{key}")[0] == 200
            # With a timeout of its own: `recv` fails when the connection neither closes nor sends.
            for _ in range(200):
                try:
                    if not opened.recv(4096):
                        break
                except ConnectionResetError:
                    break
            else:
                pytest.fail("the stream continues")
    finally:
        sandbox.kill()


# --- registries that tenants name --------------------------------------------------------------

#: A registry at a public-looking address that redirects to where only this machine gets.
REGISTRY = """
import http.server, sys
target = sys.argv[1]
class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        repository = self.path.split("/")[2]
        if repository == "redirects":
            self.send_response(307)
            self.send_header("Location", f"http://{target}/stolen")
        elif repository == "asks":
            self.send_response(401)
            self.send_header("WWW-Authenticate", f'Bearer realm="http://{target}/token",service="x"')
        else:
            self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("198.51.100.7", 5000), Registry).serve_forever()
"""


@pytest.fixture
def listener():
    """A listener on every address of this machine, which must receive nothing."""
    with socket.create_server(("0.0.0.0", 0)) as made:
        made.settimeout(0.2)
        yield made


def test_tenants_registries_are_contacted_at_public_addresses_only(scratch, internet, listener):
    port = listener.getsockname()[1]
    public, plain = "198.51.100.7:5000", ["198.51.100.7:5000", "10.200.0.5:7777", f"203.0.113.1:{port}"]
    settings = ["templates.custom_images=any", f"images.plain_http={','.join(plain)}"]
    command = inside(NAMESPACE, sys.executable, "-c", REGISTRY, f"{HOST}:{port}")
    with furnished(scratch, "registries", *settings) as server:
        registry = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            tenant = Call(server, "other")
            wait_until(lambda: reaches("198.51.100.7", 5000), 60, "the registry")

            def told(image: str) -> str:
                status, answer = tenant.post("/v2/sandboxes", {"image": image, "timeout": 60})
                assert status >= 400, answer
                return f"{status} {answer['message']}".replace(image, "IMAGE").replace(image.split("/")[0], "HOST")

            # The request arrives, so the machine can reach it.
            assert told(f"{public}/nothing").startswith("404")
            hosts = [
                "127.0.0.1:1", f"127.0.0.1:{port}", f"localhost:{port}", f"127.1:{port}", f"2130706433:{port}",
                f"{HOST}:{port}", "10.200.0.5:7777", "10.200.0.5:1", "169.254.169.254:80",
            ]
            answers = {told(f"{host}/x") for host in hosts}
            assert len(answers) == 1, answers
            for repository in ("redirects", "asks"):
                assert "HOST" in told(f"{public}/{repository}")
            with pytest.raises(TimeoutError):
                listener.accept()
        finally:
            registry.kill()
            registry.wait(10)


def reaches(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


# --- tokens that are rotated -------------------------------------------------------------------


def reads(server, sandbox_id: str, token: str) -> int:
    headers = {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": "49983", "X-Access-Token": token}
    return Call(server, None).get("/files?path=/home/user/mine.txt", headers=headers)[0]


def test_after_a_rotation_only_the_new_token_works(server, runtime):
    sandbox = create(server, runtime, team="other", timeout=600)
    call, old = Call(server, "other"), sandbox._envd_access_token
    name = sandbox.sandbox_id
    try:
        sandbox.files.write("mine.txt", "mine")
        link = sandbox.download_url("mine.txt").split("/files", 1)[1]
        of_port = {"E2b-Sandbox-Id": name, "E2b-Sandbox-Port": "49983"}
        stranger = Call(server, None)
        assert reads(server, name, old) == 200
        assert stranger.get(f"/files{link}", headers=of_port)[0] == 200
        # Only its team can rotate it; the token alone does not suffice.
        path = f"{NATIVE}/sandbox/{name}/rotate-token"
        assert Call(server).post(path)[0] == 404
        assert stranger.post(path, headers={"X-Access-Token": old})[0] == 401
        head = (
            f"POST /process.Process/Start HTTP/1.1\r\nHost: 49983-{name}.e2b.app\r\nX-Access-Token: {old}\r\n"
            "Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\n"
        )
        started = json.dumps({"process": {"cmd": "sleep", "args": ["300"]}}).encode()
        body = b"\0" + len(started).to_bytes(4, "big") + started
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as opened:
            opened.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            seen = b""
            while b"start" not in seen:
                seen += opened.recv(4096)
            status, answer = call.post(path)
            assert status == 200, answer
            for _ in range(200):
                try:
                    if not opened.recv(4096):
                        break
                except ConnectionResetError:
                    break
            else:
                pytest.fail("the stream continues")
        new = answer["data"]["envdAccessToken"]
        assert new != old and call.get(f"/sandboxes/{name}")[1]["envdAccessToken"] == new
        assert reads(server, name, old) == 401 and reads(server, name, new) == 200
        for headers in (of_port, {}):
            assert stranger.get(f"/files{link}", headers=headers)[0] in (401, 404)
        again = Sandbox.connect(name, **server.options("other"))
        assert again.files.read("mine.txt") == "mine"
        if runtime == "runsc":
            # The resumed sandbox has the new one.
            assert call.post(f"/sandboxes/{name}/pause", {})[0] == 204
            assert call.post(path)[0] == 409
            assert call.post(f"/sandboxes/{name}/connect", {"timeout": 600})[0] in (200, 201)
            assert reads(server, name, old) == 401 and reads(server, name, new) == 200
            forks = call.post(f"/sandboxes/{name}/fork", {"timeout": 60})[1]
            clone = forks[0]["sandbox"]
            assert reads(server, clone["sandboxID"], new) == 401
            assert reads(server, clone["sandboxID"], clone["envdAccessToken"]) == 200
            call.delete(f"/sandboxes/{clone['sandboxID']}")
    finally:
        call.delete(f"/sandboxes/{name}")
