"""What this release does not do says so: 501, and the form of every other error."""

from __future__ import annotations

import pytest
from e2b import SandboxException

from .halves import done
from .wire import fails


async def test_pause(box):
    with pytest.raises(SandboxException) as failed:
        await done(box.pause())
    assert failed.value.status_code == 501


async def test_snapshots(box):
    with pytest.raises(SandboxException) as failed:
        await done(box.create_snapshot())
    assert failed.value.status_code == 501


async def test_fork(box):
    with pytest.raises(SandboxException) as failed:
        await done(box.fork())
    assert failed.value.status_code == 501


async def test_the_sandbox_is_unharmed(box):
    assert (await done(box.commands.run("echo alive"))).stdout == "alive\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "fork", "snapshots"])
def test_on_the_wire(wire, sandbox, verb):
    fails(wire.post(f"/sandboxes/{sandbox.sandbox_id}/{verb}", json={}), 501, "not implemented")


async def test_pausing_at_the_end_is_refused_before_it_is_promised(sdk, options, wire):
    before = wire.ids()
    with pytest.raises(SandboxException) as failed:
        await done(sdk.create(lifecycle={"on_timeout": "pause"}, **options))
    assert failed.value.status_code in (400, 501) and wire.ids() == before
