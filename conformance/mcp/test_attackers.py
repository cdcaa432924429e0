"""Callers without a right, names that lead elsewhere, and sessions without end."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ..installation import wait_until
from .clients import Raw, call, done, over_http, refused, request


@pytest.fixture(scope="module")
def server(another):
    """A server with two teams, and few sessions for each."""
    started = another("mcp", ["mcp.sessions_per_team=4", "mcp.template=base"])
    started.add_team("stranger")
    return started


def admin(server, method: str, path: str, body=None):
    answer = httpx.request(
        method, f"{server.url}{path}", json=body, headers={"X-API-Key": server.key}, timeout=60
    )
    assert answer.status_code < 300, answer.text
    return answer.json().get("data") if answer.content else None


def events(server) -> list[dict]:
    """The audit log of the first team."""
    return [json.loads(line) for line in (server.data / "audit" / "default.jsonl").read_text().splitlines()]


def test_a_request_without_a_key_is_told_how_to_authenticate(server):
    for key in (None, "e2b_" + "0" * 40):
        for method in ("POST", "GET", "DELETE"):
            answer = Raw(server, key).send(request("ping"), method)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_session_of_another_team_does_not_exist(server):
    owner, stranger = Raw(server, server.key), Raw(server, server.keys["stranger"])
    session = owner.open()
    for method in ("POST", "GET", "DELETE"):
        answer = stranger.send(call("run_command", command="true"), method, session)
        unknown = stranger.send(call("run_command", command="true"), method, "no-such-session")
        assert (answer.status_code, answer.text) == (unknown.status_code, unknown.text) == (404, unknown.text)
    assert owner.send(request("ping"), session=session).status_code == 200
    assert owner.send(method="DELETE", session=session).status_code == 202
    assert owner.send(request("ping"), session=session).status_code == 404


async def test_a_sandbox_of_another_team_does_not_exist(server):
    async with over_http(server) as owner, over_http(server, "stranger") as stranger:
        sandbox = (await done(owner, "run_command", command="true"))["sandbox"]
        for tool, arguments in {
            "run_command": {"command": "true"}, "read_file": {"path": "/etc/passwd"}, "list_files": {},
            "write_file": {"path": "x", "content": "x"}, "kill_sandbox": {}, "pause_sandbox": {}, "snapshot": {},
            "fork_sandbox": {}, "expose_port": {"port": 80}, "search_files": {"pattern": "x"},
        }.items():
            error = await refused(stranger, tool, sandbox=sandbox, **arguments)
            assert error["code"] == "not_found", (tool, error)
        assert (await done(stranger, "list_sandboxes"))["sandboxes"] == []
        with pytest.raises(Exception, match="not found"):
            await stranger.read_resource(f"sandbox://{sandbox}/etc/passwd")
        with pytest.raises(Exception, match="not found"):
            await stranger.read_resource(f"sandbox-logs://{sandbox}")
        assert (await done(owner, "run_command", command="echo alive"))["stdout"] == "alive\n"


async def test_a_path_leads_nowhere_outside_of_the_sandbox(server):
    marker = server.data / "api-key"
    async with over_http(server) as client:
        for path in (str(marker), "../" * 30 + str(marker), f"/proc/1/root{marker}"):
            assert (await refused(client, "read_file", path=path))["code"] in ("not_found", "denied", "refused")
        error = await refused(client, "read_file", path="a\0b")
        assert error["code"] == "invalid_argument"
        found = await done(client, "search_files", pattern="root:", path="/etc/passwd")
        assert found["matches"][0]["line"] == 1
        assert (await refused(client, "search_files", pattern="x", path="--help"))["code"] == "refused"


def test_a_web_page_of_elsewhere_is_refused(server):
    owner = Raw(server, server.key)
    for origin in ("http://evil.example", "null", "https://localhost.evil.example"):
        assert owner.initialize(Origin=origin).status_code == 403
    opened = owner.initialize(Origin=f"http://localhost:{server.port}")
    assert opened.status_code == 200
    assert owner.send(method="DELETE", session=opened.headers["mcp-session-id"]).status_code == 202


def test_a_team_has_a_number_of_sessions_at_once(server):
    owner = Raw(server, server.key)

    def opened():
        return owner.initialize()

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: opened(), range(12)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * 4 + [429] * 8
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)
    # Another team has its own.
    other = Raw(server, server.keys["stranger"])
    other.send(method="DELETE", session=other.open())
    for answer in answers:
        if answer.status_code == 200:
            owner.send(method="DELETE", session=answer.headers["mcp-session-id"])
    wait_until(lambda: opened().status_code == 200, 60, "a place for a session")


def test_a_version_without_sessions_makes_no_sandbox(server):
    stranger = Raw(server, server.keys["stranger"])
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = call("run_command", command="true")
    body["params"]["_meta"] = meta
    answer = stranger.send(body, MCP_Protocol_Version="2026-07-28", Mcp_Method="tools/call", Mcp_Name="run_command")
    assert answer.status_code == 400 and answer.json()["error"]["code"] == -32022, answer.text
    plain = stranger.send(call("run_command", command="true"))
    assert plain.status_code in (400, 422), plain.text
    listed = httpx.get(f"{server.url}/v2/sandboxes", headers={"X-API-Key": server.keys["stranger"]}, timeout=60)
    assert listed.json() == []


async def test_a_deleted_key_ends_its_session_and_its_sandbox(server):
    made = admin(server, "POST", "/api/v1/keys", {"name": "short", "team": "default"})
    server.keys["short"] = made["secret"]
    raw = Raw(server, made["secret"])
    try:
        session = raw.open()
        answer = raw.send(call("run_command", command="true"), session=session)
        assert '"exit_code":0' in answer.text, answer.text
        (sandbox,) = [
            one["sandboxID"]
            for one in httpx.get(
                f"{server.url}/v2/sandboxes", headers={"X-API-Key": server.key}, timeout=60
            ).json()
        ]
        admin(server, "DELETE", f"/api/v1/keys/{made['id']}")
    finally:
        del server.keys["short"]
    assert raw.send(request("ping"), session=session).status_code == 401
    # Not by another key of the team either.
    owner = Raw(server, server.key)
    wait_until(
        lambda: owner.send(request("ping"), session=session).status_code == 404, 60, "the end of the session"
    )
    wait_until(
        lambda: httpx.get(
            f"{server.url}/sandboxes/{sandbox}", headers={"X-API-Key": server.key}, timeout=60
        ).status_code == 404,
        120, "the end of its sandbox",
    )


def test_what_tools_do_is_audited(server):
    owner = Raw(server, server.key)
    session = owner.open()
    answer = owner.send(call("run_command", command="echo secret-word"), session=session)
    assert '"exit_code":0' in answer.text, answer.text
    owner.send(method="DELETE", session=session)
    wait_until(lambda: any(event["action"] == "mcp.end" for event in events(server)), 60, "the audit log")
    ran = [event for event in events(server) if event["action"] == "command.run"][-1]
    assert ran["route"] == "POST /mcp" and ran["result"] == "ok" and ran["target"] and ran["team"] == "default"
    assert "secret-word" not in json.dumps(events(server))
    assert "secret-word" not in (server.data / "server.log").read_text(errors="replace")


def test_an_idle_session_ends_with_its_sandbox_and_a_stop_ends_all(another):
    server = another("mcp-idle", ["mcp.idle_timeout=3s"])
    owner = Raw(server, server.key)
    session = owner.open()
    assert '"exit_code":0' in owner.send(call("run_command", command="sleep 6"), session=session).text
    sandboxes = lambda: httpx.get(f"{server.url}/v2/sandboxes", headers={"X-API-Key": server.key}, timeout=60).json()
    wait_until(lambda: sandboxes() == [], 120, "the end of the idle session's sandbox")
    assert owner.send(request("ping"), session=session).status_code == 404
    again = owner.open()
    assert '"exit_code":0' in owner.send(call("run_command", command="true"), session=again).text
    server.stop()
    assert server.all_gone() == []
