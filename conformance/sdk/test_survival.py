"""Sandboxes outlive the server: its end, however sudden, is noticed by nobody inside."""

import pytest

from .conftest import Sdk, done


@pytest.fixture(scope="module")
def mortal(another):
    """A server that tests may kill."""
    return another("mortal")


async def test_a_sandbox_survives_a_kill_of_the_server(request, sdk, runtime, mortal):
    own = Sdk(sdk.name, mortal)
    made = await own.create(runtime=runtime, timeout=600, metadata={"who": "survivor"})
    await done(made.files.write("kept.txt", "kept"))
    handle = await done(made.commands.run("echo $$ >pid; exec sleep 1000", background=True, timeout=0))
    before = await done(made.get_info())
    await done(handle.disconnect())
    mortal.crash()
    mortal.start()
    # The same object works on: id, token, time, files and processes are what they were.
    after = await done(made.get_info())
    assert (after.end_at, after.started_at) == (before.end_at, before.started_at)
    assert after.metadata == before.metadata
    assert await done(made.files.read("kept.txt")) == "kept"
    assert handle.pid in [process.pid for process in await done(made.commands.list())]
    assert (await done(made.commands.run("kill -0 $(cat pid) && echo alive"))).stdout == "alive\n"
    await done(made.set_timeout(900))
    assert await done(made.commands.kill(handle.pid)) is True
    assert await done(made.kill()) is True
    assert mortal.processes(made.sandbox_id) == set()


async def test_a_sandbox_survives_an_orderly_end_of_the_server(sdk, runtime, mortal):
    own = Sdk(sdk.name, mortal)
    made = await own.create(runtime=runtime, timeout=600)
    mortal.stop()
    mortal.start()
    assert (await done(made.commands.run("echo still"))).stdout == "still\n"
    assert await done(made.kill()) is True


async def test_time_goes_on_while_there_is_no_server(sdk, mortal):
    own = Sdk(sdk.name, mortal)
    made = await own.create(timeout=1)
    mortal.crash()
    mortal.start()
    from ..installation import wait_until

    wait_until(lambda: not mortal.processes(made.sandbox_id), 20, "the end of its time")
    assert await done(made.is_running()) is False
