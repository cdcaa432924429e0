"""Sandboxes: made, found, described, given time, ended."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from e2b import AsyncSandbox, CommandExitException, Sandbox, SandboxNotFoundException, SandboxState, TimeoutException

from .halves import done, eventually


def left(info) -> float:
    """The seconds until a sandbox's end."""
    return (info.end_at - datetime.now(timezone.utc)).total_seconds()


async def test_create(sdk, options):
    box = await done(sdk.create(**options))
    try:
        info = await done(box.get_info())
        assert info.sandbox_id == box.sandbox_id and box.sandbox_id.isalnum()
        assert (info.name, info.state, info.metadata) == ("base", SandboxState.RUNNING, {})
        assert info.cpu_count >= 1 and info.memory_mb >= 128 and info.envd_version >= "0.6"
        # The SDK's own default.
        assert 280 < left(info) <= 300
        assert abs((datetime.now(timezone.utc) - info.started_at).total_seconds()) < 30
        assert await done(box.is_running()) is True
    finally:
        assert await done(box.kill()) is True
    assert await done(box.is_running()) is False


async def test_metadata_and_envs(sdk, options):
    metadata = {"user": "ünï", "with space": "a=b&c", "empty": ""}
    box = await done(sdk.create("base", metadata=metadata, envs={"A": "1", "B": "two words"}, **options))
    try:
        assert (await done(box.get_info())).metadata == metadata
        ran = await done(box.commands.run('echo "$A|$B"', envs={"A": "2"}))
        assert ran.stdout == "2|two words\n"
        assert (await done(box.commands.run("echo $A", user="root"))).stdout == "1\n"
    finally:
        await done(box.kill())


async def test_as_a_context(sdk, options):
    if sdk is Sandbox:
        with Sandbox.create(**options) as box:
            assert box.is_running()
        assert not box.is_running()
    else:
        async with await AsyncSandbox.create(**options) as box:
            assert await box.is_running()
        assert not await box.is_running()


async def test_timeout_is_the_end(sdk, options):
    box = await done(sdk.create(timeout=2, **options))

    async def ended():
        return not await done(box.is_running())

    await eventually(ended, "the sandbox's end")
    with pytest.raises(SandboxNotFoundException):
        await done(box.get_info())
    with pytest.raises(TimeoutException):
        await done(box.commands.run("true"))


async def test_set_timeout(sdk, fresh, options):
    await done(fresh.set_timeout(1000))
    assert 980 < left(await done(fresh.get_info())) <= 1000
    await done(sdk.set_timeout(fresh.sandbox_id, 500, **options))
    assert 480 < left(await done(fresh.get_info())) <= 500
    await done(fresh.set_timeout(1))

    async def ended():
        return not await done(fresh.is_running())

    await eventually(ended, "the sandbox's end")


async def test_connect(sdk, fresh, options):
    other = await done(sdk.connect(fresh.sandbox_id, **options))
    await done(fresh.files.write("shared", "x"))
    assert await done(other.files.read("shared")) == "x"
    assert other.sandbox_id == fresh.sandbox_id


async def test_connect_gives_time_and_never_takes_it(sdk, fresh, options):
    await done(sdk.connect(fresh.sandbox_id, timeout=600, **options))
    assert 580 < left(await done(fresh.get_info())) <= 600
    await done(sdk.connect(fresh.sandbox_id, timeout=10, **options))
    assert left(await done(fresh.get_info())) > 560
    await done(fresh.connect(timeout=900))
    assert left(await done(fresh.get_info())) > 880


async def test_connect_to_what_is_not_there(sdk, options):
    with pytest.raises(SandboxNotFoundException):
        await done(sdk.connect("inosuchsandbox0000000", **options))


async def test_kill(sdk, options):
    box = await done(sdk.create(**options))
    assert await done(sdk.kill(box.sandbox_id, **options)) is True
    assert await done(sdk.kill(box.sandbox_id, **options)) is False
    assert await done(box.kill()) is False
    with pytest.raises(SandboxNotFoundException):
        await done(sdk.get_info(box.sandbox_id, **options))
    with pytest.raises(SandboxNotFoundException):
        await done(box.set_timeout(10))


async def test_killed_while_a_command_runs(sdk, options):
    box = await done(sdk.create(**options))
    handle = await done(box.commands.run("sleep 1000", background=True, timeout=0))
    await done(box.kill())
    with pytest.raises(TimeoutException, match="killed|end of life|not found"):
        await done(handle.wait())


async def test_two_know_nothing_of_each_other(sdk, fresh, options):
    other = await done(sdk.create(timeout=60, **options))
    try:
        await done(fresh.files.write("mine", "x"))
        assert await done(other.files.exists("mine")) is False
        sleeping = await done(fresh.commands.run("sleep 555", background=True))
        with pytest.raises(CommandExitException):
            await done(other.commands.run("pgrep -f 'sleep 55[5]'"))
        await done(sleeping.kill())
    finally:
        await done(other.kill())


async def test_class_methods_by_id(sdk, fresh, options):
    info = await done(sdk.get_info(fresh.sandbox_id, **options))
    assert info == await done(fresh.get_info())


async def test_metrics(fresh, sdk, options):
    samples = await eventually(lambda: fresh.get_metrics(), "a sample", 30)
    one = samples[0]
    assert one.cpu_count >= 1 and one.cpu_used_pct >= 0
    assert 0 < one.mem_used <= one.mem_total and 0 <= one.disk_used < one.disk_total
    assert abs((datetime.now(timezone.utc) - one.timestamp).total_seconds()) < 60
    again = await done(sdk.get_metrics(fresh.sandbox_id, **options))
    assert again[0].timestamp == one.timestamp
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    assert await done(fresh.get_metrics(start=later, end=later + timedelta(hours=1))) == []


async def test_metrics_of_what_is_not_there(sdk, options):
    with pytest.raises(SandboxNotFoundException):
        await done(sdk.get_metrics("inosuchsandbox0000000", **options))


@pytest.mark.parametrize("runtime, kernel", [("runsc", "gVisor"), ("runc", None)])
async def test_the_runtime_can_be_chosen(sdk, options, runtime, kernel):
    box = await done(sdk.create(metadata={"shoal/runtime": runtime}, timeout=60, **options))
    try:
        said = (await done(box.commands.run("dmesg 2>&1; cat /proc/version", user="root"))).stdout
        assert ("gVisor" in said) == (kernel == "gVisor"), said
        assert (await done(box.commands.run("whoami; pwd"))).stdout == "user\n/home/user\n"
    finally:
        await done(box.kill())


async def test_secure_or_not_it_has_a_token(sdk, options, server):
    """The released SDK asks for secured sandboxes only; `secure=False` changes nothing."""
    for secure in (True, False):
        box = await done(sdk.create(secure=secure, timeout=60, **options))
        try:
            assert "signature=" in box.download_url("x")
            assert (await done(box.commands.run("echo hi"))).stdout == "hi\n"
        finally:
            await done(box.kill())


async def test_several_at_once(options):
    boxes = await asyncio.gather(*(AsyncSandbox.create(timeout=60, **options) for _ in range(6)))
    try:
        assert len({box.sandbox_id for box in boxes}) == 6
        said = await asyncio.gather(*(box.commands.run("echo $E2B_SANDBOX_ID") for box in boxes))
        assert [one.stdout.strip() for one in said] == [box.sandbox_id for box in boxes]
    finally:
        await asyncio.gather(*(box.kill() for box in boxes))


async def test_the_same_wish_twice_is_one_sandbox(sdk, options):
    one = await done(sdk.create(idempotency_key=f"wish-{sdk.__name__.lower()}", timeout=60, **options))
    two = await done(sdk.create(idempotency_key=f"wish-{sdk.__name__.lower()}", timeout=60, **options))
    assert one.sandbox_id == two.sandbox_id
    await done(one.kill())


async def test_the_wall_clock_inside(fresh):
    said = int((await done(fresh.commands.run("date +%s"))).stdout)
    assert abs(said - datetime.now(timezone.utc).timestamp()) < 5
