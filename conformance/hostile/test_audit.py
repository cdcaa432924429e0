"""The audit log records every change and no secret."""

from __future__ import annotations

import http.client
import json
import stat
import time

import pytest
from e2b import Sandbox

from ..installation import wait_until
from .conftest import SMALL, create, furnished
from .machine import Call

SECRET = "a-value-that-nobody-logs"


@pytest.fixture(scope="module")
def audited(scratch):
    with furnished(scratch, "audited", "audit.size=1MiB", "audit.keep=2") as installation:
        yield installation


def events(server, name: str) -> list[dict]:
    file = server.data / "audit" / f"{name}.jsonl"
    text = file.read_text() if file.exists() else ""
    # The last line may be on its way.
    return [json.loads(line) for line in text.split("\n")[:-1]]


def told(server, name: str, action: str, target: str | None = None) -> dict:
    """The newest event of this kind, once it is written."""
    def newest():
        found = [e for e in events(server, name) if e["action"] == action and target in (None, *e.get("target", []))]
        return found[-1] if found else None
    return wait_until(newest, 60, f"{action} in the audit log")


def test_the_audit_log_has_a_sandboxs_life_and_no_secrets(audited):
    call, other = Call(audited), Call(audited, "other")
    sandbox = create(audited, "runsc", envs={"PASSWORD": SECRET}, secure=True)
    sandbox.commands.run(f"echo {SECRET}")
    status, data = call.get(f"/sandboxes/{sandbox.sandbox_id}")
    assert status == 200
    secrets = [SECRET, data["envdAccessToken"], *audited.keys.values()]
    sandbox.pause()
    sandbox = sandbox.connect()
    snapshot = sandbox.create_snapshot()
    made = told(audited, "default", "sandbox.create", sandbox.sandbox_id)
    assert made["result"] == "ok" and made["status"] == 201 and made["team"] == "default"
    assert made["address"] == "127.0.0.1" and made["route"] == "POST /v2/sandboxes"
    assert {"time", "key", "request", "duration_ms"} <= made.keys()
    told(audited, "default", "sandbox.pause", sandbox.sandbox_id)
    assert sandbox.sandbox_id in told(audited, "default", "snapshot.create")["target"]

    # Another tenant's attempt is that tenant's event.
    assert other.delete(f"/sandboxes/{sandbox.sandbox_id}")[0] == 404
    assert told(audited, "other", "sandbox.kill", sandbox.sandbox_id)["result"] == "refused"
    assert other.get("/api/v1/keys")[0] == 403
    assert told(audited, "other", "api.read")["result"] == "denied"

    minted = call.post("/api/v1/keys", {"name": "third", "team": "third"})[1]["data"]
    secrets.append(minted["secret"])
    key = told(audited, "default", "key.create", minted["id"])
    assert key["target"] == [minted["id"], "third"]
    assert call.delete(f"/api/v1/keys/{minted['id']}")[0] == 200
    told(audited, "default", "key.delete", minted["id"])

    # Keys in fields that must not contain keys.
    stranger = Call(audited, None)
    wrong = "e2b_" + "ab" * 20
    secrets.append(wrong)
    assert stranger.get("/sandboxes", headers={"X-API-Key": wrong})[0] == 401
    assert stranger.delete(f"/sandboxes/{wrong}", headers={"X-API-Key": wrong})[0] == 401
    assert stranger.post(f"/sandboxes?key={wrong}", {"x": wrong}, headers={"X-API-Key": wrong})[0] == 401
    denied = told(audited, "_strangers", "sandbox.create")
    assert denied["result"] == "denied" and "team" not in denied
    assert sandbox.kill()
    told(audited, "default", "sandbox.kill", sandbox.sandbox_id)
    written = "".join(path.read_text() for path in (audited.data / "audit").iterdir())
    assert not [secret for secret in secrets if secret in written]


def test_wakes_by_traffic_and_refused_tokens_are_recorded(audited):
    sandbox = Sandbox.create(
        SMALL, lifecycle={"on_timeout": "pause", "auto_resume": True}, **audited.options(),
    )
    try:
        sandbox.pause()
        sandbox.commands.run("true")
        assert told(audited, "_gateway", "sandbox.wake", sandbox.sandbox_id)["result"] == "ok"
        refused = Call(audited, None).get(f"/sandbox/{sandbox.sandbox_id}/")
        assert refused[0] == 401
        assert told(audited, "_strangers", "gateway.refuse", sandbox.sandbox_id)["status"] == 401
    finally:
        sandbox.kill()


def flood(server, many: int) -> None:
    """Calls of a stranger on one connection: with one for each, a busy machine needs minutes."""
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        for _ in range(many):
            line.request("POST", "/sandboxes")
            answer = line.getresponse()
            answer.read()
            assert answer.status == 401
    finally:
        line.close()


def test_no_caller_rotates_away_anothers_events(audited):
    told(audited, "default", "key.create")
    before = events(audited, "default")
    other = Call(audited, "other")
    began = time.monotonic()
    flood(audited, 1500)
    minutes = (time.monotonic() - began) // 60
    for _ in range(300):
        other.delete("/sandboxes/" + "i" + "0" * 20)
    wait_until(lambda: len(events(audited, "other")) >= 300, 60, "the neighbour's events")
    assert events(audited, "default")[: len(before)] == before
    directory = audited.data / "audit"
    # 600 a minute; the first and the last minute are partial.
    assert len(events(audited, "_strangers")) < 600 * (minutes + 2) + 100
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in directory.iterdir())
