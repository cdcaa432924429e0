"""Replicas, operators and API servers die while users create and delete sandboxes: answers stay true.

`SHOAL_CHAOS_KILLS` says how often the operator is killed, and `SHOAL_CHAOS_SEED` repeats the moments of another run.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

import pytest

from ..installation import wait_until
from .conftest import replicas_of
from .serving import Replica, first_key
from .test_kruise_claims import PLAIN, call, create, plain_set, resources
from .test_sdk import available

#: The members of the pool.
POOL = 6
#: How often the operator is killed.
KILLS = int(os.environ.get("SHOAL_CHAOS_KILLS", "6"))
SEED = int(os.environ.get("SHOAL_CHAOS_SEED", str(time.time_ns())))
#: How long the API server is away, and how soon errors come meanwhile, in seconds.
AWAY, SOON = 30, 15
#: How many sandboxes the users get between two kills.
BETWEEN = 8
#: The lifetime of sandboxes whose create got no answer.
TIMEOUT = 600
#: How long a new sandbox may take until it is ready.
READY = 300
#: Errors of a request to a replica that dies, or while the API server is away.
NO_ANSWER = (OSError, http.client.HTTPException, json.JSONDecodeError)


@dataclass
class User:
    """Creates and deletes sandboxes, each time at a replica that it chooses by chance."""

    replicas: list[Replica]
    key: str
    random: random.Random
    #: IDs of sandboxes whose create was answered.
    held: list[str] = field(default_factory=list)
    #: IDs of sandboxes whose delete was answered.
    gone: set[str] = field(default_factory=set)
    #: IDs of sandboxes whose delete was not answered, or not well.
    unsure: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                if len(self.held) > 4 and self.random.random() < 0.5:
                    self.delete()
                else:
                    self.create()
            except NO_ANSWER:
                continue
            except Exception as fault:  # noqa: BLE001 - shown by the test
                self.faults.append(repr(fault))
                return

    def create(self) -> None:
        body = {"templateID": "chaos", "timeout": TIMEOUT, "metadata": PLAIN}
        status, answer = call(self.random.choice(self.replicas), self.key, "POST", "/sandboxes", body)
        if status == 201:
            self.held.append(answer["sandboxID"])

    def delete(self) -> None:
        sandbox = self.held.pop(self.random.randrange(len(self.held)))
        self.unsure.add(sandbox)
        status, _ = call(self.random.choice(self.replicas), self.key, "DELETE", f"/sandboxes/{sandbox}")
        if status == 204:
            self.unsure.discard(sandbox)
            self.gone.add(sandbox)


def answered(users: list[User]) -> int:
    return sum(len(user.held) + len(user.gone) for user in users)


def stream(replica: Replica, key: str) -> http.client.HTTPResponse:
    """An answer that a replica has started to send, and that is not read yet."""
    connection = http.client.HTTPConnection("127.0.0.1", replica.port, timeout=60)
    connection.request("GET", "/v2/sandboxes?limit=100", headers={"X-API-Key": key})
    return connection.getresponse()


@pytest.fixture(scope="module")
def replicas(operator, cluster):
    yield from replicas_of(cluster, "chaos", 3)


@contextlib.contextmanager
def users_at_work(cluster, replicas: list[Replica], key: str):
    """Users who create and delete sandboxes. At the end, what they were told must be true."""
    cluster.apply(plain_set("chaos", POOL))
    wait_until(lambda: available(cluster, "chaos") >= POOL, 90, "a full pool")
    wait_until(lambda: call(replicas[0], key, "GET", "/v2/sandboxes")[0] == 200, 60, "the key")
    users = [User(replicas, key, random.Random(number)) for number in range(6)]
    stop = threading.Event()
    threads = [threading.Thread(target=user.run, args=(stop,)) for user in users]
    for thread in threads:
        thread.start()
    try:
        yield users
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not [fault for user in users for fault in user.faults]
    check(cluster, replicas, key, users)
    for user in users:
        for sandbox in user.held:
            assert call(replicas[0], key, "DELETE", f"/sandboxes/{sandbox}")[0] == 204


def wait_for_answers(users: list[User], count: int) -> None:
    """Waits until users got so many answers more."""
    seen = answered(users)
    wait_until(lambda: answered(users) >= seen + count, 120, f"{count} more answers")


@pytest.mark.timeout(600)
def test_what_was_answered_holds_while_replicas_die(replicas, cluster):
    key = first_key(cluster)
    with users_at_work(cluster, replicas, key) as users:
        for number in range(9):
            wait_for_answers(users, BETWEEN)
            if number == 4:
                cluster.restart_api_server()
                continue
            victim, other = replicas[number % 3], replicas[(number + 1) % 3]
            begun = stream(other, key)
            victim.kill()
            # Answers of other replicas continue.
            assert begun.status == 200 and isinstance(json.loads(begun.read()), list)
            victim.start()


@pytest.mark.timeout(600)
def test_what_was_answered_holds_while_the_api_server_is_away(replicas, cluster):
    """Reads are answered meanwhile, and writes fail soon and clearly."""
    key = first_key(cluster)
    with users_at_work(cluster, replicas, key) as users:
        wait_for_answers(users, BETWEEN)
        # None of the users deletes it.
        mine = create(replicas[0], key, "chaos", timeout=TIMEOUT)["sandboxID"]
        for replica in replicas:
            wait_until(lambda replica=replica: call(replica, key, "GET", f"/sandboxes/{mine}")[0] == 200, 30, "all know it")
        cluster.stop_api_server()
        try:
            end = time.monotonic() + AWAY
            while time.monotonic() < end:
                for replica in replicas:
                    assert call(replica, key, "GET", f"/sandboxes/{mine}")[0] == 200
                    begun = time.monotonic()
                    status, answer = call(replica, key, "POST", "/sandboxes", {"templateID": "chaos", "metadata": PLAIN})
                    assert status >= 500 and answer["message"], (status, answer)
                    assert time.monotonic() - begun < SOON, "an error comes soon"
                time.sleep(1)
        finally:
            cluster.restart_api_server()
        wait_for_answers(users, BETWEEN)
        assert call(replicas[0], key, "DELETE", f"/sandboxes/{mine}")[0] == 204


@pytest.mark.timeout(300 + 10 * KILLS)
def test_what_was_answered_holds_while_the_operator_dies(operator, replicas, cluster):
    chance = random.Random(SEED)
    with users_at_work(cluster, replicas, first_key(cluster)) as users:
        for number in range(KILLS):
            time.sleep(chance.uniform(0, 1.5))
            operator.kill()
            operator.start()
            print(f"seed {SEED}, kill {number}: {answered(users)} answers", flush=True)
        wait_for_answers(users, BETWEEN)
    wait_until(lambda: not left_over(cluster), 120, "nothing is left over")


def left_over(cluster) -> list[str]:
    """Pods and sandboxes that belong to nobody: neither claimed, nor among the members of the pool."""
    listed = cluster.get("sandboxes.agents.kruise.io")["items"]
    owners = {one["metadata"]["uid"] for one in listed}
    found = [
        one["metadata"]["name"] for one in cluster.get("pods")["items"]
        if not any(owner["uid"] in owners for owner in one["metadata"].get("ownerReferences", []))
    ]
    waiting = [one for one in listed if one["metadata"]["labels"].get("agents.kruise.io/sandbox-claimed") == "false"]
    return found + [one["metadata"]["name"] for one in waiting[POOL:]]


def check(cluster, replicas: list[Replica], key: str, users: list[User]) -> None:
    held = [sandbox for user in users for sandbox in user.held]
    gone = {sandbox for user in users for sandbox in user.gone}
    unsure = {sandbox for user in users for sandbox in user.unsure}
    print(f"{len(held)} held, {len(gone)} gone, {len(unsure)} unsure")
    assert len(held) > 6 and len(set(held)) == len(held), "each answer is a sandbox of its own"
    known = resources(cluster, "chaos")
    assert set(held) <= set(known)
    uids = [known[sandbox]["metadata"]["uid"] for sandbox in held]
    assert len(set(uids)) == len(held), "no sandbox has two users"
    for replica in replicas:
        for sandbox in held:
            assert call(replica, key, "GET", f"/sandboxes/{sandbox}")[0] == 200
        for sandbox in gone:
            wait_until(
                lambda sandbox=sandbox, replica=replica: call(replica, key, "GET", f"/sandboxes/{sandbox}")[0] == 404,
                30, f"{sandbox} is gone",
            )
    # A create without an answer may have left a sandbox, which ends by itself. The time of one that was made for it begins
    # when it is ready.
    latest = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=TIMEOUT + READY + 60)
    for sandbox, resource in resources(cluster, "chaos").items():
        if sandbox not in set(held) | gone:
            end = datetime.datetime.fromisoformat(resource["spec"]["shutdownTime"].replace("Z", "+00:00"))
            assert end <= latest, f"{sandbox} would stay forever"
    wait_until(lambda: available(cluster, "chaos") >= POOL, 90, "the pool is full again")
