"""A server that is killed while it parks and wakes sandboxes loses none of them, and nothing of their memory."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Sandbox

from ..installation import Installation, wait_until
from ..parked import PARKING
from .conftest import create, furnished
from .machine import Call
from .test_crash import ROUNDS as CRASHES, SEED

#: Each takes several seconds.
ROUNDS = CRASHES // 3

COUNT = 3


@pytest.fixture
def parking(scratch):
    with furnished(scratch, "crash-parked", *PARKING) as installation:
        yield installation


def read(sandbox: Sandbox) -> str:
    """A line of its memory and one of its disk."""
    return sandbox.commands.run("cat /dev/shm/own ~/own").stdout


def wake(server: Installation, sandbox: Sandbox) -> None:
    """A request that the crash may interrupt."""
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8080"}
    try:
        Call(server).get("/", headers=headers)
    except Exception as error:  # noqa: BLE001 — the server is killed meanwhile
        print(f"interrupted: {error!r}")


def all_parked(server: Installation) -> bool:
    status, told = Call(server).get("/api/v1/sandbox")
    assert status == 200, told
    return all(one["parked"] for one in told["data"])


@pytest.mark.timeout(900)
def test_a_crash_during_a_park_or_a_wake_loses_nothing(parking):
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance = random.Random(SEED)
    sandboxes = [create(parking, "runsc", timeout=3600) for _ in range(COUNT)]
    expected = {}
    for sandbox in sandboxes:
        own = sandbox.sandbox_id
        sandbox.commands.run(f"echo {own} > /dev/shm/own; echo {own} > ~/own")
        expected[own] = f"{own}\n{own}\n"
    for number in range(ROUNDS):
        if number % 2 == 0:
            # Parks begin a second after the last use.
            time.sleep(chance.uniform(0.8, 2.5))
            parking.crash()
        else:
            wait_until(lambda: all_parked(parking), 120, "all are parked")
            with ThreadPoolExecutor(COUNT) as clients:
                for sandbox in sandboxes:
                    clients.submit(wake, parking, sandbox)
                time.sleep(chance.uniform(0, 0.8))
                parking.crash()
        parking.start()
        for sandbox in sandboxes:
            assert read(sandbox) == expected[sandbox.sandbox_id], number
    for sandbox in sandboxes:
        assert sandbox.kill()
