"""`Sandbox`, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import datetime
import subprocess

import pytest

from ..installation import program, wait_until
from .images import SHELL
from .objects import SERVER_SIDE
from .operator import Operator, apply_in_time, condition, leads, wait_for_reason

BETA = "sandboxes.v1beta1.agents.x-k8s.io"
ALPHA = "sandboxes.v1alpha1.agents.x-k8s.io"


def sandbox(name: str, version: str = "v1beta1", annotations: dict | None = None, **spec) -> dict:
    template = {
        "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": SHELL}], "terminationGracePeriodSeconds": 0},
    }
    return {
        "apiVersion": f"agents.x-k8s.io/{version}", "kind": "Sandbox", "metadata": {"name": name},
        "spec": {"podTemplate": template, **spec},
    }


def missing(cluster, kind: str, name: str) -> bool:
    return cluster.find(kind, name) is None


def patch(cluster, kind: str, name: str, change: dict) -> None:
    cluster.patch(kind, name, change)


def test_a_sandbox_becomes_a_ready_pod(operator, cluster):
    cluster.apply(sandbox("ready"))
    seen = wait_for_reason(cluster, BETA, "ready", "DependenciesReady")
    assert condition(seen)["message"] == "Pod is Ready"
    assert condition(seen, "Suspended")["reason"] == "NotSuspended"
    assert seen["metadata"]["annotations"]["agents.x-k8s.io/pod-name"] == "ready"
    pod = cluster.get("pod", "ready")
    assert seen["status"]["podIPs"] == [address["ip"] for address in pod["status"]["podIPs"]]
    assert seen["status"]["nodeName"] == pod["spec"]["nodeName"]
    assert pod["metadata"]["labels"]["app"] == "ready"
    assert pod["metadata"]["ownerReferences"][0]["apiVersion"] == "agents.x-k8s.io/v1beta1"
    assert missing(cluster, "service", "ready")
    assert "True" in cluster.kubectl("get", BETA, "ready").splitlines()[1]


def test_a_deleted_pod_is_replaced_and_a_deleted_sandbox_leaves_none(operator, cluster):
    cluster.apply(sandbox("again"))
    wait_for_reason(cluster, BETA, "again", "DependenciesReady")
    first = cluster.get("pod", "again")["metadata"]["uid"]
    cluster.delete("pod", "again")

    def replaced():
        pods = cluster.get("pod", labels="app=again")["items"]
        return pods and pods[0]["metadata"]["uid"] != first

    wait_until(replaced, 60, "a new pod")
    cluster.delete(BETA, "again")
    wait_until(lambda: missing(cluster, "pod", "again"), 60, "no pod")


def test_suspension_deletes_the_pod_and_resumption_brings_it_back(operator, cluster):
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    cluster.apply(sandbox("rests", volumeClaimTemplates=[claim]))
    wait_until(lambda: not missing(cluster, "pvc", "data-rests"), 60, "the volume claim")
    wait_until(lambda: not missing(cluster, "pod", "rests"), 60, "the pod")
    patch(cluster, BETA, "rests", {"spec": {"operatingMode": "Suspended"}})
    seen = wait_until(
        lambda: (found := cluster.get(BETA, "rests")) and condition(found, "Suspended").get("status") == "True" and found,
        60, "the suspension",
    )
    assert condition(seen)["reason"] == "SandboxSuspended"
    assert missing(cluster, "pod", "rests")
    assert not missing(cluster, "pvc", "data-rests")
    patch(cluster, BETA, "rests", {"spec": {"operatingMode": "Running"}})
    wait_until(lambda: not missing(cluster, "pod", "rests"), 60, "the pod again")


def test_a_finished_pod_is_told_and_not_replaced(operator, cluster):
    cluster.apply(sandbox("done", annotations={"fake-node/exit": "0"}))
    seen = wait_for_reason(cluster, BETA, "done", "PodSucceeded")
    assert condition(seen, "Finished")["message"] == "Pod completed successfully"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_sandbox_expires_at_its_shutdown_time(operator, cluster, policy):
    name = f"expires-{policy.lower()}"
    cluster.apply(sandbox(name, service=True, shutdownPolicy=policy))
    wait_until(lambda: not missing(cluster, "service", name), 60, "the service")
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    patch(cluster, BETA, name, {"spec": {"shutdownTime": soon.strftime("%Y-%m-%dT%H:%M:%SZ")}})
    if policy == "Delete":
        wait_until(lambda: missing(cluster, BETA, name), 60, "no sandbox")
    else:
        wait_for_reason(cluster, BETA, name, "SandboxExpired")
    wait_until(lambda: missing(cluster, "pod", name) and missing(cluster, "service", name), 60, "no pod, no service")


def test_a_pod_of_someone_else_stays(operator, cluster):
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"},
               "spec": {"containers": [{"name": "main", "image": SHELL}]}}
    cluster.apply(foreign)
    uid = cluster.get("pod", "foreign")["metadata"]["uid"]
    cluster.apply(sandbox("foreign"))
    seen = wait_for_reason(cluster, BETA, "foreign", "ReconcilerError")
    assert "adoptable" in condition(seen)["message"]
    patch(cluster, "pod", "foreign", {"metadata": {"labels": {"agents.x-k8s.io/adoptable": "true"}}})
    wait_for_reason(cluster, BETA, "foreign", "DependenciesReady", 90)
    assert cluster.get("pod", "foreign")["metadata"]["uid"] == uid


def test_a_pod_that_the_api_server_refuses_is_retried_with_a_growing_delay(operator, cluster):
    refused = sandbox("refused")
    refused["spec"]["podTemplate"]["spec"]["containers"][0]["name"] = "Not A Name"
    cluster.apply(refused)
    seen = wait_for_reason(cluster, BETA, "refused", "ReconcilerError")
    assert "Not A Name" in condition(seen)["message"]
    cluster.delete(BETA, "refused")


def test_a_sandbox_of_v1alpha1_behaves_as_in_its_time(operator, cluster):
    apply_in_time(cluster, sandbox("old", "v1alpha1"))
    seen = wait_for_reason(cluster, ALPHA, "old", "DependenciesReady")
    assert [state["type"] for state in seen["status"]["conditions"]] == ["Ready"]
    assert condition(seen)["message"] == "Pod is Ready; Service Exists"
    assert seen["status"]["serviceFQDN"] == "old.default.svc.cluster.local"
    assert seen["spec"]["replicas"] == seen["status"]["replicas"] == 1
    assert cluster.get("service", "old")["spec"]["clusterIP"] == "None"
    assert cluster.get("pod", "old")["metadata"]["ownerReferences"][0]["apiVersion"] == "agents.x-k8s.io/v1alpha1"
    cluster.kubectl("scale", ALPHA, "old", "--replicas=0")

    def stopped():
        found = cluster.get(ALPHA, "old")
        return condition(found)["message"] == "Pod does not exist, replicas is 0; Service Exists" and found

    seen = wait_until(stopped, 60, "no replicas")
    assert condition(seen)["status"] == "True"
    assert seen["status"].get("replicas", 0) == 0
    assert cluster.get(BETA, "old")["spec"]["operatingMode"] == "Suspended"


def test_the_volume_of_another_is_not_used(operator, cluster):
    """A pod that used it would also keep it from being removed: the garbage collector waits for its last user."""
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "former"}})
    former = {"apiVersion": "v1", "kind": "ConfigMap", "name": "former", "uid": cluster.get("configmap", "former")["metadata"]["uid"]}
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    cluster.apply({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": volume,
        "metadata": {"name": "data-next", "ownerReferences": [{**former, "controller": True}]},
    })
    cluster.apply(sandbox("next", volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": volume}]))
    seen = wait_for_reason(cluster, BETA, "next", "ReconcilerError")
    assert "is owned by ConfigMap/former" in condition(seen)["message"]
    assert missing(cluster, "pod", "next")
    cluster.delete("pvc", "data-next")
    cluster.kubectl("annotate", BETA, "next", "example.com/try=again")
    # It is not scheduled: the cluster has no volumes.
    wait_until(lambda: not missing(cluster, "pod", "next"), 60, "the pod")
    assert cluster.get("pvc", "data-next")["metadata"]["ownerReferences"][0]["kind"] == "Sandbox"
    cluster.delete(BETA, "next")


def test_volume_claim_templates_are_immutable(operator, cluster):
    claim = {"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    cluster.apply(sandbox("fixed", volumeClaimTemplates=[claim]))
    with pytest.raises(AssertionError, match="volumeClaimTemplates is immutable"):
        patch(cluster, BETA, "fixed", {"spec": {"volumeClaimTemplates": None}})
    cluster.delete(BETA, "fixed")


def test_a_killed_operator_is_followed_by_another(operator, cluster):
    """The second replica waits for the lease, and takes over what the first left behind."""
    operator.stop()
    operator.start("--leader-elect=true")
    wait_until(lambda: leads(operator), 60, "a leader")
    second = Operator(cluster, "operator-2")
    second.start("--enable-webhook=false", "--leader-elect=true")
    operator.kill()
    cluster.apply(sandbox("between"))
    wait_for_reason(cluster, BETA, "between", "DependenciesReady")
    second.stop()
    operator.start()


def test_the_definitions_are_printed_for_kubectl(cluster):
    printed = subprocess.run([program(), "crds"], capture_output=True, text=True, check=True, timeout=60).stdout
    # The same manager as the operator's: its address of the webhook gives way.
    done = cluster.kubectl(*SERVER_SIDE, "--dry-run=server", "-f", "-", input=printed)
    assert done.count("customresourcedefinition") == 16
