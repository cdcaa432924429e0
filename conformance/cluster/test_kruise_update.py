"""`SandboxUpdateOps` and upgrades of sandboxes, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import pytest

from ..installation import wait_until
from .images import SHELL
from .operator import condition
from .test_kruise_sandbox import KIND, in_phase, pod_template, sandbox, wait_for, wait_until_ready
from .test_operator_sandbox import missing, patch

UPDATES = "sandboxupdateops.v1alpha1.agents.kruise.io"
NEXT = "fake-node/step"


def update(name: str, app: str, change: dict | None = None, **spec) -> dict:
    change = change or {"metadata": {"annotations": {NEXT: "2"}}}
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxUpdateOps", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, "patch": change, **spec},
    }


def sandboxes(cluster, app: str, count: int, **spec) -> list[str]:
    names = [f"{app}-{number}" for number in range(count)]
    objects = [sandbox(name, **spec) for name in names]
    for one in objects:
        one["metadata"]["labels"] = {"app": app}
    cluster.apply(*objects)
    for name in names:
        wait_until_ready(cluster, name)
    return names


def pod_uid(cluster, name: str) -> str:
    return cluster.get("pod", name)["metadata"]["uid"]


def finished(cluster, name: str, phase: str = "Completed") -> dict:
    seen = wait_for(
        cluster, name, lambda one: one.get("status", {}).get("phase") in ("Completed", "Failed"), "finished", UPDATES
    )
    assert seen["status"]["phase"] == phase, seen["status"]
    return seen


@pytest.fixture(autouse=True)
def no_updates_remain(operator, cluster):
    yield
    cluster.delete_all(UPDATES)


def test_an_update_replaces_pods_and_keeps_sandboxes(operator, cluster):
    names = sandboxes(cluster, "all", 3)
    before = {name: (pod_uid(cluster, name), cluster.get(KIND, name)["metadata"]["uid"]) for name in names}
    cluster.apply(update("all", "all"))
    status = finished(cluster, "all")["status"]
    assert (status["replicas"], status["updatedReplicas"], status["failedReplicas"]) == (3, 3, 0)
    for name in names:
        found = wait_until_ready(cluster, name)
        assert condition(found, "Upgrading")["reason"] == "Succeeded"
        assert "upgradePolicy" not in found["spec"] and "agents.kruise.io/update-ops" not in found["metadata"]["labels"]
        assert found["metadata"]["uid"] == before[name][1]
        pod = cluster.get("pod", name)["metadata"]
        assert pod["uid"] != before[name][0] and pod["annotations"][NEXT] == "2"
        assert pod["labels"]["pod-template-hash"] == found["status"]["updateRevision"]
    # Nothing is left to change.
    cluster.apply(update("again", "all"))
    status = finished(cluster, "again")["status"]
    assert status["updatedReplicas"] == 3
    # A field that cannot change in place before can change afterwards.
    patch(cluster, KIND, names[0], {"spec": {"template": {"metadata": {"labels": {"in": "place"}}}}})
    wait_until(lambda: cluster.get("pod", names[0])["metadata"]["labels"].get("in") == "place", 60, "changed in place")


def test_no_more_than_allowed_are_unavailable(operator, cluster):
    names = sandboxes(cluster, "some", 4)
    hold = {"metadata": {"annotations": {"fake-node/hold": "true"}}}
    cluster.apply(update("some", "some", hold, updateStrategy={"maxUnavailable": "50%"}))

    def upgrading():
        found = [cluster.get(KIND, name) for name in names]
        return [one["metadata"]["name"] for one in found if one["status"]["phase"] == "Upgrading"]

    wait_until(lambda: len(upgrading()) == 2, 60, "two are being updated")
    status = wait_for(cluster, "some", lambda one: one["status"].get("updatingReplicas") == 2, "told", UPDATES)["status"]
    assert status["phase"] == "Updating" and status["updatedReplicas"] == 0
    held = upgrading()
    patch(cluster, UPDATES, "some", {"spec": {"paused": True}})

    def sees_pause(found: dict) -> bool:
        return found["status"]["observedGeneration"] == found["metadata"]["generation"]

    wait_for(cluster, "some", sees_pause, "the pause is seen", UPDATES)
    let_go(cluster, held)
    # Started updates are completed; no other starts.
    wait_for(cluster, "some", lambda one: one["status"]["updatedReplicas"] == 2, "two are updated", UPDATES)
    assert upgrading() == []
    patch(cluster, UPDATES, "some", {"spec": {"paused": False}})
    wait_until(lambda: len(upgrading()) == 2, 60, "the others are being updated")
    let_go(cluster, upgrading())
    assert finished(cluster, "some")["status"]["updatedReplicas"] == 4


def let_go(cluster, names: list[str]) -> None:
    """Lets the new pods start. The old ones may still be there."""
    for name in names:
        wait_until(lambda name=name: _has_annotation(cluster, name, "fake-node/hold"), 60, f"{name} has its new pod")
        cluster.kubectl("annotate", "pod", name, "fake-node/hold-")


def _has_annotation(cluster, pod: str, key: str) -> bool:
    found = cluster.objects.find("pod", pod)
    return bool(found) and key in found["metadata"].get("annotations", {})


def test_failures_stop_an_update_and_a_corrected_one_goes_on(operator, cluster):
    names = sandboxes(cluster, "fails", 2)
    cluster.apply(update("wrong", "fails", {"metadata": {"annotations": {"fake-node/exit": "1"}}}))
    stuck = wait_for(
        cluster, "wrong", lambda one: condition(one, "Accepted").get("reason") == "TooManyFailures", "blocked", UPDATES
    )
    assert stuck["status"]["failedReplicas"] == 1 and stuck["status"]["phase"] == "Updating"
    failed = cluster.get(KIND, names[0])
    assert failed["metadata"]["labels"]["agents.kruise.io/upgrade-failed"] == "true"
    assert condition(failed, "Upgrading")["reason"] == "UpgradePodFailed" and failed["status"]["phase"] == "Upgrading"
    assert cluster.get(KIND, names[1])["status"]["phase"] == "Running"
    cluster.delete(UPDATES, "wrong")
    marks = set(cluster.get(KIND, names[0])["metadata"]["labels"])
    assert not marks & {"agents.kruise.io/update-ops", "agents.kruise.io/upgrade-failed"}
    cluster.apply(update("right", "fails", {"metadata": {"annotations": {"fake-node/exit": None, NEXT: "2"}}}))
    assert finished(cluster, "right")["status"]["updatedReplicas"] == 2
    for name in names:
        assert "fake-node/exit" not in wait_until_ready(cluster, name)["spec"]["template"]["metadata"]["annotations"]


def test_paused_sandboxes_are_resumed_and_paused_again(operator, cluster):
    [name] = sandboxes(cluster, "sleeps", 1)
    patch(cluster, KIND, name, {"spec": {"paused": True}})
    wait_for(cluster, name, lambda one: condition(one, "SandboxPaused").get("status") == "True", "paused")
    cluster.apply(update("not-them", "sleeps"))
    assert finished(cluster, "not-them")["status"]["replicas"] == 0
    cluster.apply(update("them", "sleeps", stateFilter={"states": ["Paused"]}))
    assert finished(cluster, "them")["status"]["updatedReplicas"] == 1
    found = wait_for(cluster, name, in_phase("Paused"), "paused again")
    assert found["spec"]["template"]["metadata"]["annotations"][NEXT] == "2"
    assert "agents.kruise.io/upgrade-resume-trigger" not in found["metadata"]["annotations"]
    wait_until(lambda: missing(cluster, "pod", name), 60, "it has no pod")


def test_a_policy_of_its_own_replaces_the_pod(operator, cluster):
    [name] = sandboxes(cluster, "own", 1, upgradePolicy={"type": "Recreate"})
    before = pod_uid(cluster, name)
    patch(cluster, KIND, name, {"spec": {"template": pod_template(env=[{"name": "NEW", "value": "1"}])}})
    wait_for(cluster, name, lambda one: condition(one, "Upgrading").get("reason") == "Succeeded", "upgraded")
    assert pod_uid(cluster, name) != before
    restores = {"spec": {"upgradePolicy": {"type": "CheckpointRestore"}, "template": pod_template()}}
    patch(cluster, KIND, name, restores)
    failed = wait_for(
        cluster, name, lambda one: condition(one, "Upgrading").get("reason") == "CheckpointFailed", "not restored"
    )
    assert "runtimeClassName: shoal" in condition(failed)["message"] and condition(failed)["reason"] == "Upgrading"
    # With the other policy it is replaced after all.
    patch(cluster, KIND, name, {"spec": {"upgradePolicy": {"type": "Recreate"}}})
    wait_until_ready(cluster, name)


def test_updates_that_cannot_be_carried_out_say_why(operator, cluster):
    sandboxes(cluster, "bad", 1)
    bad = {
        "hook": update("hook", "bad", lifecycle={"preUpgrade": {"timeoutSeconds": 3}}),
        "image": update(
            "image", "bad", {"spec": {"containers": [{"name": "main", "image": SHELL}]}},
            updateStrategy={"type": "CheckpointRestore"},
        ),
        "patch": update("patch", "bad", {"metadata": "none"}),
    }
    said = {"hook": "exec.command", "image": "CheckpointRestore", "patch": "spec.patch"}
    for name, one in bad.items():
        cluster.apply(one)
        accepted = condition(finished(cluster, name, "Failed"), "Accepted")
        assert accepted["reason"] == "Invalid" and said[name] in accepted["message"], accepted


def test_one_update_after_the_other(operator, cluster):
    sandboxes(cluster, "queue", 1)
    cluster.apply(update("first", "queue", paused=True))
    wait_for(cluster, "first", lambda one: one.get("status", {}).get("phase") == "Updating", "active", UPDATES)
    cluster.apply(update("second", "queue"))
    waits = wait_for(cluster, "second", lambda one: one.get("status", {}).get("phase") == "Pending", "waits", UPDATES)
    assert "first" in condition(waits, "Accepted")["message"]
    patch(cluster, UPDATES, "first", {"spec": {"paused": False}})
    finished(cluster, "first")
    assert finished(cluster, "second")["status"]["updatedReplicas"] == 1


def test_an_update_whose_daemon_takes_no_settings_fails(operator, cluster):
    """There is no daemon on a fake node."""
    (name,) = sandboxes(cluster, "deaf", 1, annotations={"agents.kruise.io/init-runtime-request": "{}"})
    cluster.apply(update("deaf", "deaf"))

    def status() -> dict:
        return cluster.get(UPDATES, "deaf").get("status", {})

    wait_until(lambda: status().get("phase") == "Failed", 240, "the end of the update")
    assert status()["failedReplicas"] == 1
    found = condition(cluster.get(KIND, name), "Upgrading")
    assert found["reason"] == "UpgradePodFailed" and "took no settings for 60 s" in found["message"], found


def kept_pods(cluster, name: str) -> list[dict]:
    """The pods of the ReplicaSet of a sandbox that are not ending."""
    found = [one for one in cluster.get("pods")["items"] if one["metadata"]["name"].startswith(f"{name}-")]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def test_sandboxes_that_replica_sets_keep_are_updated(operator, cluster):
    names = ["kept-0", "kept-1"]
    for name in names:
        kept = sandbox(name)
        kept["metadata"] |= {"labels": {"app": "kept"}, "annotations": {"agents.kruise.io/kept-by": "ReplicaSet"}}
        cluster.apply(kept)
    before = {}
    for name in names:
        wait_until_ready(cluster, name)
        [pod] = kept_pods(cluster, name)
        before[name] = (pod["metadata"]["uid"], cluster.get(KIND, name)["metadata"]["uid"])
    cluster.apply(update("kept", "kept"))
    assert finished(cluster, "kept")["status"]["updatedReplicas"] == 2
    for name in names:
        found = wait_until_ready(cluster, name)
        assert found["metadata"]["uid"] == before[name][1]
        [pod] = kept_pods(cluster, name)
        assert pod["metadata"]["uid"] != before[name][0] and pod["metadata"]["annotations"][NEXT] == "2"
        # A pod that is lost now returns with the change.
        assert cluster.get("replicasets.apps", name)["spec"]["template"]["metadata"]["annotations"][NEXT] == "2"
