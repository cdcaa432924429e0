"""Who is heard for how long, whose name means what, and what a stranger can leave in a log."""

from __future__ import annotations

import json
import socket

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from ..installation import wait_until
from .conftest import create
from .machine import Call, run

NATIVE = "/api/v1"


@pytest.fixture
def minted(server):
    """Makes keys of a team that are deleted at the end, if they still are there."""
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
    """A team that publishes templates whose names look like other ones."""
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


def test_a_name_never_leads_to_a_strangers_template(server, squatter):
    victim = Call(server, "other")
    unknown = victim.post("/v2/sandboxes", {"templateID": "no-such-name"})
    for name in ("pytools", "pytools:default", "bsae", "code-interpreter-v2", "other/pytools", "default/pytools"):
        status, answer = victim.post("/v2/sandboxes", {"templateID": name})
        assert status == unknown[0] == 404, (name, answer)
        assert str(answer).replace(name.split(":")[0], "X") == str(unknown[1]).replace("no-such-name", "X")
        bare = name.replace("/", "%2F")
        for path in (f"/templates/{bare}", f"/templates/{bare}/tags", f"/templates/aliases/{bare}"):
            assert victim.get(path)[0] == 404, path
    begun = victim.post("/v3/templates", {"name": "stands-on-a-typo"})[1]
    build = f"/templates/{begun['templateID']}/builds/{begun['buildID']}"
    assert victim.post(f"/v2{build}", {"fromTemplate": "pytools"})[0] == 202
    wait_until(lambda: victim.get(f"{build}/status")[1]["status"] == "error", 30, "the build's end")
    victim.delete(f"/templates/{begun['templateID']}")
    # The team's own namespace leads there, and the list says which it is.
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
        wait_until(lambda: "first-word-of-the-tenant" in str(call.get(path)[1]), 20, "the tenant's entry")
        long = "/" + "x" * 6000
        head = f"GET {long} HTTP/1.1\r\nHost: 49983-{sandbox.sandbox_id}.e2b.app\r\n\r\n".encode()
        batch, asked = 100, 0
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
            answers = stranger.makefile("rb")
            for _ in range(110):
                for _ in range(batch):
                    stranger.sendall(head)
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
        wait_until(lambda: "last-word-of-the-tenant" in str(call.get(path)[1]), 20, "the tenant's entry")
        logs = call.get(path)[1]["logs"]
        assert "first-word-of-the-tenant" in str(logs)
        refused = [entry for entry in logs if entry["message"].startswith("refused")]
        assert 1 <= len(refused) <= 10, len(refused)
        assert all(len(json.dumps(entry)) < 1000 for entry in refused)
    finally:
        sandbox.kill()


# --- keys that are deleted ---------------------------------------------------------------------


def test_a_deleted_key_acts_no_more_in_an_open_terminal(server, minted):
    sandbox = create(server, "runc", team="other", timeout=600)
    try:
        key, secret = minted("other")
        address = server.url.replace("http", "ws", 1) + f"{NATIVE}/terminal/sandbox/{sandbox.sandbox_id}/ws"
        headers = {"X-API-Key": secret}
        with connect(address, additional_headers=headers, open_timeout=30) as socket_, \
                connect(address, additional_headers=headers, open_timeout=30) as silent:
            socket_.send(json.dumps({"type": "init", "cols": 80, "rows": 24}))
            socket_.send(json.dumps({"type": "input", "data": "touch /tmp/before\n"}))
            wait_until(lambda: run(sandbox, "test -e /tmp/before").code == 0, 20, "the first line")
            assert Call(server).delete(f"{NATIVE}/keys/{key}")[0] == 200
            for one in (socket_, silent):
                with pytest.raises(ConnectionClosed):
                    one.send(json.dumps({"type": "init"}))
                    one.send(json.dumps({"type": "input", "data": "touch /tmp/after\n"}))
                    while True:
                        one.recv(timeout=10)
        # The shell has ended with it.
        assert run(sandbox, "test -e /tmp/after").code != 0
        wait_until(lambda: "bash -il" not in run(sandbox, "ps -eo args | grep -v grep").out, 20, "the shell's end")
    finally:
        sandbox.kill()


def test_a_stream_that_a_key_opened_ends_with_the_key(server, minted):
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
        wait_until(lambda: run(sandbox, listening).code == 0, 20, "the server inside")
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as opened:
            head = f"GET /sandbox/{sandbox.sandbox_id}/?port=8080 HTTP/1.1\r\nHost: x\r\nX-API-Key: {secret}\r\n\r\n"
            opened.sendall(head.encode())
            seen = b""
            while b"tick" not in seen:
                seen += opened.recv(4096)
            assert Call(server).delete(f"{NATIVE}/keys/{key}")[0] == 200
            # With a bound of its own: `recv` fails when it neither ends nor says anything.
            for _ in range(200):
                try:
                    if not opened.recv(4096):
                        break
                except ConnectionResetError:
                    break
            else:
                pytest.fail("the stream goes on")
    finally:
        sandbox.kill()
