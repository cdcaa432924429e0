"""The preview of a session: port 8080 of its machine under a name of its own, and no other port.

What its machine reaches in the network is in `hostile/test_egress.py`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import subprocess

import httpx
import pytest
import websockets
from e2b import Sandbox

from ..installation import program, wait_until
from .test_gateway import INSIDE
from .test_native import NATIVE, Native
from .test_network import PROBE
from .test_sessions import run

#: A server on the public port, one on loopback only, and one on a port that is open inside.
SERVER = base64.b64encode(INSIDE.replace("8000", "8080").encode()).decode()

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"


@pytest.fixture(scope="module")
def native(shared):
    return Native(shared)


def begin(native, session: str) -> None:
    """Starts the server in a window of its own, and waits until it listens."""
    command = (
        f"echo {SERVER} | base64 -d > site.py; : > site.log; python3 site.py > site.log 2>&1 & "
        "until grep -q . site.log; do sleep 0.1; done; cat site.log"
    )
    output, end = run(native, session, command, "server")
    assert end == {"type": "exit", "code": 0} and "ready" in output, (output, end)


@pytest.fixture(scope="module")
def session(native):
    made = native("POST", "/sessions", 201, json={})
    begin(native, made["id"])
    yield native("GET", f"/sessions/{made['id']}")
    native("DELETE", f"/sessions/{made['id']}")


@pytest.fixture
def sleeping(native):
    """Makes sessions without a machine."""
    made = []

    def make(**asked) -> dict:
        made.append(native("POST", "/sessions", 201, json=asked))
        return made[-1]

    yield make
    for one in made:
        native("DELETE", f"/sessions/{one['id']}")


def ask(shared, host: str, path: str = "/", method: str = "GET", **more) -> httpx.Response:
    headers = {"Host": host} | more.pop("headers", {})
    return httpx.request(method, shared.url + path, headers=headers, timeout=60, **more)


def browse(shared, session: dict) -> httpx.Response:
    """As a browser opens the preview."""
    return ask(shared, session["publicHostname"], headers={"User-Agent": FIREFOX, "Accept": "text/html"})


def test_r2_061_and_r2_063_port_8080_is_reached_by_the_name_of_the_session(shared, session):
    host = session["publicHostname"]
    assert re.fullmatch(r"[a-z0-9]{20}\.preview\.localhost", host)
    assert session["previewUrl"] == f"http://{host}:{shared.port}"
    for name in (host, f"{host}:{shared.port}", host.upper(), f"{host}."):
        answer = ask(shared, name, "/a%2Fb?x=1", headers={"Cookie": "a=b", "X-API-Key": "theirs"})
        assert answer.status_code == 200, (name, answer.text)
        seen = answer.json()
        assert seen["path"] == "/a%2Fb?x=1" and seen["headers"]["host"] == name
        assert (seen["headers"]["cookie"], seen["headers"]["x-api-key"]) == ("a=b", "theirs")
        assert not [header for header in seen["headers"] if "token" in header]
    # No path of the API, and no other address of a sandbox, means anything under that name.
    other = {"E2b-Sandbox-Id": session["sandboxId"], "E2b-Sandbox-Port": "8002", "X-API-Key": shared.key}
    for path in ("/health", "/api/v1/sessions", "/sandboxes", "/kruise/api/sandboxes", f"/sandboxes/router/{session['sandboxId']}/8002/"):
        answer = ask(shared, host, path, headers=other)
        assert answer.status_code == 200 and answer.json()["path"] == path, (path, answer.text)


def test_r2_010_and_r2_062_no_other_port_is_reached_from_outside(shared, native, session):
    machine = session["sandboxId"]
    for port in (8001, 8002):
        assert run(native, session["id"], f"curl -s -o /dev/null -w '%{{http_code}}' localhost:{port}")[0] == "200"
    inside = Sandbox.connect(machine, **shared.options())
    token = {"e2b-traffic-access-token": inside.traffic_access_token}
    assert inside.traffic_access_token
    key = {"X-API-Key": shared.key}
    for port in (8002, 8001, 8080, 22, 3000):
        ways = [
            (f"{port}-{machine}.localhost", "/", {}), (f"{port}-{machine}.e2b.app", "/", token | key),
            ("localhost", "/", {"E2b-Sandbox-Id": machine, "E2b-Sandbox-Port": str(port)} | token),
            ("localhost", f"/sandboxes/router/{machine}/{port}/", key), ("localhost", f"/sandboxes/router/{machine}/{port}/", token),
            ("localhost", f"/sandbox/{machine}/?port={port}", key), ("localhost", f"/kruise/{machine}/{port}/", token),
        ]
        for host, path, headers in ways:
            answer = ask(shared, host, path, headers=headers)
            assert answer.status_code == 403, (host, path, answer.status_code, answer.text)
            assert "the machine of a session" in answer.text
        name = session["publicHostname"]
        for host in (f"{port}-{name}", f"{port}.{name}", name.replace(".", f"-{port}.", 1)):
            assert ask(shared, host).status_code == 404, host
    # The API still works.
    assert inside.commands.run("echo api").stdout == "api\n"
    inside.files.write("by-api", "text")
    assert run(native, session["id"], "cat by-api")[0] == "text"
    assert native("GET", f"/sandbox/{machine}")["id"] == machine


async def test_r2_066_websockets_streams_and_large_bodies_pass(shared, session):
    host = session["publicHostname"]
    address = f"ws://{host}:{shared.port}/socket"
    async with websockets.connect(address, host="127.0.0.1", port=shared.port) as socket:
        for size in (0, 1, 125, 126, 60_000):
            message = os.urandom(size)
            await socket.send(message)
            assert await asyncio.wait_for(socket.recv(), 30) == message
    async with httpx.AsyncClient(base_url=shared.url, headers={"Host": host}, timeout=60) as client:
        async with client.stream("GET", "/events") as events:
            assert events.headers["content-type"] == "text/event-stream"
            number = 0
            async for line in events.aiter_lines():
                if line.startswith("data:"):
                    assert line == f"data: tick {number}"
                    number += 1
                    # The server sends the next one only now.
                    assert (await client.get("/seen")).status_code == 204
        assert number == 5
        body = os.urandom(1 << 20) * 48
        answer = (await client.post("/upload", content=body)).json()
        assert (answer["size"], answer["sha"]) == (len(body), hashlib.sha256(body).hexdigest())


def test_r2_064_and_r2_101_every_window_knows_the_name(native, session):
    host = session["publicHostname"]
    for window in ("main", "another"):
        assert run(native, session["id"], "echo $PUBLIC_HOSTNAME", window)[0] == f"{host}\n"
        told = run(native, session["id"], "python3 -c 'import os; print(os.environ[\"PUBLIC_HOSTNAME\"])' & wait $!", window)[0]
        assert host in told.splitlines(), told
    assert host in run(native, session["id"], "tr '\\0' '\\n' < /proc/$(pgrep -f site.py | head -1)/environ", "another")[0]


def test_r2_068_metadata_and_private_addresses_are_not_reached(native, session):
    for address in ("169.254.169.254", "10.79.0.1", "192.168.0.1"):
        said = run(native, session["id"], PROBE.format(address, 80) + " && echo open || echo closed")[0]
        assert said.endswith("closed\n"), (address, said)


def test_r2_065_the_name_stays_when_the_machine_goes(shared, native, sleeping):
    made = sleeping()
    asleep = browse(shared, made)
    assert asleep.status_code == 503 and asleep.headers["content-type"].startswith("text/html")
    assert "sleeps" in asleep.text and asleep.headers["cache-control"] == "no-store"
    assert int(asleep.headers["retry-after"]) > 0 and "refresh" not in asleep.headers
    machines = set()
    for _ in range(2):
        begin(native, made["id"])
        assert ask(shared, made["publicHostname"]).status_code == 200
        seen = native("GET", f"/sessions/{made['id']}")
        assert (seen["publicHostname"], seen["previewUrl"]) == (made["publicHostname"], made["previewUrl"])
        machines.add(seen["sandboxId"])
        question = native("POST", f"/sessions/{made['id']}/reset", 202, json={})
        native("POST", f"/sessions/{made['id']}/reset", json={"token": question["token"]})
        assert browse(shared, made).status_code == 503
    assert len(machines) == 2
    # A request wakes only what its session lets it wake.
    assert "sandboxId" not in native("GET", f"/sessions/{made['id']}")
    # A machine that was killed from elsewhere is no machine either.
    run(native, made["id"], "true")
    closed = browse(shared, made)
    assert closed.status_code == 502 and "listens on port 8080" in closed.text and "refresh" not in closed.headers
    native("DELETE", f"/sandbox/{native('GET', '/sessions/' + made['id'])['sandboxId']}")
    assert browse(shared, made).status_code == 503


def test_a_request_wakes_the_machine_and_its_page_looks_again(shared, native, sleeping):
    made = sleeping(wakeOnRequest=True)
    assert made["wakeOnRequest"] is True and "sandboxId" not in made
    first = browse(shared, made)
    assert (first.status_code, first.headers["refresh"], first.headers["retry-after"]) == (503, "2", "2")
    # Every further request joins the same start. Then nothing listens yet, and the page looks again.
    wait_until(lambda: browse(shared, made).status_code == 502, 60, "the machine")
    closed = browse(shared, made)
    assert closed.headers["refresh"] == "2" and "listens on port 8080" in closed.text
    seen = native("GET", f"/sessions/{made['id']}")
    wait_until(lambda: native("GET", f"/sessions/{made['id']}")["windows"], 60, "the window of a login shell")
    labelled = [one for one in native("GET", "/sandbox") if one["metadata"].get("shoal.session") == made["id"]]
    assert [one["id"] for one in labelled] == [seen["sandboxId"]]
    begin(native, made["id"])
    assert browse(shared, made).status_code == 200
    log = shared.data / "audit" / "_gateway.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    woken = [event for event in events if event["action"] == "session.wake" and made["id"] in str(event)]
    assert len(woken) == 1 and made["publicHostname"].split(".")[0] not in log.read_text()
    off = native("PATCH", f"/sessions/{made['id']}", json={"wakeOnRequest": False})
    assert off["wakeOnRequest"] is False and off["persist"] is False


def test_names_of_no_session_have_one_answer(shared, native, sleeping):
    gone = native("POST", "/sessions", 201, json={})
    native("DELETE", f"/sessions/{gone['id']}")
    answers = []
    for host in (gone["publicHostname"], "z" * 20 + ".preview.localhost", "x.preview.localhost", f"8080-{'z' * 20}.preview.localhost"):
        for headers in ({}, {"User-Agent": FIREFOX}, {"X-API-Key": shared.key}):
            answer = ask(shared, host, "/health", headers=headers)
            answers.append((answer.status_code, answer.text, {k: v for k, v in answer.headers.items() if k != "date"}))
    assert answers[0][0] == 404 and all(answer == answers[0] for answer in answers), answers


def test_the_command_line_shows_the_preview_and_lets_requests_wake(shared, native):
    def shoal(*arguments: str) -> str:
        env = os.environ | {"SHOAL_URL": shared.url, "SHOAL_API_KEY": shared.key}
        command = [program(), "session", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True).stdout

    made = shoal("create", "--wake-on-request").strip()
    try:
        told = native("GET", f"/sessions/{made}")
        assert told["wakeOnRequest"] is True and told["previewUrl"] in shoal("info", made)
        shoal("wake-on-request", made, "off")
        assert json.loads(shoal("info", made, "--json"))["wakeOnRequest"] is False
    finally:
        shoal("rm", made)
