"""Claimed sandboxes that return to their pool, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import pytest

from ..installation import wait_until
from .operator import condition
from .test_kruise_sandbox import KIND, in_phase, missing, patch, pod_template, wait_for
from .test_kruise_sandboxclaim import claim, completed, of_claim, told
from .test_kruise_set import SETS, members, pool, wait_until_full

PREFIX = "agents.kruise.io/"
ENABLED = {f"{PREFIX}cleanup-enabled": "true"}


@pytest.fixture
def operator(request, operators):
    """An operator with the flags of the test."""
    made = operators("recycles", *getattr(request, "param", ()))
    yield made
    made.clear()
    made.stop()


def claimed(cluster, name: str, **annotations: str) -> dict:
    """A claimed sandbox of a new pool of one, which is full again."""
    cluster.apply(pool(name, 1, pod_template(annotations=ENABLED | annotations)))
    wait_until_full(cluster, name, 1)
    cluster.apply(claim(name, name, labels={"of": "user"}))
    completed(cluster, name)
    wait_until_full(cluster, name, 1)
    [taken] = of_claim(cluster, name)
    return taken


def give_back(cluster, name: str) -> None:
    patch(cluster, KIND, name, {"metadata": {"annotations": {f"{PREFIX}cleanup": "true"}}})


def test_a_sandbox_returns_with_a_new_pod(operator, cluster):
    taken = claimed(cluster, "returns")
    name, uid = taken["metadata"]["name"], taken["metadata"]["uid"]
    former = cluster.get("pod", name)["metadata"]
    assert former["labels"]["of"] == "user"
    # Room for it, which nothing else fills: a pool deletes what it has too many of, returned ones before others.
    patch(cluster, SETS, "returns", {"spec": {"replicas": 2, "scaleStrategy": {"maxUnavailable": 0}}})
    give_back(cluster, name)
    found = wait_for(cluster, name, lambda one: one["status"].get("recycledCount") == 1, "returned")
    assert found["metadata"]["uid"] == uid and in_phase("Running")(found)
    assert condition(found, "Recycling")["reason"] == "RecyclingSucceeded"
    labels, annotations = found["metadata"]["labels"], found["metadata"]["annotations"]
    assert labels[f"{PREFIX}sandbox-claimed"] == "false" and "of" not in labels and f"{PREFIX}claim-name" not in labels
    assert not {f"{PREFIX}{key}" for key in ("cleanup", "lock", "owner", "claim-timestamp")} & set(annotations)
    [owner] = found["metadata"]["ownerReferences"]
    assert owner["kind"] == "SandboxSet" and owner["controller"]
    pod = cluster.get("pod", name)["metadata"]
    assert pod["uid"] != former["uid"] and "of" not in pod["labels"]
    wait_until(lambda: name in {one["metadata"]["name"] for one in members(cluster, "returns")}, 60, "it is a member")
    # It can be claimed again.
    cluster.apply(claim("again", "returns", 2))
    completed(cluster, "again")
    assert name in {one["metadata"]["name"] for one in of_claim(cluster, "again")}


def test_a_sandbox_of_another_revision_stays_claimed(operator, cluster):
    taken = claimed(cluster, "changes")
    name = taken["metadata"]["name"]
    patch(cluster, SETS, "changes", {"spec": {"template": pod_template("2", ENABLED)}})
    wait_until(lambda: cluster.get(SETS, "changes")["status"].get("updateRevision") != taken["metadata"]["labels"][
        f"{PREFIX}template-hash"], 60, "another revision")
    give_back(cluster, name)
    found = wait_for(
        cluster, name, lambda one: condition(one, "Recycling").get("reason") == "RecyclingRejected", "rejected"
    )
    assert in_phase("Running")(found) and condition(found)["status"] == "True"
    told(cluster, name, "RecyclingRejected")


@pytest.mark.parametrize("operator", [["--recycle-timeout=3s"]], indirect=True)
def test_a_return_that_takes_too_long_ends_the_sandbox_at_once_or_later(operator, cluster):
    goes = claimed(cluster, "goes")["metadata"]["name"]
    stays = claimed(cluster, "stays", **{f"{PREFIX}cleanup-retain-on-failure": "1h"})["metadata"]["name"]
    nodes = [one["metadata"]["name"] for one in cluster.get("nodes")["items"]]
    cluster.kubectl("cordon", *nodes)
    try:
        give_back(cluster, goes)
        give_back(cluster, stays)
        wait_until(lambda: missing(cluster, KIND, goes), 60, "it is deleted")
        found = wait_for(
            cluster, stays, lambda one: condition(one, "Recycling").get("reason") == "RecyclingTimeout", "given up"
        )
        wait_until(lambda: "shutdownTime" in cluster.get(KIND, stays)["spec"], 60, "it stays for a while")
        assert found["status"]["phase"] == "Recycling" and condition(found)["status"] == "False"
    finally:
        cluster.kubectl("uncordon", *nodes)
