"""Quotas of API keys, over replicas that compete and die: never more than a quota allows, and all of it again later."""

from __future__ import annotations

import concurrent.futures
import json
import random
import threading

import pytest

from ..installation import wait_until
from . import manifests
from .conftest import replicas_of
from .proxy import Faults, Proxy
from .serving import ACCOUNT, Replica, first_key
from .test_kruise_claims import PLAIN, call, plain_set
from .test_sdk import available

KIND = "sandboxes.agents.kruise.io"
#: The most seconds until the reservations of a replica that died are removed.
ABANDONED = 180


@pytest.fixture(scope="module")
def replicas(operator, cluster):
    yield from replicas_of(cluster, "quotas", 3)


@pytest.fixture(scope="module")
def admin(replicas, cluster):
    return first_key(cluster)


def limit(dimension: str, most: int, scope: str = "all") -> dict:
    return {"dimension": dimension, "scope": scope, "limit": most}


def limited(replicas: list[Replica], admin: str, *limits: dict) -> dict:
    """A new key with a quota, which all replicas know."""
    status, made = call(replicas[0], admin, "POST", "/api-keys", {"name": "limited", "quota": {"limits": list(limits)}})
    assert status == 201 and made["quota"]["limits"], made
    for replica in replicas:
        wait_until(lambda replica=replica: call(replica, made["key"], "GET", "/v2/sandboxes")[0] == 200, 60, "the key")
    return made


def create(replica: Replica, key: str, template: str, **metadata: str) -> tuple[int, dict]:
    body = {"templateID": template, "timeout": 600, "metadata": PLAIN | metadata}
    return call(replica, key, "POST", "/sandboxes", body)


def held(cluster, key: dict) -> list[dict]:
    listed = cluster.get(KIND, labels=f"agents.kruise.io/quota-key={key['id']}")["items"]
    return [one for one in listed if "deletionTimestamp" not in one["metadata"]]


def reservations(cluster) -> dict:
    found = cluster.find("configmap", "e2b-quotas", namespace=manifests.NAMESPACE)
    return (found or {}).get("data", {})


def pool(cluster, name: str, replicas: int) -> None:
    cluster.apply(plain_set(name, replicas))
    wait_until(lambda: available(cluster, name) >= replicas, 90, "a full pool")


def until_known(replicas: list[Replica], admin: str, template: str) -> None:
    for replica in replicas:
        wait_until(lambda replica=replica: call(replica, admin, "GET", f"/templates/{template}")[0] == 200, 60, "the template")


def test_replicas_that_compete_never_exceed_a_quota(replicas, admin, cluster):
    most, users = 5, 18
    pool(cluster, "raced", 3)
    until_known(replicas, admin, "raced")
    key = limited(replicas, admin, limit("sandbox.count", most))

    def one(number: int) -> tuple[int, dict]:
        return create(replicas[number % 3], key["key"], "raced")

    with concurrent.futures.ThreadPoolExecutor(users) as at_once:
        answers = list(at_once.map(one, range(users)))
    made = [answer["sandboxID"] for status, answer in answers if status == 201]
    refused = [answer for status, answer in answers if status != 201]
    assert len(set(made)) == most, refused
    assert all(answer["code"] == 403 and "quota exceeded" in answer["message"] for answer in refused), refused
    assert len(held(cluster, key)) == most
    assert not reservations(cluster)
    # The quota of a deleted sandbox is free at once, at every replica.
    for number, sandbox in enumerate(made):
        assert call(replicas[number % 3], key["key"], "DELETE", f"/sandboxes/{sandbox}")[0] == 204
        assert create(replicas[(number + 1) % 3], key["key"], "raced")[0] == 201
        assert create(replicas[number % 3], key["key"], "raced")[0] == 403
    # A key without a quota has none.
    assert create(replicas[0], admin, "raced")[0] == 201


def test_a_quota_holds_while_sandboxes_come_and_go(replicas, admin, cluster):
    most = 4
    pool(cluster, "churned", 2)
    until_known(replicas, admin, "churned")
    key = limited(replicas, admin, limit("sandbox.count", most))
    faults, created = [], []

    def use(seed: int) -> None:
        chance, own = random.Random(seed), []
        for _ in range(12):
            replica = chance.choice(replicas)
            if own and chance.random() < 0.5:
                status, answer = call(replica, key["key"], "DELETE", f"/sandboxes/{own.pop()}")
                good = status == 204
            else:
                status, answer = create(replica, key["key"], "churned")
                good = status in (201, 403)
                if status == 201:
                    own.append(answer["sandboxID"])
                    created.append(answer["sandboxID"])
            if not good:
                faults.append(answer)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    counts = []
    while any(thread.is_alive() for thread in threads):
        counts.append(len(held(cluster, key)))
    assert not faults
    assert max(counts) <= most and len(created) > most
    assert not reservations(cluster)
    while create(replicas[0], key["key"], "churned")[0] == 201:
        pass
    assert len(held(cluster, key)) == most, "nothing is lost"


def test_processors_and_memory_are_counted(replicas, admin, cluster):
    # New sandboxes begin with what they ask for: no node has to resize them.
    pool(cluster, "sized", 0)
    until_known(replicas, admin, "sized")
    # Each sandbox has half a processor and 256 MiB.
    key = limited(replicas, admin, limit("limits.cpu", 2000), limit("limits.memory", 768))
    status, first = create(replicas[0], key["key"], "sized", **{"e2b.agents.kruise.io/cpu-limit": "1200m"})
    assert status == 201, first
    status, refused = create(replicas[1], key["key"], "sized", **{"e2b.agents.kruise.io/cpu-scale-factor": "2"})
    assert status == 403 and "limits.cpu" in refused["message"] and "1200" in refused["message"], refused
    status, second = create(replicas[1], key["key"], "sized")
    assert status == 201, second
    resize = lambda cpu: call(replicas[2], key["key"], "PATCH", f"/api/v1/sandbox/{second['sandboxID']}/resources", {"cpu": cpu})  # noqa: E731
    status, refused = resize("900m")
    assert status == 403 and "limits.cpu" in str(refused), refused
    status, resized = resize("750m")
    assert status == 200, resized
    status, refused = create(replicas[0], key["key"], "sized")
    assert status == 403 and "1950" in refused["message"], refused
    assert call(replicas[0], key["key"], "DELETE", f"/sandboxes/{first['sandboxID']}")[0] == 204
    for _ in range(2):
        assert create(replicas[2], key["key"], "sized")[0] == 201
    assert resize("250m")[0] == 200
    status, refused = create(replicas[1], key["key"], "sized")
    assert status == 403 and "limits.memory" in refused["message"], refused
    assert not reservations(cluster)


def test_a_pause_frees_what_runs(replicas, admin, cluster):
    pool(cluster, "rested", 1)
    until_known(replicas, admin, "rested")
    key = limited(replicas, admin, limit("sandbox.count", 1, "running"), limit("sandbox.count", 2))
    first = create(replicas[0], key["key"], "rested")[1]["sandboxID"]
    status, refused = create(replicas[1], key["key"], "rested")
    assert status == 403 and "running" in refused["message"], refused
    assert call(replicas[0], key["key"], "POST", f"/sandboxes/{first}/pause", {})[0] == 204
    second = create(replicas[1], key["key"], "rested")[1]["sandboxID"]
    # A resume may exceed what may run, and blocks the next create.
    assert call(replicas[2], key["key"], "POST", f"/sandboxes/{first}/connect", {"timeout": 600})[0] == 201
    assert call(replicas[0], key["key"], "DELETE", f"/sandboxes/{second}")[0] == 204
    assert create(replicas[1], key["key"], "rested")[0] == 403


def test_what_a_dead_replica_has_reserved_is_free_again(replicas, admin, cluster):
    pool(cluster, "orphaned", 0)
    until_known(replicas, admin, "orphaned")
    key = limited(replicas, admin, limit("sandbox.count", 1))
    proxy = Proxy(cluster, seed=1, user=f"system:serviceaccount:{manifests.NAMESPACE}:{ACCOUNT}")
    dying = Replica(cluster, "quotas-dying", proxy.configuration)
    dying.start()
    until_known([dying], admin, "orphaned")
    proxy.inject(Faults(held=("POST sandboxes",)))
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        answer = other.submit(create, dying, key["key"], "orphaned")
        wait_until(lambda: proxy.injected["held"], 60, "a create that the API server does not see")
        dying.kill()
        with pytest.raises(OSError):
            answer.result()
    assert len(reservations(cluster)) == 1 and not held(cluster, key)
    # The others cannot know yet whether the sandbox comes.
    assert create(replicas[0], key["key"], "orphaned")[0] == 403
    wait_until(lambda: not reservations(cluster), ABANDONED, "the reservation is removed")
    assert create(replicas[1], key["key"], "orphaned")[0] == 201
    assert create(replicas[2], key["key"], "orphaned")[0] == 403
    proxy.close()


def test_a_quota_is_of_a_key_and_only_an_admin_gives_one(replicas, admin, cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "limited"}})
    body = {"name": "theirs", "teamName": "limited", "quota": {"limits": [limit("sandbox.count", 0)]}}
    status, made = call(replicas[0], admin, "POST", "/api-keys", body)
    assert status == 201, made
    wait_until(lambda: call(replicas[0], made["key"], "GET", "/v2/sandboxes")[0] == 200, 60, "the key")
    assert call(replicas[0], made["key"], "POST", "/api-keys", {"name": "more"})[0] == 403
    for wrong in (
        {"limits": [limit("sandbox.count", -1)]}, {"limits": [limit("gpus", 1)]}, {"limits": 1},
        {"limits": [limit("limits.cpu", 1), limit("limits.cpu", 2)]},
    ):
        assert call(replicas[0], admin, "POST", "/api-keys", {"name": "x", "quota": wrong})[0] == 400
    kept = limited(replicas, admin, limit("sandbox.count", 7))
    listed = call(replicas[1], admin, "GET", "/api-keys")[1]
    assert [one["quota"] for one in listed if one["id"] == kept["id"]] == [{"limits": [limit("sandbox.count", 7)]}]
    # A template that does not say what it uses cannot be counted.
    cluster.apply(unbounded := json.loads(json.dumps(plain_set("unbounded", 0))))
    del unbounded["spec"]["template"]["spec"]["containers"][0]["resources"]
    cluster.apply(unbounded)
    until_known(replicas[:1], admin, "unbounded")
    key = limited(replicas, admin, limit("limits.memory", 1024))
    told = wait_until(lambda: (seen := create(replicas[0], key["key"], "unbounded"))[0] == 400 and seen[1], 60, "a refusal")
    assert "limits.memory" in told["message"]
