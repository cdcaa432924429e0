"""Templates that exist, by raw calls: the SDK's own methods build them, which comes later."""

from __future__ import annotations

import pytest
from e2b import Template

from .wire import Wire, fails


def test_list(wire):
    for path in ("/templates", "/v2/templates"):
        base = next(one for one in wire.get(path).json() if "base" in one["aliases"])
        assert base["cpuCount"] >= 1 and base["memoryMB"] >= 128 and base["public"] is True
        assert base["buildStatus"] == "ready" and base["envdVersion"] >= "0.6"


def test_pages(wire):
    first = wire.get("/v2/templates?limit=1")
    assert len(first.json()) == 1 and first.headers["x-next-token"]
    second = wire.get("/v2/templates", params={"limit": 1, "nextToken": first.headers["x-next-token"]})
    assert second.json()[0]["templateID"] != first.json()[0]["templateID"]
    assert not second.headers.get("x-next-token")


def test_one(wire):
    base = next(one for one in wire.get("/templates").json() if "base" in one["aliases"])
    found = wire.get(f"/templates/{base['templateID']}").json()
    assert found["templateID"] == base["templateID"] and found["builds"][0]["status"] == "ready"
    fails(wire.get("/templates/nosuchtemplate000000"), 404)


def test_a_template_by_its_id(wire, options):
    from e2b import Sandbox

    base = next(one for one in wire.get("/templates").json() if "base" in one["aliases"])
    box = Sandbox.create(base["templateID"], timeout=60, **options)
    assert box.get_info().template_id == base["templateID"] and box.get_info().name == "base"
    box.kill()


def test_aliases(wire):
    found = wire.get("/templates/aliases/base")
    assert found.status_code == 200 and found.json()["public"] is True
    fails(wire.get("/templates/aliases/free"), 404)


@pytest.mark.parametrize("name, there", [("base", True), ("no-such-name", False)])
def test_exists(options, name, there):
    kept = {k: options[k] for k in ("api_key", "api_url")}
    assert Template.exists(name, **kept) is there


def test_another_team_sees_what_is_public(server):
    other = Wire(server, key=server.keys["other"])
    assert any("base" in one["aliases"] for one in other.get("/templates").json())
