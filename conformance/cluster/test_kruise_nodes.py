"""Sandboxes of the E2B API whose pods are evicted, or whose node is gone for good."""

from __future__ import annotations

from collections import Counter

import pytest

from ..installation import wait_until
from .api import Api
from .conftest import replicas_of
from .serving import first_key
from .test_kruise_claims import call, create, plain_set, resources
from .test_sdk import available

#: The members of the pools.
POOL = 4
#: The garbage collector of pods waits for 40 s, and looks every 20 s.
COLLECTED = 150


@pytest.fixture(scope="module")
def replica(operator, cluster):
    for started in replicas_of(cluster, "nodes", 1):
        yield started[0]


@pytest.fixture(scope="module")
def key(replica, cluster):
    return first_key(cluster)


@pytest.fixture
def second_node(cluster):
    cluster.add_fake_node("fake-lost")
    yield "fake-lost"
    if "node-fake-lost" in cluster.processes.running:
        cluster.processes.kill("node-fake-lost")
        cluster.delete("node", "fake-lost", missing_ok=True)


def spread(made: dict) -> dict:
    """A set whose pods are on all nodes alike."""
    template = made["spec"]["template"]
    template.setdefault("metadata", {}).setdefault("labels", {})["spread"] = made["metadata"]["name"]
    template["spec"]["topologySpreadConstraints"] = [{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"spread": made["metadata"]["name"]}},
    }]
    return made


def pods_by_node(cluster, names: set[str]) -> dict[str, str]:
    """The node of each of these pods."""
    return {
        one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in cluster.get("pods")["items"]
        if one["metadata"]["name"] in names
    }


def is_over(replica, key: str, sandbox: str) -> bool:
    """Whether a sandbox is reported as gone, or at least not as running."""
    status, answer = call(replica, key, "GET", f"/sandboxes/{sandbox}")
    return status == 404 or answer["state"] != "running"


def listed(replica, key: str) -> set[str]:
    return {one["sandboxID"] for one in call(replica, key, "GET", "/v2/sandboxes?state=running")[1]}


def test_an_evicted_pod_ends_its_sandbox_and_no_other(replica, key, cluster):
    cluster.apply(plain_set("evicted", 2))
    wait_until(lambda: available(cluster, "evicted") >= 2, 90, "a full pool")
    goes, stays = (create(replica, key, "evicted", timeout=600)["sandboxID"] for _ in range(2))
    names = {sandbox: one["metadata"]["name"] for sandbox, one in resources(cluster, "evicted").items()}
    eviction = {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": names[goes], "namespace": "default"},
    }
    Api(cluster).create(f"/api/v1/namespaces/default/pods/{names[goes]}/eviction", eviction)
    wait_until(lambda: is_over(replica, key, goes), 60, "the sandbox of an evicted pod does not run")
    assert goes not in listed(replica, key) and stays in listed(replica, key)
    wait_until(lambda: available(cluster, "evicted") >= 2, 90, "the pool is full again")
    # Its object tells an administrator why, until its user deletes it.
    assert call(replica, key, "DELETE", f"/api/v1/sandbox/{names[goes]}")[0] == 200
    assert call(replica, key, "DELETE", f"/sandboxes/{stays}")[0] == 204
    wait_until(lambda: not resources(cluster, "evicted"), 60, "nothing is left of them")
    assert call(replica, key, "DELETE", f"/sandboxes/{goes}")[0] == 404


@pytest.mark.timeout(400)
def test_a_node_that_is_gone_takes_its_own_sandboxes_only(replica, key, cluster, second_node):
    cluster.apply(spread(plain_set("lost", POOL)))
    wait_until(lambda: available(cluster, "lost") >= POOL, 90, "a full pool")
    made = [create(replica, key, "lost", timeout=600)["sandboxID"] for _ in range(POOL)]
    wait_until(lambda: available(cluster, "lost") >= POOL, 90, "the pool is full again")
    names = {one["metadata"]["name"]: sandbox for sandbox, one in resources(cluster, "lost").items()}
    nodes = pods_by_node(cluster, set(names))
    assert set(Counter(nodes.values())) == {"fake-0", second_node}, "pods on both nodes"
    cluster.processes.kill(f"node-{second_node}")
    cluster.delete("node", second_node)
    lost = {names[pod] for pod, node in nodes.items() if node == second_node}
    wait_until(lambda: all(is_over(replica, key, one) for one in lost), COLLECTED, "sandboxes of the lost node do not run")
    assert listed(replica, key) & set(made) == set(made) - lost
    wait_until(lambda: available(cluster, "lost") >= POOL, 120, "the pool is full, on the other node")
    for sandbox in made:
        assert call(replica, key, "DELETE", f"/sandboxes/{sandbox}")[0] == 204
    wait_until(lambda: not pods_by_node(cluster, set(names)), COLLECTED, "no pod is left")
    wait_until(lambda: not resources(cluster, "lost"), 60, "no sandbox is left")
