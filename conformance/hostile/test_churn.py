"""A thousand sandboxes are created and killed, many at once, without growth of the server.

`SHOAL_CHURN` says how many; `SHOAL_CHURN=1000` is the whole. Growth is measured from a fifth of
the way on, when everything that is made once has been made.
"""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from e2b import Sandbox

from ..installation import wait_until
from .conftest import SMALL, furnish, new_installation
from .machine import Call

CYCLES = int(os.environ.get("SHOAL_CHURN", "200"))
AT_ONCE = 16

#: The permitted growth: background work varies a little.
TOLERANCE = {
    "processes": 0, "groups": 0, "threads": 40, "descriptors": 40,
    # Ready network slots are created and removed all the time.
    "mounts": 12, "namespaces": 12, "links": 6,
    # The allocator's cache for each thread that was ever busy.
    "resident_kib": 16 << 10, "disk_kib": 16 << 10, "machine_namespaces": 24,
}


@pytest.fixture
def churning(scratch):
    installation = new_installation(scratch / "churning")
    furnish(installation)
    yield installation
    installation.stop()
    left = installation.all_gone()
    installation.remove()
    assert left == []


def cycle(server, number: int) -> None:
    options = server.options()
    runtime = ("runsc", "runc")[number % 2]
    sandbox = Sandbox.create(SMALL, metadata={"shoal/runtime": runtime}, **options)
    try:
        assert sandbox.commands.run(f"echo {number}").stdout == f"{number}\n"
    finally:
        assert sandbox.kill()


def measure(server) -> dict[str, int]:
    """The resource counts when the server is idle."""
    wait_until(lambda: not server.leftovers(), 60, f"quiet: {server.leftovers()}")
    # The ready slots are refilled.
    wait_until(lambda: server.counts()["links"] >= 4, 60, "ready slots")
    used = os.statvfs(server.data / "disk")
    counts = server.counts()
    counts["disk_kib"] = (used.f_blocks - used.f_bfree) * used.f_frsize >> 10
    # Unlike a search by pattern, this one continues if something goes meanwhile.
    below = os.walk(Path("/run/shoal") / server.instance)
    counts["machine_namespaces"] = sum(len(directories) + len(files) for _, directories, files in below)
    return counts


def grown(first: dict[str, int], last: dict[str, int]) -> dict[str, int]:
    return {name: last[name] - first[name] for name in first if last[name] - first[name] > TOLERANCE[name]}


@pytest.mark.timeout(1200)
def test_no_resource_grows(churning):
    begun = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda n: cycle(churning, n), range(CYCLES // 5)))
        first = measure(churning)
        list(pool.map(lambda n: cycle(churning, n), range(CYCLES // 5, CYCLES)))
        took = time.monotonic() - begun
        # Idle threads and surplus slots may go.
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not grown(first, measure(churning)), 60, "what is no growth")
        last = measure(churning)
    print(f"{CYCLES} cycles, {AT_ONCE} at once: {took:.0f} s, {CYCLES / took:.1f} a second")
    print(f"after {CYCLES // 5}: {first}")
    print(f"after {CYCLES}: {last}")
    assert grown(first, last) == {}
    assert Call(churning).ids() == []
