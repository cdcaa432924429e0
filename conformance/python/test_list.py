"""Lists of sandboxes: pages, filters, order; and what no list shows."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone

import pytest
from e2b import Sandbox, SandboxException, SandboxQuery, SandboxState

from .halves import done
from .wire import Wire, fails


@pytest.fixture(scope="module")
def mark() -> str:
    return uuid.uuid4().hex


@pytest.fixture(scope="module")
def three(options, mark):
    """Three sandboxes in the order of their making."""
    made = [
        Sandbox.create(timeout=600, metadata={"mark": mark, "n": str(n), "odd key&": "v=1&2 ü%"}, **options)
        for n in range(3)
    ]
    yield [one.sandbox_id for one in made]
    for one in made:
        one.kill()


async def all_pages(paginator) -> list[list[str]]:
    pages = []
    while paginator.has_next:
        pages.append([one.sandbox_id for one in await done(paginator.next_items())])
    return pages


async def test_all_of_mine(sdk, options, three, mark):
    pages = await all_pages(sdk.list(query=SandboxQuery(metadata={"mark": mark}), **options))
    assert pages == [three[::-1]]


@pytest.mark.parametrize("limit, sizes", [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (100, [3])])
async def test_pages(sdk, options, three, mark, limit, sizes):
    pages = await all_pages(sdk.list(query=SandboxQuery(metadata={"mark": mark}), limit=limit, **options))
    assert [len(page) for page in pages] == sizes
    assert sum(pages, []) == three[::-1]


async def test_ascending(sdk, options, three, mark):
    paginator = sdk.list(query=SandboxQuery(metadata={"mark": mark}), limit=2, order="asc", **options)
    assert sum(await all_pages(paginator), []) == three


async def test_a_page_can_be_asked_for_later(sdk, options, three, mark):
    first = sdk.list(query=SandboxQuery(metadata={"mark": mark}), limit=1, **options)
    await done(first.next_items())
    second = sdk.list(
        query=SandboxQuery(metadata={"mark": mark}), limit=1, next_token=first.next_token, **options
    )
    assert [one.sandbox_id for one in await done(second.next_items())] == [three[1]]


async def test_metadata_that_has_to_be_escaped(sdk, options, three, mark):
    query = SandboxQuery(metadata={"mark": mark, "odd key&": "v=1&2 ü%"})
    assert len(sum(await all_pages(sdk.list(query=query, **options)), [])) == 3


async def test_all_pairs_must_match(sdk, options, three, mark):
    query = SandboxQuery(metadata={"mark": mark, "n": "1"})
    assert await all_pages(sdk.list(query=query, **options)) == [[three[1]]]
    query = SandboxQuery(metadata={"mark": mark, "n": "7"})
    assert await all_pages(sdk.list(query=query, **options)) == [[]]


@pytest.mark.parametrize("states, count", [(["running"], 3), (["paused"], 0), (["running", "paused"], 3)])
async def test_state(sdk, options, three, mark, states, count):
    query = SandboxQuery(metadata={"mark": mark}, state=[SandboxState(state) for state in states])
    assert len(sum(await all_pages(sdk.list(query=query, **options)), [])) == count


@pytest.mark.parametrize("template, count", [("base", 3), ("tiny", 0)])
async def test_template(sdk, options, three, mark, template, count):
    query = SandboxQuery(metadata={"mark": mark}, template=template)
    assert len(sum(await all_pages(sdk.list(query=query, **options)), [])) == count


async def test_started_after(sdk, options, three, mark):
    ago, ahead = (datetime.now(timezone.utc) + timedelta(hours=h) for h in (-1, 1))
    for when, count in ((ago, 3), (ahead, 0)):
        query = SandboxQuery(metadata={"mark": mark}, started_after=when)
        assert len(sum(await all_pages(sdk.list(query=query, **options)), [])) == count


async def test_what_is_said_of_each(sdk, options, three, mark):
    paginator = sdk.list(query=SandboxQuery(metadata={"mark": mark, "n": "0"}), **options)
    listed = (await done(paginator.next_items()))[0]
    info = await done(sdk.get_info(three[0], **options))
    for name in ("sandbox_id", "template_id", "name", "metadata", "started_at", "end_at", "state", "cpu_count"):
        assert getattr(listed, name) == getattr(info, name), name


async def test_an_ended_one_is_not_listed(sdk, options, mark):
    box = await done(sdk.create(metadata={"mark": f"{mark}-ended"}, **options))
    await done(box.kill())
    query = SandboxQuery(metadata={"mark": f"{mark}-ended"})
    assert await all_pages(sdk.list(query=query, **options)) == [[]]


async def test_a_foreign_one_is_not_listed(sdk, server, three, mark):
    foreign = sdk.list(query=SandboxQuery(metadata={"mark": mark}), **server.options("other"))
    assert await all_pages(foreign) == [[]]


async def test_the_sdk_says_what_the_server_says_of_a_bad_page(sdk, options):
    with pytest.raises(SandboxException, match="400"):
        await done(sdk.list(next_token="no-such-page", **options).next_items())


@pytest.mark.parametrize(
    "query",
    ["metadata=novalue", "metadata=a%3Db%3Dc", "limit=0", "limit=101", "limit=x", "state=asleep",
     "order=sideways", "nextToken=%00", "startedAfter=yesterday", "template=base:tag"],
)
def test_a_malformed_query(wire, query):
    fails(wire.get(f"/v2/sandboxes?{query}"), 400)


def test_the_headers_of_a_list(wire, three):
    answer = wire.get("/v2/sandboxes?limit=1")
    assert answer.headers["x-next-token"] and int(answer.headers["x-total-running"]) >= 3
    assert not wire.get("/v2/sandboxes?limit=100").headers.get("x-next-token")


def test_the_first_version_lists_too(wire, three, mark):
    found = wire.get("/sandboxes", params={"metadata": f"mark={mark}"}).json()
    assert sorted(one["sandboxID"] for one in found) == sorted(three)


def test_metrics_of_several(wire, three):
    answer = wire.get("/sandboxes/metrics", params={"sandbox_ids": ",".join(three)})
    assert answer.status_code == 200 and set(answer.json()["sandboxes"]) <= set(three)
