"""Claimed sandboxes whose users are done with them, on a real API server with a fake node."""

from __future__ import annotations

from ..installation import wait_until
from .operator import condition
from .test_kruise_sandbox import KIND, in_phase, is_ready, missing, patch, pod_template, sandbox, wait_for, wait_until_ready
from .test_kruise_sandboxclaim import claim, completed, of_claim, told
from .test_kruise_set import pool, wait_until_full

PREFIX = "agents.kruise.io/"
ENABLED = {f"{PREFIX}cleanup-enabled": "true"}


def give_back(cluster, name: str) -> None:
    patch(cluster, KIND, name, {"metadata": {"annotations": {f"{PREFIX}cleanup": "true"}}})


def test_a_sandbox_that_is_given_back_is_replaced(operator, cluster):
    cluster.apply(pool("returns", 1, pod_template(annotations=ENABLED)))
    wait_until_full(cluster, "returns", 1)
    cluster.apply(claim("user", "returns"))
    completed(cluster, "user")
    [taken] = of_claim(cluster, "user")
    name = taken["metadata"]["name"]
    assert taken["metadata"]["annotations"][f"{PREFIX}cleanup-enabled"] == "true"
    give_back(cluster, name)
    wait_until(lambda: missing(cluster, KIND, name) and missing(cluster, "pod", name), 60, "it is gone, and its pod")
    told(cluster, name, "SandboxRecycled")
    # No other one is: the claim is a job that is done.
    assert wait_until_full(cluster, "returns", 1)
    assert of_claim(cluster, "user") == []


def test_a_sandbox_that_comes_from_no_pool_stays(operator, cluster):
    cluster.apply(sandbox("stays", annotations=ENABLED))
    wait_until_ready(cluster, "stays")
    give_back(cluster, "stays")
    found = wait_for(
        cluster, "stays", lambda one: condition(one, "Recycling").get("reason") == "RecyclingRejected", "rejected"
    )
    assert in_phase("Running")(found) and is_ready(found)
    told(cluster, "stays", "RecyclingRejected")


def test_one_that_has_failed_is_replaced_too(operator, cluster):
    cluster.apply(pool("fails", 2, pod_template(annotations=ENABLED | {f"{PREFIX}cleanup-retain-on-failure": "1h"})))
    wait_until_full(cluster, "fails", 2)
    cluster.apply(claim("unlucky", "fails", replicas=2))
    completed(cluster, "unlucky")
    first, second = (one["metadata"]["name"] for one in of_claim(cluster, "unlucky"))
    for name in (first, second):
        cluster.delete("pod", name, wait=False)
        wait_for(cluster, name, in_phase("Failed"), "failed")
    # Its pool keeps such sandboxes for a while.
    give_back(cluster, first)
    kept = wait_for(cluster, first, lambda one: condition(one, "Recycling").get("reason") == "RecyclingFailed", "kept")
    assert kept["spec"]["shutdownTime"]
    patch(cluster, KIND, second, {"metadata": {"annotations": {f"{PREFIX}cleanup-retain-on-failure": None}}})
    give_back(cluster, second)
    wait_until(lambda: missing(cluster, KIND, second), 60, "it is gone")
    assert not missing(cluster, KIND, first)
