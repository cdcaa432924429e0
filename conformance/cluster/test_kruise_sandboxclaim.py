"""`SandboxClaim` of `agents.kruise.io`, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import pytest

from ..installation import wait_until
from .operator import condition
from .test_kruise_sandbox import KIND, missing, pod_template, reports_resources, soon, wait_for
from .test_kruise_set import SETS, members, pool, uids, wait_until_full

CLAIMS = "sandboxclaims.v1alpha1.agents.kruise.io"
OWNER = "agents.kruise.io/owner"
HELD = {"fake-node/hold": "true"}
#: The times of claims that the machine, not the claim, may make wait.
PATIENT = {"claimTimeout": "5m", "waitReadyTimeout": "5m"}


def claim(name: str, of: str, replicas: int = 1, **spec) -> dict:
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxClaim", "metadata": {"name": name},
        "spec": {"templateName": of, "replicas": replicas, **spec},
    }


def of_claim(cluster, name: str) -> list[dict]:
    found = cluster.get(KIND, labels=f"agents.kruise.io/claim-name={name}")["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def completed(cluster, name: str, reason: str = "AllReplicasClaimed") -> dict:
    seen = wait_for(
        cluster, name, lambda one: condition(one, "Completed").get("status") == "True", "completed", CLAIMS, 180
    )
    assert condition(seen, "Completed")["reason"] == reason, seen["status"]
    assert seen["status"]["phase"] == "Completed" and seen["status"]["completionTime"]
    return seen


def told(cluster, name: str, reason: str) -> None:
    selected = f"involvedObject.name={name},reason={reason}"
    wait_until(lambda: cluster.get("events", fields=selected)["items"], 60, f"{name}: an event {reason}")


def test_a_claim_takes_what_waits(operator, cluster):
    cluster.apply(pool("stock", 3))
    wait_until_full(cluster, "stock", 3)
    waiting, end = uids(members(cluster, "stock")), soon(600)
    cluster.apply(claim(
        "takes", "stock", 2, labels={"job": "a"}, annotations={"note": "n", "agents.kruise.io/mark": "m"}, shutdownTime=end,
    ))
    seen = completed(cluster, "takes")
    assert seen["status"]["claimedReplicas"] == 2 and "TimedOut" not in str(seen["status"]["conditions"])
    taken = of_claim(cluster, "takes")
    assert len(taken) == 2 and uids(taken) <= waiting
    for one in taken:
        metadata, template = one["metadata"], one["spec"]["template"]["metadata"]
        assert "ownerReferences" not in metadata
        assert metadata["annotations"][OWNER] == seen["metadata"]["uid"]
        assert metadata["annotations"]["agents.kruise.io/mark"] == "m"
        assert metadata["labels"]["job"] == template["labels"]["job"] == "a"
        assert metadata["labels"]["agents.kruise.io/sandbox-claimed"] == "true"
        assert template["annotations"]["note"] == "n" and "agents.kruise.io/mark" not in template["annotations"]
        assert one["spec"]["shutdownTime"] == end
    assert len({one["metadata"]["annotations"]["agents.kruise.io/lock"] for one in taken}) == 2
    wait_until_full(cluster, "stock", 3)
    told(cluster, "takes", "ClaimCompleted")
    cluster.delete(CLAIMS, "takes")
    assert uids(of_claim(cluster, "takes")) == uids(taken)
    # A claim of the same name is another claim.
    cluster.apply(claim("takes", "stock"))
    assert completed(cluster, "takes")["status"]["claimedReplicas"] == 1
    assert len(of_claim(cluster, "takes")) == 3


def test_what_does_not_wait_is_created(operator, cluster):
    cluster.apply(pool("none", 0), claim("creates", "none", 12, **PATIENT))
    assert completed(cluster, "creates")["status"]["claimedReplicas"] == 12
    made = of_claim(cluster, "creates")
    assert len(made) == 12
    assert made[0]["metadata"]["annotations"]["agents.kruise.io/sandbox-priority"] == "100"
    assert made[0]["metadata"]["name"].startswith("none-")


def test_a_claim_may_wait_for_stock(operator, cluster):
    cluster.apply(pool("later", 0), claim("waits", "later", 2, createOnNoStock=False))
    told(cluster, "waits", "NoAvailableSandboxes")
    assert cluster.get(CLAIMS, "waits")["status"]["phase"] == "Claiming"
    cluster.patch(SETS, "later", {"spec": {"replicas": 2}})
    assert completed(cluster, "waits")["status"]["claimedReplicas"] == 2


def test_a_claim_ends_with_what_it_has(operator, cluster):
    cluster.apply(pool("short", 1))
    wait_until_full(cluster, "short", 1)
    # The pool refills itself, but with a sandbox that never becomes ready.
    cluster.patch(SETS, "short", {"spec": {"template": pod_template(annotations=HELD), "updateStrategy": {"maxUnavailable": 0}}})
    cluster.apply(claim("partial", "short", 2, createOnNoStock=False, claimTimeout="12s"))
    seen = completed(cluster, "partial", "TimeoutReached")
    assert seen["status"]["claimedReplicas"] == 1 and "1 of 2" in seen["status"]["message"]
    assert condition(seen, "TimedOut")["reason"] == "ClaimTimeoutReached"
    assert len(of_claim(cluster, "partial")) == 1


@pytest.mark.parametrize("reserved", [False, True])
def test_sandboxes_that_do_not_become_ready_are_cleared(operator, cluster, reserved):
    name = f"stuck-{reserved}".lower()
    cluster.apply(
        pool(name, 0, pod_template(annotations=HELD)),
        claim(name, name, waitReadyTimeout="1s", claimTimeout="12s", reserveFailedSandbox=reserved),
    )
    seen = completed(cluster, name, "TimeoutReached")
    assert seen["status"]["claimedReplicas"] == 0
    told(cluster, name, "SandboxNotReady")
    kept = ["true"] if reserved else []

    def is_cleared():
        labels = [one["metadata"]["labels"] for one in of_claim(cluster, name)]
        return {one.get("agents.kruise.io/reserved-failed-sandbox") for one in labels} == set(kept)

    wait_until(is_cleared, 60, "cleared")


@pytest.mark.parametrize("name, change, reason, message", [
    ("nothing", {"templateName": "missing"}, "SandboxSetNotFound", "no SandboxSet missing"),
    ("forges", {"labels": {"agents.kruise.io/sandbox-pool": "other"}}, "InvalidClaim", "sandbox-pool"),
    ("selects", {"labels": {"app": "other"}}, "InvalidClaim", "template of ends"),
    ("mounts", {"dynamicVolumesMount": [{"pvName": "v", "mountPath": "/m"}]}, "InvalidClaim", "dynamicVolumesMount"),
])
def test_a_claim_that_cannot_be_carried_out_says_why(operator, cluster, name, change, reason, message):
    wanted = claim(name, "ends")
    wanted["spec"] |= change
    cluster.apply(pool("ends", 0), wanted)
    assert message in completed(cluster, name, reason)["status"]["message"]
    assert not of_claim(cluster, name)


def test_a_completed_claim_goes_and_its_sandboxes_stay(operator, cluster):
    cluster.apply(pool("brief", 0), claim("goes", "brief", ttlAfterCompleted="1s"), claim("stays", "brief", ttlAfterCompleted="-1s"))
    wait_until(lambda: missing(cluster, CLAIMS, "goes"), 60, "the claim is gone")
    told(cluster, "goes", "SandboxClaimTTLDelete")
    assert len(of_claim(cluster, "goes")) == 1
    completed(cluster, "stays")


def test_a_deleted_sandbox_is_not_replaced(operator, cluster):
    cluster.apply(pool("job", 0), claim("once", "job", 2))
    completed(cluster, "once")
    gone = of_claim(cluster, "once")[0]["metadata"]["name"]
    cluster.delete(KIND, gone)
    cluster.patch(CLAIMS, "once", {"metadata": {"annotations": {"seen": "again"}}})
    assert len(of_claim(cluster, "once")) == 1
    assert cluster.get(CLAIMS, "once")["status"]["claimedReplicas"] == 2


def test_processors_change_with_the_claim(operator, cluster):
    cluster.apply(pool("small", 1))
    wait_until_full(cluster, "small", 1)
    cpu = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    cluster.apply(claim("larger", "small", inplaceUpdate={"resources": cpu}, **PATIENT))
    name = wait_until(lambda: of_claim(cluster, "larger"), 60, "claimed")[0]["metadata"]["name"]
    wait_for(cluster, name, lambda one: one["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "2", "resized", "pod")
    assert cluster.get(CLAIMS, "larger")["status"].get("claimedReplicas", 0) == 0
    reports_resources(cluster, name)
    assert completed(cluster, "larger")["status"]["claimedReplicas"] == 1
    assert [one["metadata"]["name"] for one in of_claim(cluster, "larger")] == [name]


def test_a_large_claim_takes_several_passes(operator, cluster):
    cluster.apply(pool("large", 0), claim("hundred", "large", 120, **PATIENT))
    assert completed(cluster, "hundred")["status"]["claimedReplicas"] == 120
    assert len(of_claim(cluster, "hundred")) == 120
