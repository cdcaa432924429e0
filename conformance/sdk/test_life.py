"""The life of a sandbox: create, get, list, extend, kill; and which requests are refused."""

import asyncio
import datetime
import http.client
import json
import socket
import time
import uuid

import pytest
from e2b import (
    InvalidArgumentException,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.exceptions import AuthenticationException, RateLimitException

from .conftest import done


@pytest.fixture(scope="module")
async def one(sdk):
    """A sandbox that tests read and do not change."""
    return await sdk.create(metadata={"suite": "life", "odd key&=": "välue %20"}, timeout=600)


def left(info) -> float:
    """Seconds until the end of a sandbox."""
    return (info.end_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


async def test_a_sandbox_tells_what_it_is(one, sdk):
    info = await done(one.get_info())
    assert info.sandbox_id == one.sandbox_id
    assert info.name == "base"
    assert info.state == SandboxState.RUNNING
    assert info.metadata == {"suite": "life", "odd key&=": "välue %20"}
    assert info.cpu_count >= 1 and info.memory_mb >= 128
    assert 500 < left(info) <= 600
    assert info.lifecycle == {"on_timeout": "kill", "auto_resume": False}
    assert await sdk.call("get_info", one.sandbox_id) == info


async def test_an_id_is_as_e2b_makes_them(one):
    assert one.sandbox_id.isalnum() and one.sandbox_id == one.sandbox_id.lower()


async def test_a_template_may_be_said_in_any_way(sdk, one):
    info = await done(one.get_info())
    for template in ("base", "BASE", "base:default", info.template_id):
        made = await sdk.create(template)
        assert (await done(made.get_info())).template_id == info.template_id
        await done(made.kill())


@pytest.mark.parametrize("template", ["no-such-template", "base:no-such-tag", "ghost/base"])
async def test_an_unknown_template_is_not_found(sdk, template):
    with pytest.raises(SandboxException, match="404") as raised:
        await sdk.create(template)
    assert raised.value.status_code == 404


async def test_without_a_timeout_a_sandbox_has_five_minutes(sdk):
    made = await sdk.create()
    # A slow machine needs some seconds from its start to this answer.
    assert 240 < left(await done(made.get_info())) <= 300
    await done(made.kill())


@pytest.mark.parametrize("timeout", [0, -1, 10**9])
async def test_a_timeout_that_cannot_be_is_refused(sdk, timeout):
    with pytest.raises((SandboxException, InvalidArgumentException)) as raised:
        await sdk.create(timeout=timeout)
    assert raised.value.status_code == 400


async def test_a_sandbox_ends_with_its_timeout(sdk):
    made = await sdk.create(timeout=1)
    with pytest.raises((TimeoutException, SandboxException)):
        await done(made.commands.run("sleep 1000", timeout=120))
    assert await done(made.is_running()) is False
    with pytest.raises(SandboxNotFoundException):
        await done(made.get_info())


async def test_a_timeout_is_prolonged_and_shortened(sdk):
    made = await sdk.create(timeout=300)
    await done(made.set_timeout(600))
    assert 540 < left(await done(made.get_info())) <= 600
    await sdk.call("set_timeout", made.sandbox_id, 120)
    assert 60 < left(await done(made.get_info())) <= 120
    await done(made.set_timeout(0))
    end = time.monotonic() + 60
    with pytest.raises(SandboxNotFoundException):
        while time.monotonic() < end:
            await done(made.get_info())
    assert await done(made.kill()) is False


async def test_connecting_only_prolongs(sdk):
    made = await sdk.create(timeout=300)
    again = await sdk.call("connect", made.sandbox_id, timeout=10)
    assert again.sandbox_id == made.sandbox_id
    assert left(await done(made.get_info())) > 240
    await sdk.call("connect", made.sandbox_id, timeout=900)
    assert left(await done(made.get_info())) > 840
    await done(made.files.write("shared.txt", "x"))
    assert await done(again.files.read("shared.txt")) == "x"
    await done(made.kill())


async def test_an_object_connects_again(one):
    again = await done(one.connect(timeout=600))
    assert again.sandbox_id == one.sandbox_id
    assert (await done(again.commands.run("echo same"))).stdout == "same\n"


async def test_a_sandbox_is_killed_once(sdk):
    made = await sdk.create()
    assert await done(made.is_running()) is True
    assert await done(made.kill()) is True
    assert await done(made.is_running()) is False
    assert await done(made.kill()) is False
    assert await sdk.call("kill", made.sandbox_id) is False


async def test_what_is_unknown_is_not_found(sdk):
    assert await sdk.call("kill", "inothingofthatname000") is False
    with pytest.raises(SandboxNotFoundException):
        await sdk.call("get_info", "inothingofthatname000")
    with pytest.raises(SandboxNotFoundException):
        await sdk.call("connect", "inothingofthatname000")
    with pytest.raises(SandboxNotFoundException):
        await sdk.call("set_timeout", "inothingofthatname000", 10)
    with pytest.raises(SandboxNotFoundException):
        await sdk.call("get_metrics", "inothingofthatname000")


async def test_a_killed_sandbox_says_so(sdk):
    made = await sdk.create()
    await done(made.kill())
    with pytest.raises(TimeoutException):
        await done(made.commands.run("true"))
    with pytest.raises(TimeoutException):
        await done(made.files.read("x"))
    with pytest.raises(SandboxNotFoundException):
        await done(made.set_timeout(10))


async def test_a_command_learns_that_its_sandbox_was_killed(sdk):
    made = await sdk.create()
    handle = await done(made.commands.run("sleep 1000", background=True))
    await done(made.kill())
    with pytest.raises(TimeoutException, match="sandbox"):
        await done(handle.wait())


async def test_a_block_ends_its_sandbox(sdk):
    if sdk.name == "async":
        async with await sdk.create() as made:
            assert await made.is_running()
    else:
        with await sdk.create() as made:
            assert made.is_running()
    assert await done(made.is_running()) is False


async def test_variables_are_there_for_every_command(sdk):
    made = await sdk.create(envs={"GLOBAL": "g", "BOTH": "global"})
    result = await done(made.commands.run("echo $GLOBAL $BOTH", envs={"BOTH": "own"}))
    assert result.stdout == "g own\n"
    assert (await done(made.commands.run("echo $GLOBAL $BOTH", user="root"))).stdout == "g global\n"
    await done(made.kill())


async def test_many_are_made_at_once(sdk):
    if sdk.name == "async":
        made = await asyncio.gather(*(sdk.create(timeout=300) for _ in range(6)))
    else:
        made = [await sdk.create(timeout=300) for _ in range(3)]
    ids = {sandbox.sandbox_id for sandbox in made}
    assert len(ids) == len(made)
    assert ids <= {info.sandbox_id for info in await sdk.listed()}
    for sandbox in made:
        await done(sandbox.kill())


async def test_a_list_is_filtered_by_metadata(sdk, one):
    mark = str(uuid.uuid4())
    odd = {"mark": mark, "k 1&=": "v&1 = ü%20"}
    made = await sdk.create(metadata=odd)
    for metadata in ({"mark": mark}, odd):
        found = await sdk.listed(query=SandboxQuery(metadata=metadata))
        assert [info.sandbox_id for info in found] == [made.sandbox_id]
        assert found[0].metadata == odd
    assert await sdk.listed(query=SandboxQuery(metadata={"mark": mark, "other": "x"})) == []
    await done(made.kill())
    assert await sdk.listed(query=SandboxQuery(metadata={"mark": mark})) == []


async def test_a_list_is_filtered_by_state(sdk, one):
    running = await sdk.listed(query=SandboxQuery(state=[SandboxState.RUNNING]))
    assert one.sandbox_id in [info.sandbox_id for info in running]
    paused = await sdk.listed(query=SandboxQuery(state=[SandboxState.PAUSED]))
    assert one.sandbox_id not in [info.sandbox_id for info in paused]


async def test_a_list_is_filtered_by_template(sdk, one):
    found = await sdk.listed(query=SandboxQuery(template="base"))
    assert one.sandbox_id in [info.sandbox_id for info in found]
    assert await sdk.listed(query=SandboxQuery(template="no-such-template")) == []


async def test_a_list_is_filtered_by_its_start(sdk, one):
    started = (await done(one.get_info())).started_at
    found = await sdk.listed(query=SandboxQuery(started_after=started))
    assert one.sandbox_id in [info.sandbox_id for info in found]
    later = started + datetime.timedelta(microseconds=1000)
    found = await sdk.listed(query=SandboxQuery(started_after=later))
    assert one.sandbox_id not in [info.sandbox_id for info in found]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_list_comes_in_pages_and_order(sdk, order):
    mark = {"pages": str(uuid.uuid4())}
    made = [await sdk.create(metadata=mark, timeout=300) for _ in range(3)]
    ids = [sandbox.sandbox_id for sandbox in made]
    pages = sdk.Sandbox.list(
        query=SandboxQuery(metadata=mark), limit=1, order=order, **sdk.server.options()
    )
    found = []
    while pages.has_next:
        page = await done(pages.next_items())
        assert len(page) <= 1
        found += [info.sandbox_id for info in page]
    assert found == (ids if order == "asc" else ids[::-1])
    for sandbox in made:
        await done(sandbox.kill())


async def test_metrics_are_measured(sdk, one):
    await done(one.commands.run("head -c 50000000 /dev/urandom >/var/tmp/some"))
    metrics = []
    for _ in range(240):
        metrics = await done(one.get_metrics())
        if metrics and metrics[-1].disk_used > 50_000_000:
            break
        await asyncio.sleep(0.25)
    assert metrics, "no sample in time"
    last = metrics[-1]
    assert 50_000_000 < last.disk_used < 200_000_000, "what was written counts before it is on the disk"
    assert metrics[0].mem_used > 0 and metrics[0].disk_used > 0, "no sample is made up"
    assert last.cpu_count >= 1
    assert 0 <= last.cpu_used_pct <= 100
    assert 0 < last.mem_used <= last.mem_total
    assert 0 < last.disk_used <= last.disk_total
    assert await sdk.call("get_metrics", one.sandbox_id)


async def test_metrics_are_asked_of_a_time(one):
    now = datetime.datetime.now(datetime.timezone.utc)
    hour = datetime.timedelta(hours=1)
    assert await done(one.get_metrics(start=now - 2 * hour, end=now - hour)) == []
    with pytest.raises(SandboxException) as raised:
        await done(one.get_metrics(start=now, end=now - hour))
    assert raised.value.status_code == 400


async def test_the_same_idempotency_key_makes_one_sandbox(sdk):
    key = str(uuid.uuid4())
    first = await sdk.create(idempotency_key=key)
    second = await sdk.create(idempotency_key=key)
    assert first.sandbox_id == second.sandbox_id
    with pytest.raises(SandboxException) as raised:
        await sdk.create(idempotency_key=key, metadata={"another": "body"})
    assert raised.value.status_code == 422
    await done(first.kill())


async def test_a_wrong_key_is_refused(sdk):
    wrong = sdk.server.options() | {"api_key": "e2b_" + "0" * 40}
    with pytest.raises(AuthenticationException):
        await done(sdk.Sandbox.create(**wrong))
    with pytest.raises(AuthenticationException):
        await done(sdk.Sandbox.list(**wrong).next_items())


@pytest.mark.parametrize("key", ["e2b_", "nonsense", "e2b_nothex", "e2b_" + "0" * 4000])
async def test_a_key_that_is_none_is_refused(sdk, key):
    with pytest.raises(AuthenticationException):
        await done(sdk.Sandbox.kill("iwhatever", **(sdk.server.options() | {"api_key": key})))




async def test_e2bs_prefix_leads_to_the_same(sdk, one):
    options = sdk.server.options() | {"api_url": f"{sdk.server.url}/e2b/v1"}
    info = await done(sdk.Sandbox.get_info(one.sandbox_id, **options))
    assert info.sandbox_id == one.sandbox_id
    made = await sdk.create(api_url=f"{sdk.server.url}/e2b/v1")
    assert (await done(made.commands.run("echo prefix"))).stdout == "prefix\n"
    assert await done(made.kill()) is True


@pytest.fixture(scope="module")
def strict(another):
    """A server with a limit on everything."""
    return another("strict", ["limits.sandboxes_per_team=2", "limits.max_timeout=1h", "rate.calls=20", "rate.per=2s"])


async def test_a_limit_is_told_at_once(sdk, strict):
    options = strict.options()
    made = [await done(sdk.Sandbox.create(timeout=60, **options)) for _ in range(2)]
    with pytest.raises(RateLimitException):
        await done(sdk.Sandbox.create(timeout=60, **options))
    for sandbox in made:
        assert await done(sandbox.kill()) is True


async def test_a_timeout_beyond_the_limit_is_refused(sdk, strict):
    with pytest.raises(SandboxException, match="Timeout cannot be greater than 1 hours"):
        await done(sdk.Sandbox.create(timeout=3601, **strict.options()))


async def test_too_many_calls_wait_or_are_told(sdk, strict):
    # The SDK retries by itself when the server says how long to wait.
    options = strict.options()
    for _ in range(30):
        assert await done(sdk.Sandbox.kill("iunknown", **options)) is False


def test_a_limit_of_calls_has_headers(strict):
    # All are sent before the first answer is read: one after the other, a busy machine would not exceed the limit.
    call = f"GET /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {strict.key}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", strict.port), timeout=60) as line:
        line.sendall(call.encode() * 60)
        source, answers = line.makefile("rb"), []
        for _ in range(60):
            status = int(source.readline().split()[1])
            headers = http.client.parse_headers(source)
            answers.append((status, headers, source.read(int(headers["Content-Length"]))))
    (_, first, _), *others = answers
    assert first["RateLimit-Limit"] == "20"
    assert int(first["RateLimit-Remaining"]) < 20
    denied, said = next((headers, body) for status, headers, body in others if status == 429)
    assert int(denied["Retry-After"]) >= 1
    assert json.loads(said) == {"code": 429, "message": "Rate limit exceeded"}
