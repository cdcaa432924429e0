"""What goes wrong has its status, its body, and its exception; bad input leaves nothing behind."""

from __future__ import annotations

import time

import httpx
import pytest
from e2b import (
    AuthenticationException,
    InvalidArgumentException,
    RateLimitException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    TimeoutException,
)

from .conftest import TINY, new_installation
from .halves import done
from .wire import Wire, fails

NOBODY = "inosuchsandbox0000000"


async def test_a_wrong_key(sdk, server):
    with pytest.raises(AuthenticationException):
        await done(sdk.create(**server.options() | {"api_key": "e2b_" + "0" * 40}))
    with pytest.raises(AuthenticationException):
        await done(sdk.list(**server.options() | {"api_key": "nonsense"}).next_items())


@pytest.mark.parametrize("key", ["", "x", "e2b_", "e2b_zz", "e2b_" + "0" * 40, "e2b_" + "0" * 4000])
def test_a_wrong_key_on_the_wire(server, key):
    fails(httpx.get(f"{server.url}/v2/sandboxes", headers={"X-API-Key": key}), 401)


def test_no_key(server):
    fails(httpx.get(f"{server.url}/v2/sandboxes"), 401)


async def test_a_template_that_is_not_there(sdk, options, wire):
    before = wire.ids()
    with pytest.raises(SandboxException, match="template 'no-such-template' not found") as failed:
        await done(sdk.create("no-such-template", **options))
    assert failed.value.status_code == 404 and wire.ids() == before


async def test_a_tag_that_is_not_there(sdk, options):
    with pytest.raises(SandboxException, match="tag 'no-such-tag' does not exist for template 'base'") as failed:
        await done(sdk.create("base:no-such-tag", **options))
    assert failed.value.status_code == 404


@pytest.mark.parametrize("timeout", [0, -1, 24 * 3600 + 1, 10**9])
async def test_a_timeout_that_is_none(sdk, options, timeout):
    with pytest.raises(SandboxException) as failed:
        await done(sdk.create(timeout=timeout, **options))
    assert failed.value.status_code == 400


def test_an_oversize_timeout_says_what_is_allowed(wire):
    answer = wire.post("/v2/sandboxes", json={"templateID": "base", "timeout": 10**6})
    fails(answer, 400, "cannot be greater than 24 hours")


@pytest.mark.parametrize(
    "network",
    [{"deny_out": ["300.0.0.0/8"]}, {"deny_out": ["1.2.3.4/40"]}, {"allow_out": ["not an address"]},
     {"deny_out": ["example.com"]}, {"mask_request_host": "-https://abcd"}],
)
async def test_a_malformed_rule(sdk, options, wire, network):
    before = wire.ids()
    with pytest.raises(SandboxException) as failed:
        await done(sdk.create(network=network, **options))
    assert failed.value.status_code == 400 and wire.ids() == before


async def test_a_foreign_sandbox_is_not_there(sdk, server, sandbox):
    foreign = server.options("other")
    for call in (sdk.get_info, sdk.connect, sdk.get_metrics):
        with pytest.raises(SandboxNotFoundException):
            await done(call(sandbox.sandbox_id, **foreign))
    with pytest.raises(SandboxNotFoundException):
        await done(sdk.set_timeout(sandbox.sandbox_id, 10, **foreign))
    assert await done(sdk.kill(sandbox.sandbox_id, **foreign)) is False
    assert sandbox.is_running()


@pytest.mark.parametrize("path", ["", "/connect", "/timeout", "/refreshes", "/metrics", "/logs", "/network"])
def test_what_is_not_there_is_404_everywhere(wire, path):
    bodies = {"/connect": {"timeout": 60}, "/timeout": {"timeout": 60}, "/refreshes": {"duration": 60}}
    if path == "/network":
        fails(wire.put(f"/sandboxes/{NOBODY}{path}", json={}), 404)
    elif path in bodies:
        fails(wire.post(f"/sandboxes/{NOBODY}{path}", json=bodies[path]), 404)
    else:
        fails(wire.get(f"/sandboxes/{NOBODY}{path}"), 404)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"text"', b'{"templateID": 5}', b"{}", b'{"templateID":"base","timeout":"x"}',
     b'{"templateID":"base","metadata":{"a":1}}', b'{"templateID":"base","envVars":[]}', b"\xff\xfe",
     b'{"templateID":"base","timeout":1.5}'],
)
def test_a_body_that_is_none(wire, body):
    answer = wire.post("/v2/sandboxes", content=body, headers={"Content-Type": "application/json"})
    fails(answer, 400)


def test_unknown_fields_are_left_alone(wire):
    answer = wire.post("/v2/sandboxes", json={"templateID": "base", "timeout": 30, "someday": {"x": 1}})
    assert answer.status_code == 201
    assert wire.delete(f"/sandboxes/{answer.json()['sandboxID']}").status_code == 204


def test_a_body_that_is_too_large(wire):
    answer = wire.post("/v2/sandboxes", json={"templateID": "base", "metadata": {"a": "x" * (17 << 20)}})
    fails(answer, 413)


def test_a_route_that_is_none(wire):
    fails(wire.get("/no/such/route"), 404)
    assert wire.post("/health").status_code == 405 or wire.post("/health").status_code == 404


@pytest.mark.parametrize("query", ["start=x", "start=20&end=10"])
def test_a_malformed_range_of_time(wire, sandbox, query):
    fails(wire.get(f"/sandboxes/{sandbox.sandbox_id}/metrics?{query}"), 400)


async def test_a_killed_sandbox(sdk, options):
    box = await done(sdk.create(timeout=60, **options))
    await done(box.kill())
    assert await done(box.is_running()) is False
    for call in (lambda: box.commands.run("true"), lambda: box.files.read("x"), lambda: box.files.list("/")):
        with pytest.raises(TimeoutException):
            await done(call())


async def test_a_wrong_token_of_a_sandbox(server, sandbox):
    named = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    for token in ({}, {"X-Access-Token": "wrong"}):
        answer = httpx.post(
            f"{server.url}/process.Process/List", json={}, headers=named | token | {"Connect-Protocol-Version": "1"}
        )
        assert answer.status_code == 401 and answer.json()["code"] in (401, "unauthenticated"), answer.text


async def test_a_request_that_takes_too_long(sandbox):
    sandbox.commands.run("truncate -s 8G /tmp/hollow")
    # In the middle of a body the SDK lets its transport's own exception through.
    with pytest.raises((TimeoutException, httpx.ReadTimeout)):
        sandbox.files.read("/tmp/hollow", format="bytes", request_timeout=0.05)


async def test_what_the_sdk_refuses_itself(sdk, box, options):
    with pytest.raises(AuthenticationException):
        await done(sdk.create(**options | {"api_key": ""}))
    with pytest.raises(InvalidArgumentException):
        await done(box.files.list("/", depth=-1))


@pytest.mark.timeout(180)
def test_ten_gigabytes_for_a_small_disk(server, options):
    """The upload ends when the disk is full, and not ten gigabytes later."""
    box, sent = Sandbox.create(TINY, timeout=120, **options), 0

    def body():
        nonlocal sent
        piece = bytes(1 << 20)
        while sent < 10 << 30:
            sent += len(piece)
            yield piece

    url = box.upload_url("huge")
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(10 << 30)}
    try:
        answer = httpx.post(url, content=body(), headers=headers, timeout=60)
        assert answer.status_code == 507 and answer.json()["code"] == 507
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        # The connection was closed in the middle of the body.
        pass
    # A moment's worth of what came too late was taken and thrown away, so that the answer arrives.
    assert sent < 6 << 30
    assert box.commands.run("echo alive").stdout == "alive\n"
    assert not box.files.exists("huge") or box.files.get_info("huge").size < 128 << 20
    box.kill()


@pytest.fixture(scope="module")
def strict(scratch):
    """A server that allows little."""
    settings = ["rate.calls=8", "rate.per=30s", "limits.sandboxes_per_team=1"]
    installation = new_installation(scratch / "strict", *settings)
    installation.start()
    yield installation
    installation.stop()
    left = installation.leftovers(server=True)
    installation.remove()
    assert left == []


@pytest.mark.timeout(120)
def test_limits(strict):
    """One server for both limits: how many sandboxes, and how many calls."""
    wire, options = Wire(strict), strict.options()
    box = Sandbox.create(timeout=100, **options)
    begun = time.monotonic()
    with pytest.raises(RateLimitException):
        Sandbox.create(**options)
    # It is no use to try again at once, and the client was told so.
    assert time.monotonic() - begun < 3
    answer = wire.post("/v2/sandboxes", json={"templateID": "base"})
    fails(answer, 429)
    assert answer.headers["should-retry"] == "false"
    assert box.kill() is True

    for _ in range(9):
        answer = wire.get("/v2/sandboxes")
    fails(answer, 429, "rate limit exceeded")
    assert (answer.headers["ratelimit-limit"], answer.headers["ratelimit-remaining"]) == ("8", "0")
    assert int(answer.headers["retry-after"]) >= 1 and int(answer.headers["ratelimit-reset"]) >= 1
    # Another route has a count of its own.
    assert wire.get(f"/sandboxes/{NOBODY}").status_code == 404
