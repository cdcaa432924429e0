"""The server is killed while it builds templates; what is ready starts, and nothing is left over.

`SHOAL_BUILD_CRASH_ROUNDS` says how often, twice at least; `SHOAL_CRASH_SEED` makes the run of a printed seed again.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time

import pytest
from e2b import Sandbox

from ..installation import wait_until
from .conftest import furnished
from .machine import Call, run

ROUNDS = int(os.environ.get("SHOAL_BUILD_CRASH_ROUNDS", "12"))
SEED = int(os.environ.get("SHOAL_CRASH_SEED", str(random.SystemRandom().randrange(1 << 32))))


@pytest.fixture
def server(scratch):
    with furnished(scratch, "crash-build", "disk.size=1GiB") as installation:
        yield installation


def begin(call: Call, name: str, words: list[str]) -> dict:
    """A build with some steps, of which cached ones are not repeated."""
    status, begun = call.post("/v3/templates", {"name": name, "cpuCount": 1, "memoryMB": 256})
    assert status == 202, begun
    steps = [{"type": "RUN", "args": [f"echo {word} >> ~/words"]} for word in words]
    body = {"fromTemplate": "base", "steps": steps, "startCmd": "sleep infinity", "readyCmd": "true"}
    status, answer = call.post(f"/v2/templates/{begun['templateID']}/builds/{begun['buildID']}", body)
    assert status == 202, answer
    return begun


def snapshots_on_disk(server) -> set[str]:
    return {entry.name for entry in (server.data / "disk/.snapshots").iterdir()}


def snapshots_noted(server) -> set[str]:
    """The snapshots in the store."""
    with sqlite3.connect(f"file:{server.data}/shoal.db?mode=ro", uri=True) as store:
        layers = [json.loads(row[0])["snapshot"] for row in store.execute("SELECT document FROM layers")]
        builds = [json.loads(row[0])["made"] for row in store.execute("SELECT document FROM builds")]
    return {layer["id"] for layer in layers} | {made["snapshot"]["id"] for made in builds if made}


def status_of(call: Call, build: dict) -> dict:
    status, said = call.get(f"/templates/{build['templateID']}/builds/{build['buildID']}/status")
    assert status == 200, said
    return said


def seconds_of_a_build(call: Call) -> float:
    """How long a build takes that nothing interrupts."""
    began = time.monotonic()
    build = begin(call, "crash-not", ["a", "c"])
    wait_until(lambda: status_of(call, build)["status"] == "ready", 300, "a build without a crash")
    assert call.delete("/templates/crash-not")[0] == 204
    return time.monotonic() - began


@pytest.mark.timeout(1500)
def test_a_crash_during_a_build_leaves_nothing(server):
    print(f"SHOAL_CRASH_SEED={SEED}")
    chance = random.Random(SEED)
    call, outcomes = Call(server), {"ready": 0, "error": 0}
    # A crash comes before the builds are ready, or after: two of them take twice the time of one.
    longest = 2 * seconds_of_a_build(call)
    for number in range(ROUNDS):
        begun = {}
        for which in range(2):
            words = [chance.choice("ab"), chance.choice("cd"), f"{number}-{which}"]
            begun[f"crash-{which}"] = (begin(call, f"crash-{which}", words), words)
        # However busy the machine is: the first crash interrupts builds, and the second does not.
        if number == 1:
            for build, _ in begun.values():
                wait_until(lambda build=build: status_of(call, build)["status"] == "ready", 300, "a build")
        elif number > 1:
            time.sleep(chance.uniform(0, longest))
        server.crash()
        server.start()
        for name, (build, words) in begun.items():
            said = status_of(call, build)
            assert said["status"] in outcomes, said
            outcomes[said["status"]] += 1
            if said["status"] == "error":
                assert "restarted" in said["reason"]["message"], said
            else:
                inside = Sandbox.create(name, timeout=300, **server.options())
                assert inside.files.read("words").split() == words
                # The snapshot may have been taken before the shell had become that program.
                sleeps = lambda: run(inside, "pgrep -c sleep").out == "1\n"  # noqa: E731
                wait_until(sleeps, 60, "the start command")
                inside.kill()
        wait_until(lambda: snapshots_on_disk(server) == snapshots_noted(server), 60, "a record of every snapshot")
        wait_until(lambda: server.leftovers() == [], 60, "the sandboxes of its builds are gone")
    assert min(outcomes.values()) > 0, outcomes
    for name in ("crash-0", "crash-1"):
        assert call.delete(f"/templates/{name}")[0] in (204, 404)
    assert call.ids() == []
    wait_until(lambda: server.leftovers() == [], 60, "the end of the last sandbox")
