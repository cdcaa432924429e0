"""`Sandbox` of `agents.kruise.io`, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import datetime
import json

import pytest

from ..installation import wait_until
from .images import SHELL
from .operator import condition
from .test_operator_sandbox import missing, patch

KIND = "sandboxes.v1alpha1.agents.kruise.io"
RETENTION = "agents.kruise.io/reserve-paused-sandbox-duration"


def pod_template(cpu: str = "1", annotations: dict | None = None, **container) -> dict:
    amounts = {"cpu": cpu, "memory": "64Mi"}
    main = {"name": "main", "image": SHELL, "resources": {"requests": dict(amounts), "limits": dict(amounts)}, **container}
    return {
        "metadata": {"labels": {"app": "x"}, "annotations": annotations or {}},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 0},
    }


def sandbox(name: str, annotations: dict | None = None, template: dict | None = None, **spec) -> dict:
    if "templateRef" not in spec:
        spec["template"] = template or pod_template()
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox",
        "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec,
    }


def wait_for(cluster, name: str, holds, what: str, kind: str = KIND, seconds: float = 120) -> dict:
    """Waits until an object is as it should be, and returns it."""

    def seen():
        found = cluster.get(kind, name)
        return found if holds(found) else None

    return wait_until(seen, seconds, f"{name}: {what}")


def is_ready(found: dict) -> bool:
    return condition(found).get("status") == "True"


def wait_until_ready(cluster, name: str) -> dict:
    return wait_for(cluster, name, is_ready, "ready")


def in_phase(phase: str):
    return lambda found: found.get("status", {}).get("phase") == phase


def soon(seconds: float) -> str:
    time = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_status(cluster, name: str, change: dict) -> None:
    """Reports a state of the pod, as its node does."""
    cluster.kubectl("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", json.dumps(change))


def reports_resources(cluster, name: str) -> None:
    """The node has resized the containers."""
    pod = cluster.get("pod", name)
    resources = pod["spec"]["containers"][0]["resources"]
    pod_status(cluster, name, {"status": {"containerStatuses": [{"name": "main", "resources": resources}]}})


def test_a_sandbox_becomes_a_ready_pod(operator, cluster):
    cluster.apply(sandbox("plain"))
    seen = wait_until_ready(cluster, "plain")
    status, pod = seen["status"], cluster.get("pod", "plain")
    assert status["phase"] == "Running"
    assert condition(seen)["reason"] == "PodReady"
    assert status["sandboxIp"] == status["podInfo"]["podIP"] == pod["status"]["podIP"]
    assert status["nodeName"] == pod["spec"]["nodeName"]
    assert status["podInfo"]["podUID"] == pod["metadata"]["uid"]
    assert status["observedGeneration"] == seen["metadata"]["generation"]
    labels = pod["metadata"]["labels"]
    assert labels["app"] == "x"
    assert labels["agents.kruise.io/created-by"] == "sandbox"
    assert labels["agents.kruise.io/sandbox-name"] == "plain"
    assert labels["pod-template-hash"] == status["updateRevision"]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Sandbox"
    assert "sandbox.agents.kruise.io/hash-immutable-part" in seen["metadata"]["annotations"]
    assert "Running" in cluster.kubectl("get", "sbx", "plain").splitlines()[1]
    selected = "involvedObject.name=plain,reason=SandboxRunning"
    wait_until(lambda: cluster.get("events", fields=selected)["items"], 60, "the event")


def test_a_template_is_referred_to(operator, cluster):
    cluster.apply(sandbox("refers", templateRef={"name": "shared"}))
    seen = wait_for(
        cluster, "refers", lambda found: condition(found).get("reason") == "PodCreateFailed", "no template"
    )
    assert "shared" in seen["status"]["message"]
    cluster.apply({
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxTemplate", "metadata": {"name": "shared"},
        "spec": {"template": pod_template()},
    })
    wait_until_ready(cluster, "refers")


def test_volume_claims_stay_while_a_sandbox_is_paused(operator, cluster):
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    template = pod_template(annotations={"fake-node/hold": "true"})
    cluster.apply(sandbox("volumes", template=template, volumeClaimTemplates=[claim]))
    wait_until(lambda: not missing(cluster, "pod", "volumes"), 60, "the pod")
    volume = cluster.get("pod", "volumes")["spec"]["volumes"][0]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-volumes"}}
    assert cluster.get("pvc", "data-volumes")["metadata"]["ownerReferences"][0]["name"] == "volumes"
    cluster.delete(KIND, "volumes")


def test_a_pause_deletes_the_pod_and_a_resume_brings_another(operator, cluster):
    cluster.apply(sandbox("rests"))
    wait_until_ready(cluster, "rests")
    first = cluster.get("pod", "rests")["metadata"]["uid"]
    patch(cluster, KIND, "rests", {"spec": {"paused": True}})
    seen = wait_for(cluster, "rests", lambda one: condition(one, "SandboxPaused").get("status") == "True", "paused")
    assert seen["status"]["phase"] == "Paused"
    assert condition(seen, "SandboxPaused")["reason"] == "StopPauseSucceed"
    assert condition(seen)["status"] == "False"
    assert "sandboxIp" not in seen["status"]
    assert seen["metadata"]["finalizers"] == ["agents.kruise.io/sandbox"]
    assert missing(cluster, "pod", "rests")
    patch(cluster, KIND, "rests", {"spec": {"paused": False}})
    seen = wait_for(
        cluster, "rests", lambda one: in_phase("Running")(one) and is_ready(one), "running again"
    )
    assert condition(seen, "SandboxResumed")["reason"] == "ResumePod"
    assert condition(seen, "SandboxPaused") == {}
    assert "finalizers" not in seen["metadata"]
    assert cluster.get("pod", "rests")["metadata"]["uid"] != first


def test_a_paused_sandbox_can_be_deleted(operator, cluster):
    cluster.apply(sandbox("ends"))
    wait_until_ready(cluster, "ends")
    patch(cluster, KIND, "ends", {"spec": {"paused": True}})
    wait_for(cluster, "ends", in_phase("Paused"), "paused")
    cluster.delete(KIND, "ends")
    wait_until(lambda: missing(cluster, "pod", "ends"), 60, "no pod")


def test_a_pause_that_nobody_saves_keeps_the_pod_and_is_taken_back(operator, cluster):
    cluster.apply(sandbox("sleeps", pauseStrategy={"type": "Hibernate"}))
    wait_until_ready(cluster, "sleeps")
    patch(cluster, KIND, "sleeps", {"spec": {"paused": True}})
    wait_for(cluster, "sleeps", lambda one: "executor" in condition(one, "SandboxPaused").get("message", ""), "the condition")
    [saved] = cluster.get("checkpoints.agents.kruise.io", labels="agents.kruise.io/sandbox-name=sleeps")["items"]
    assert saved["spec"] == {"podName": "sleeps", "keepRunning": False, "persistentContents": ["memory", "filesystem"]}
    assert not missing(cluster, "pod", "sleeps")
    patch(cluster, KIND, "sleeps", {"spec": {"paused": False}})
    wait_for(cluster, "sleeps", lambda one: in_phase("Running")(one) and is_ready(one), "running again")
    assert not cluster.get("checkpoints.agents.kruise.io", labels="agents.kruise.io/sandbox-name=sleeps")["items"]


@pytest.mark.parametrize("name, annotation, phase", [("broken", "1", "Failed"), ("done", "0", "Succeeded")])
def test_a_pod_that_ends_ends_its_sandbox(operator, cluster, name, annotation, phase):
    cluster.apply(sandbox(name, template=pod_template(annotations={"fake-node/exit": annotation})))
    seen = wait_for(cluster, name, in_phase(phase), phase)
    assert condition(seen)["status"] == "False"


def test_a_sandbox_fails_with_its_pod(operator, cluster):
    cluster.apply(sandbox("loses"))
    wait_until_ready(cluster, "loses")
    cluster.delete("pod", "loses")
    seen = wait_for(cluster, "loses", in_phase("Failed"), "failed")
    assert seen["status"]["message"] == "pod not found"
    assert missing(cluster, "pod", "loses")


def test_a_foreign_pod_is_left_alone(operator, cluster):
    cluster.apply({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken"},
        "spec": {"containers": [{"name": "main", "image": SHELL}], "terminationGracePeriodSeconds": 0},
    })
    cluster.apply(sandbox("taken"))
    seen = wait_for(cluster, "taken", lambda one: one.get("status", {}).get("message"), "the message")
    assert seen["status"]["phase"] == "Pending"
    selected = "involvedObject.name=taken,reason=PodOwnerMismatch"
    wait_until(lambda: cluster.get("events", fields=selected)["items"], 60, "the event")
    cluster.delete(KIND, "taken")
    assert not missing(cluster, "pod", "taken")


def test_times_pause_and_delete(operator, cluster):
    cluster.apply(sandbox("timed", pauseTime=soon(3), shutdownTime=soon(600)))
    wait_for(cluster, "timed", lambda one: condition(one, "SandboxPaused").get("status") == "True", "paused")
    patch(cluster, KIND, "timed", {"spec": {"shutdownTime": soon(1)}})
    wait_until(lambda: missing(cluster, KIND, "timed"), 60, "the end")


def test_a_sandbox_that_is_kept_is_paused_in_place_of_deleted(operator, cluster):
    time = soon(3)
    cluster.apply(sandbox("kept", {RETENTION: "1h"}, pauseTime=time, shutdownTime=time))
    seen = wait_for(cluster, "kept", lambda one: one["spec"].get("paused"), "paused")
    assert seen["spec"]["shutdownTime"] == seen["spec"]["pauseTime"] > soon(3000)


def test_labels_of_the_template_reach_the_pod(operator, cluster):
    cluster.apply(sandbox("labelled"))
    wait_until_ready(cluster, "labelled")
    uid = cluster.get("pod", "labelled")["metadata"]["uid"]
    patch(cluster, KIND, "labelled", {"spec": {"template": {"metadata": {"labels": {"claimed": "yes"}}}}})
    pod = wait_for(cluster, "labelled", lambda one: one["metadata"]["labels"].get("claimed") == "yes", "labels", "pod")
    assert pod["metadata"]["uid"] == uid
    revision = pod["metadata"]["labels"]["pod-template-hash"]
    seen = wait_for(cluster, "labelled", lambda one: one["status"]["updateRevision"] == revision, "the status")
    assert condition(seen, "InplaceUpdate") == {}


@pytest.mark.parametrize("name, cpu", [("grows", "2"), ("shrinks", "500m")])
def test_cpu_changes_in_place(operator, cluster, name, cpu):
    cluster.apply(sandbox(name))
    wait_until_ready(cluster, name)
    uid = cluster.get("pod", name)["metadata"]["uid"]
    patch(cluster, KIND, name, {"spec": {"template": pod_template(cpu)}})
    seen = wait_for(cluster, name, lambda one: condition(one).get("reason") == "InplaceUpdating", "updating")
    assert condition(seen, "InplaceUpdate")["status"] == "False"
    pod = wait_for(
        cluster, name, lambda one: one["spec"]["containers"][0]["resources"]["limits"]["cpu"] == cpu, "resized", "pod"
    )
    assert pod["metadata"]["uid"] == uid
    reports_resources(cluster, name)
    seen = wait_for(cluster, name, lambda one: condition(one, "InplaceUpdate").get("status") == "True", "updated")
    assert condition(seen, "InplaceUpdate")["reason"] == "Succeeded"
    wait_until_ready(cluster, name)


def test_an_infeasible_resize_fails_and_can_be_taken_back(operator, cluster):
    cluster.apply(sandbox("greedy"))
    wait_until_ready(cluster, "greedy")
    patch(cluster, KIND, "greedy", {"spec": {"template": pod_template("100")}})
    wait_for(
        cluster, "greedy", lambda one: one["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "100", "asked", "pod"
    )
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "node has 4"}
    pod_status(cluster, "greedy", {"status": {"conditions": [pending]}})
    seen = wait_for(cluster, "greedy", lambda one: condition(one, "InplaceUpdate").get("reason") == "Failed", "failed")
    assert "infeasible" in condition(seen, "InplaceUpdate")["message"]
    wait_until_ready(cluster, "greedy")
    patch(cluster, KIND, "greedy", {"spec": {"template": pod_template("1")}})
    wait_for(
        cluster, "greedy", lambda one: one["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1", "back", "pod"
    )
    pod_status(cluster, "greedy", {"status": {"conditions": [pending | {"status": "False"}]}})
    reports_resources(cluster, "greedy")
    wait_for(cluster, "greedy", lambda one: condition(one, "InplaceUpdate").get("status") == "True", "updated")


def test_a_change_of_the_quality_of_service_is_refused(operator, cluster):
    cluster.apply(sandbox("quality"))
    wait_until_ready(cluster, "quality")
    template = pod_template()
    template["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    patch(cluster, KIND, "quality", {"spec": {"template": template}})
    seen = wait_for(cluster, "quality", lambda one: condition(one, "InplaceUpdate").get("reason") == "Failed", "failed")
    assert "Guaranteed to Burstable" in condition(seen, "InplaceUpdate")["message"]
    assert is_ready(seen)


def test_other_changes_of_the_template_are_forbidden(operator, cluster):
    cluster.apply(sandbox("fixed"))
    wait_until_ready(cluster, "fixed")
    patch(cluster, KIND, "fixed", {"spec": {"template": pod_template(env=[{"name": "A", "value": "b"}])}})
    selected = "involvedObject.name=fixed,reason=InplaceUpdateForbidden"
    wait_until(lambda: cluster.get("events", fields=selected)["items"], 60, "the event")
    assert is_ready(cluster.get(KIND, "fixed"))


def test_definitions_refuse_what_cannot_be_served(operator, cluster):
    kind = {"apiVersion": "agents.kruise.io/v1alpha1"}
    refused = [
        (kind | {"kind": "SandboxSet", "metadata": {"name": "none"}, "spec": {"replicas": 1}}, "exactly one of template"),
        (kind | {"kind": "SandboxClaim", "metadata": {"name": "fast"},
                 "spec": {"templateName": "x", "claimTimeout": "10ms"}}, "at least one second"),
        (kind | {"kind": "TrafficPolicy", "metadata": {"name": "empty"}, "spec": {}}, "at least one of ingress"),
        (sandbox("bad", template={"metadata": {"labels": {"a": 1}}, "spec": {}}), "labels.a"),
    ]
    for manifest, told in refused:
        with pytest.raises(AssertionError, match=told):
            cluster.apply(manifest)
    claim = kind | {"kind": "SandboxClaim", "metadata": {"name": "fixed"}, "spec": {"templateName": "x", "replicas": 1}}
    cluster.apply(claim)
    seen = cluster.get("sandboxclaims.agents.kruise.io", "fixed")
    assert seen["spec"]["claimTimeout"] == "1m" and seen["spec"]["createOnNoStock"] is True
    with pytest.raises(AssertionError, match="replicas is immutable"):
        patch(cluster, "sandboxclaims.agents.kruise.io", "fixed", {"spec": {"replicas": 2}})
    cluster.delete("sandboxclaims.agents.kruise.io", "fixed")
