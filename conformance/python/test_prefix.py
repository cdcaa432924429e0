"""The same API below /e2b/v1."""

from __future__ import annotations

import pytest
from e2b import SandboxException, SandboxNotFoundException, SandboxQuery, Template

from .halves import done
from .wire import Wire, fails


@pytest.fixture(scope="module")
def below(options) -> dict:
    return options | {"api_url": f"{options['api_url']}/e2b/v1"}


async def test_a_whole_life(sdk, below):
    box = await done(sdk.create(timeout=100, metadata={"where": "below"}, **below))
    try:
        assert (await done(box.commands.run("echo hi"))).stdout == "hi\n"
        await done(box.files.write("a", "b"))
        assert await done(box.files.read("a")) == "b"
        await done(box.set_timeout(200))
        query = SandboxQuery(metadata={"where": "below"})
        found = await done(sdk.list(query=query, **below).next_items())
        assert [one.sandbox_id for one in found] == [box.sandbox_id]
        other = await done(sdk.connect(box.sandbox_id, **below))
        assert (await done(other.get_info())).metadata == {"where": "below"}
        await done(box.update_network({"deny_out": ["192.0.2.0/24"]}))
        assert isinstance(await done(box.get_metrics()), list)
        with pytest.raises(SandboxException) as failed:
            await done(box.pause())
        assert failed.value.status_code == 501
    finally:
        assert await done(box.kill()) is True
    with pytest.raises(SandboxNotFoundException):
        await done(box.get_info())


def test_raw(server, below):
    wire = Wire(server, "/e2b/v1")
    assert wire.get("/v2/sandboxes").status_code == 200
    assert wire.get("/health").status_code == 204
    assert wire.get("/templates").json() == Wire(server).get("/templates").json()
    fails(wire.get("/no/such/route"), 404)
    fails(Wire(server, "/e2b/v1", key="wrong").get("/v2/sandboxes"), 401)
    assert Template.exists("base", api_key=below["api_key"], api_url=below["api_url"]) is True
