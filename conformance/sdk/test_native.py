"""Shoal's own sandbox routes, and path-based URLs of ports, as a client without an SDK."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

RUNTIMES = ("runsc", "runc")
NATIVE = "/api/v1"

SERVER = """
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (self.path + "\\n" + str(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), H).serve_forever()
"""


class Native:
    """Calls, with the contents of their envelopes."""

    def __init__(self, server, key: str | None = None):
        self.server, self.key = server, key or server.key
        headers = {"X-API-Key": self.key}
        self.http = httpx.Client(base_url=server.url, headers=headers, timeout=90)

    def __call__(self, method: str, path: str, expect: int = 200, **more):
        answer = self.http.request(method, NATIVE + path, **more)
        told = answer.json()
        assert answer.status_code == expect, told
        assert told["code"] == ("0" if expect < 400 else str(expect))
        return told["data"] if expect < 400 else told["error"]

    def run(self, name: str, command: str, **more) -> dict:
        return self("POST", f"/terminal/sandbox/{name}", json={"command": command} | more)

    def bash(self, name: str, command: str) -> str:
        ran = self.run(name, command)
        assert ran["exitCode"] == 0, ran
        return ran["output"]


@pytest.fixture(scope="module")
def native(shared):
    return Native(shared)


@pytest.fixture(scope="module", params=RUNTIMES)
def box(native, request):
    """A sandbox with a name, and a server that its `cmd` started."""
    name = f"box-{request.param}"
    made = native(
        "POST", "/sandbox", 201,
        json={"name": name, "metadata": {"shoal/runtime": request.param, "k": name}, "timeout": 900,
              "envVars": {"GREETING": "hello"}, "cmd": "python3", "args": ["-c", SERVER], "cpu_limit": "1500m"},
    )
    assert (made["name"], made["status"], made["cpu"]) == (name, "running", "1500m")
    assert made["metadata"] == {"k": name} and made["cmd"] == "python3"
    yield name
    native("DELETE", f"/sandbox/{name}")
    native("GET", f"/sandbox/{name}", 404)


def test_it_is_found_by_name_id_and_label(native, box):
    one = native("GET", f"/sandbox/{box}")
    assert native("GET", f"/sandbox/{one['id']}") == one
    assert one["envVars"]["GREETING"] == "hello"
    (listed,) = native("GET", "/sandbox", params={"metadata": f"k={box}"})
    assert listed["id"] == one["id"] and "envVars" not in listed
    assert native("POST", "/sandbox", 409, json={"name": box}).startswith("there is a sandbox")


def test_a_line_runs_in_a_login_shell(native, box):
    ran = native.run(box, 'echo "$GREETING"; shopt -q login_shell && echo login >&2; exit 7')
    assert (ran["output"], ran["errorOutput"], ran["exitCode"]) == ("hello\n", "login\n", 7)
    assert native.run(box, "id -un", user="root")["output"] == "root\n"
    assert native.run(box, "pwd", workdir="/tmp")["output"] == "/tmp\n"
    # It is the command line, whatever it starts with.
    assert native.run(box, "-x")["exitCode"] == 127
    native("POST", f"/terminal/sandbox/{box}", 400, json={"command": "id", "user": "nobody-knows"})


def test_a_line_is_bounded_in_time_and_output(native, box):
    begun = time.monotonic()
    # Longer than a busy machine needs to start it.
    ran = native.run(box, "sleep 600", timeout=5)
    assert time.monotonic() - begun < 60 and ran["exitCode"] == -1 and "5 s" in ran["error"]
    ran = native.run(box, "yes")
    assert ran["truncated"] and len(ran["output"]) == 1 << 20
    native.bash(box, "for n in $(seq 600); do pgrep -x yes || exit 0; sleep .1; done; exit 1")


def test_files_go_in_and_out(native, box):
    native.bash(box, "mkdir -p /tmp/d/sub && printf abc >/tmp/d/a && ln -sf /etc /tmp/d/link")
    entries = native("GET", f"/sandbox/files/{box}", params={"path": "/tmp/d"})
    assert [(one["name"], one["isDir"]) for one in entries] == [("a", False), ("link", True), ("sub", True)]
    assert entries[0]["path"] == "/tmp/d/a" and entries[0]["size"] == 3
    assert any(one["name"] == "etc" for one in native("GET", f"/sandbox/files/{box}"))
    big = bytes(range(256)) * (160 << 10)  # 40 MiB: streamed, not held.
    where = {"path": "/tmp/d/größer & more"}
    made = native("POST", f"/sandbox/files/{box}/upload", 201, params=where, files={"file": ("x", big)})
    assert made["size"] == len(big)
    answer = native.http.get(f"{NATIVE}/sandbox/files/{box}/download", params=where)
    assert answer.content == big and answer.headers["content-type"] == "application/octet-stream"
    native("DELETE", f"/sandbox/files/{box}", params=where)
    native("GET", f"/sandbox/files/{box}/download", 404, params=where)


def test_files_are_the_users_and_only_regular_ones_are_removed(native, box):
    files = f"/sandbox/files/{box}"
    for path in ("/tmp", "/dev/null", "/tmp/../tmp"):
        native("DELETE", files, 400, params={"path": path})
    native("DELETE", files, 404, params={"path": "/tmp/nothing"})
    native("GET", f"{files}/download", 404, params={"path": "/nothing"})
    native("GET", f"{files}/download", 400, params={"path": "/tmp"})
    native("GET", files, 400, params={"path": "/etc/passwd"})
    native("GET", files, 404, params={"path": "/nothing"})


def test_too_large_an_upload_leaves_nothing_whole(native, box):
    too_large = bytes(101 << 20)
    answer = native.http.post(
        f"{NATIVE}/sandbox/files/{box}/upload", params={"path": "/tmp/huge"}, files={"file": ("x", too_large)}
    )
    assert answer.status_code == 413, answer.text
    found = native.run(box, "stat -c %s /tmp/huge 2>/dev/null; rm -f /tmp/huge")["output"]
    assert not found or int(found) < len(too_large)
    for bad in ({"data": {"file": "x"}, "files": {"other": ("x", b"x")}}, {"content": b"x"}):
        answer = native.http.post(f"{NATIVE}/sandbox/files/{box}/upload", params={"path": "/tmp/x"}, **bad)
        assert answer.status_code in (201, 400), answer.text


def test_logs_events_and_metrics_are_told(native, box):
    one = native("GET", f"/sandbox/{box}")
    logs = native("GET", f"/logs/sandbox/{box}", params={"tailLines": 50})
    assert logs["sandbox"] == box and len(logs["logs"].splitlines()) <= 50
    events = native("GET", "/events", params={"sandbox": box})["items"]
    assert events[-1]["kind"] == "created" and events[-1]["sandbox"] == one["id"]
    end = time.monotonic() + 60
    while not (items := native("POST", "/sandbox/metrics", json={"names": [box, "nothing"]})["items"]):
        assert time.monotonic() < end, "samples are taken every few seconds"
    assert items[0]["sandbox"] == box and items[0]["memoryBytes"] > 0
    limits = native("GET", "/ratelimit")
    assert 0 < limits["sandboxes"]["used"] <= limits["sandboxes"]["limit"]
    totals = native("GET", "/status")["totals"]
    assert totals["sandboxes"]["used"] >= 1 and totals["teams"] >= 1


# --- terminals -------------------------------------------------------------------------------


def terminal(native, name: str, **more):
    address = native.server.url.replace("http", "ws", 1) + f"{NATIVE}/terminal/sandbox/{name}/ws"
    more.setdefault("additional_headers", {"X-API-Key": native.key})
    return connect(address, open_timeout=60, **more)


def say(socket, **message):
    socket.send(json.dumps(message))


def hear(socket, kind: str, until: str = "") -> dict:
    """The next message of a kind, with all output so far until a text is in it."""
    text = ""
    while True:
        told = json.loads(socket.recv(timeout=60))
        text += told.get("data", "")
        if told["type"] == kind and until in text:
            return told | {"text": text}


def test_a_terminal_shows_what_is_typed_and_how_it_ends(native, box):
    with terminal(native, box) as socket:
        # Control frames may come before the first message.
        assert socket.ping().wait(60)
        socket.pong()
        say(socket, type="init", cols=90, rows=30)
        hear(socket, "ready")
        say(socket, type="input", data="stty size; shopt -q login_shell && echo log''in; echo gr''üße\n")
        told = hear(socket, "output", "grüße")
        assert "30 90" in told["text"] and "login" in told["text"]
        say(socket, type="resize", cols=100, rows=40)
        say(socket, type="input", data="stty size\n")
        hear(socket, "output", "40 100")
        say(socket, type="input", data="exit 5\n")
        assert hear(socket, "exit")["code"] == 5
        hear(socket, "closed")


def test_a_terminal_ends_its_shell_with_it(native, box):
    with terminal(native, box) as socket:
        say(socket, type="init")
        hear(socket, "ready")
        say(socket, type="input", data="exec sleep 4321\n")
        native.bash(box, "for n in $(seq 600); do pgrep -f 'sleep 432[1]' && exit 0; sleep .1; done; exit 1")
        say(socket, type="close")
        hear(socket, "closed")
    native.bash(box, "for n in $(seq 600); do pgrep -f 'sleep 432[1]' || exit 0; sleep .1; done; exit 1")


def test_a_terminal_is_for_its_team_and_pages_of_this_host(native, box):
    host = f"127.0.0.1:{native.server.port}"
    key = {"X-API-Key": native.key}
    for more, status in [
        ({"additional_headers": {}}, 401),
        ({"additional_headers": {"X-API-Key": "e2b_" + "0" * 40}}, 401),
        ({"additional_headers": key, "origin": "https://evil.example"}, 403),
        ({"additional_headers": key, "origin": "null"}, 403),
        ({"additional_headers": {}, "subprotocols": ["shoal-terminal", "shoal-key.e2b_" + "0" * 40]}, 401),
    ]:
        with pytest.raises(InvalidStatus) as refused, terminal(native, box, **more):
            pass
        assert refused.value.response.status_code == status, more
    with pytest.raises(InvalidStatus) as missing, terminal(native, "nothing"):
        pass
    assert missing.value.response.status_code == 404
    offered = ["shoal-terminal", f"shoal-key.{native.key}"]
    with terminal(native, box, additional_headers={}, subprotocols=offered, origin=f"http://{host}") as socket:
        # The key is not echoed.
        assert socket.subprotocol == "shoal-terminal"
        say(socket, type="init")
        hear(socket, "ready")


def test_nonsense_ends_no_terminal_but_begins_none(native, box):
    for first in ("nonsense", "[]", '{"type":"input","data":"id"}', '{"type":"init","cols":-1}'):
        with terminal(native, box) as socket:
            socket.send(first)
            assert hear(socket, "error")["error"]
    with terminal(native, box) as socket:
        say(socket, type="init", cols=0, rows=60000)
        hear(socket, "ready")
        for bad in ("nonsense", '{"type":"root"}', '{"type":"resize","cols":"x","rows":1}'):
            socket.send(bad)
            hear(socket, "error")
        say(socket, type="input", data="echo st''ill\n")
        hear(socket, "output", "still")


# --- by path -----------------------------------------------------------------------------------


def wait_for_server(native, box):
    native.bash(box, "for n in $(seq 600); do curl -so /dev/null localhost:8080 && exit 0; sleep .1; done; exit 1")


def test_ports_are_reached_by_path_with_a_key(native, box):
    wait_for_server(native, box)
    one = native("GET", f"/sandbox/{box}")
    for path in (f"/sandbox/{box}/a/b?c=d", f"/sandbox/{box}/a/b?c=d&port=8080", f"/sandboxes/router/{one['id']}/8080/a/b?c=d"):
        answer = native.http.get(path)
        assert answer.status_code == 200, answer.text
        said, _, headers = answer.text.partition("\n")
        assert said == "/a/b?c=d"
        assert native.key not in headers and "x-api-key" not in headers.lower()
        assert "sandbox" in answer.headers["content-security-policy"]
        for wrong in ({}, {"X-API-Key": "e2b_" + "0" * 40}, {"e2b-traffic-access-token": "x"}):
            assert httpx.get(native.server.url + path, headers=wrong, timeout=60).status_code == 401
    assert native.http.get(f"/sandbox/{box}/?port=9").status_code == 502
    assert native.http.get("/sandbox/nothing/").status_code == 502
    assert native.http.get(f"/sandbox/{box}/?port=x").status_code == 400
    for internal in ("init", "/init", "./init", "%69nit", "freeze"):
        assert native.http.post(f"/sandbox/{box}/{internal}?port=49983").status_code in (404, 405)


def test_openkruises_paths_reach_the_api_and_ports(native, box):
    wait_for_server(native, box)
    one = native("GET", f"/sandbox/{box}")
    # As under the sandbox's host name: public, without a key.
    answer = httpx.get(native.server.url + f"/kruise/{one['id']}/8080/a/b?c=d", timeout=60)
    assert answer.status_code == 200 and answer.text.startswith("/a/b?c=d\n"), answer.text
    assert "sandbox" in answer.headers["content-security-policy"], "its pages do not share the API's origin"
    assert httpx.get(native.server.url + f"/kruise/{one['id']}/49983/envs", timeout=60).status_code == 401
    assert httpx.get(native.server.url + f"/kruise/{'i' + 'z' * 20}/8080/", timeout=60).status_code == 502
    assert httpx.get(native.server.url + f"/kruise/{one['id']}/x/", timeout=60).status_code == 400
    listed = native.http.get("/kruise/api/v2/sandboxes?limit=100")
    assert one["id"] in [sandbox["sandboxID"] for sandbox in listed.json()]
    assert httpx.get(native.server.url + "/kruise/api/v2/sandboxes", timeout=60).status_code == 401


def test_a_port_can_be_the_default_and_e2bs_routes_stay(native, box):
    made = native("POST", "/sandbox", 201, json={"port": 49983, "timeout": 60})
    assert made["name"] == f"sbx-base-{made['id']}" and made["port"] == 49983
    assert native.http.get(f"/sandbox/{made['name']}/health").status_code == 204
    assert native.http.get(f"/sandboxes/{made['id']}").json()["sandboxID"] == made["id"]
    native("DELETE", f"/sandbox/{made['name']}")


# --- rest ------------------------------------------------------------------------------------


def test_it_is_paused_and_goes_on_and_a_path_wakes_it(native):
    made = native("POST", "/sandbox", 201, json={
        "name": "sleeper", "timeout": 600, "autoResume": True, "metadata": {"shoal/runtime": "runsc"},
        "cmd": "python3", "args": ["-c", SERVER]})
    try:
        wait_for_server(native, "sleeper")
        assert native("POST", "/sandbox/pause/sleeper")["status"] == "paused"
        native("POST", "/sandbox/pause/sleeper", 409)
        assert httpx.get(native.server.url + "/sandbox/sleeper/", timeout=60).status_code == 401
        assert native("GET", "/sandbox/sleeper")["status"] == "paused", "a stranger wakes nothing"
        assert native("POST", "/sandbox/resume/sleeper")["status"] == "running"
        native("POST", "/sandbox/pause/sleeper")
        assert native.http.get("/sandbox/sleeper/awake").text.startswith("/awake")
        assert native("GET", "/sandbox/sleeper")["status"] == "running"
    finally:
        native("DELETE", f"/sandbox/{made['id']}")


def test_what_is_paused_and_not_to_be_woken_says_so(native):
    made = native("POST", "/sandbox", 201, json={"timeout": 600, "metadata": {"shoal/runtime": "runsc"}})
    try:
        native("POST", f"/sandbox/pause/{made['id']}")
        for method, path, more in [
            ("GET", f"/sandbox/files/{made['id']}", {}),
            ("POST", f"/terminal/sandbox/{made['id']}", {"json": {"command": "id"}}),
        ]:
            assert "resume it first" in native(method, path, 409, **more)
    finally:
        native("DELETE", f"/sandbox/{made['id']}")


def test_an_end_in_the_middle_is_told_and_does_not_hang(native):
    name = native("POST", "/sandbox", 201, json={"timeout": 600})["name"]
    with terminal(native, name) as socket:
        say(socket, type="init")
        hear(socket, "ready")
        native("DELETE", f"/sandbox/{name}")
        assert "ended" in hear(socket, "error")["error"]
        hear(socket, "closed")


def test_a_program_that_is_not_there_leaves_no_sandbox(native):
    body = {"name": "stillborn", "cmd": "/no/such/program", "metadata": {"of": "stillborn"}}
    assert "`cmd`" in native("POST", "/sandbox", 400, json=body)
    native("GET", "/sandbox/stillborn", 404)
    assert native("GET", "/sandbox", params={"metadata": "of=stillborn"}) == []
