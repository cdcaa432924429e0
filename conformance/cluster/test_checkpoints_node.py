"""Checkpoints of real pods: `shoal node` saves them on a real node, and `shoal-runsc` restores pods from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ..installation import wait_until
from . import manifests
from .images import SHELL
from .operator import Operator
from .test_install import imported  # noqa: F401
from .test_kruise_checkpoint import CHECKPOINTS, checkpoint
from .test_kruise_sandbox import KIND, in_phase, missing, wait_for

STORE = "/var/lib/shoal/checkpoints"
NODE_NAMESPACE = "shoal-node"
#: The finalizer by which files go before their checkpoint.
FILES = "shoal.dev/checkpoint-files"
#: Settings of the agent under test.
VALUES = ("--set", "node.enabled=true,node.storeSize=2Gi,definitions.install=false")

#: Counts in memory and on disk. Only a process that was restored goes on from its number.
COUNT = "mkdir -p /data; i=$((1000 + $$)); echo secret > /root/kept; while true; do i=$((i+1)); echo $i > /data/count; sleep 0.1; done"


@pytest.fixture(scope="module")
def operator(real_cluster):
    operator = Operator(real_cluster)
    operator.install()
    operator.start()
    yield operator
    operator.clear()
    operator.stop()


@pytest.fixture(scope="module")
def node(operator, imported, real_cluster):
    """The agent, from the chart, on the real node."""
    text = manifests.rendered(*VALUES)
    chart = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    own = [one for one in chart if one["metadata"]["labels"]["app.kubernetes.io/name"] == "shoal-node"]
    assert {one["kind"] for one in own} == {
        "Namespace", "ServiceAccount", "RuntimeClass", "DaemonSet", "ClusterRole", "ClusterRoleBinding",
    }
    real_cluster.apply(*own)
    real_cluster.kubectl(
        "rollout", "status", "daemonset/shoal-node", "-n", NODE_NAMESPACE, "--timeout=90s", timeout=100
    )
    yield real_cluster.node
    for one in reversed(own):
        namespace = ["-n", one["metadata"]["namespace"]] if "namespace" in one["metadata"] else []
        real_cluster.kubectl("delete", one["kind"], one["metadata"]["name"], *namespace, "--timeout=90s", timeout=100)


def sandbox(name: str, *containers: dict, restore: str = "", **spec) -> dict:
    containers = containers or ({"name": "main", "image": SHELL, "command": ["sh", "-c", COUNT]},)
    pod = {
        "runtimeClassName": "shoal", "containers": list(containers), "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False, "dnsPolicy": "Default",
    }
    annotations = {"agents.kruise.io/restore-from": restore} if restore else {}
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox", "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": {"spec": pod | spec}},
    }


def ready(cluster, name: str, seconds: float = 90) -> None:
    def seen():
        found = cluster.get(KIND, name)
        conditions = found.get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    try:
        wait_until(seen, seconds, f"{name} is ready")
    except AssertionError as mistake:
        raise AssertionError(f"{mistake}\n{told(cluster, name)}") from None


def told(cluster, name: str) -> str:
    """What is known of a sandbox and its pod."""
    events = [one.get("message", "") for one in cluster.get("events", fields=f"involvedObject.name={name}")["items"]]
    return "\n".join([json.dumps(cluster.get(KIND, name).get("status", {})), *events])


def inside(cluster, name: str, command: str, container: str = "main") -> str:
    return cluster.kubectl("exec", name, "-c", container, "--", "sh", "-c", command, timeout=60).strip()


def saved(cluster, name: str, pod: str, *contents: str, **spec) -> dict:
    """The status of a checkpoint that was taken."""
    cluster.apply(checkpoint(name, pod, *(contents or ("memory", "filesystem")), **spec))
    return ended(cluster, name, "Succeeded")


def ended(cluster, name: str, phase: str) -> dict:
    def seen():
        status = cluster.get(CHECKPOINTS, name).get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    status = wait_until(seen, 90, f"{name} has ended")
    assert status["phase"] == phase, status
    return status


def place(node, identifier: str, namespace: str = "default") -> str:
    """The directory of a checkpoint on the node."""
    return f"{STORE}/{namespace}/{identifier.split('-')[0]}"


@pytest.fixture(scope="module")
def source(node, real_cluster):
    """A sandbox that counts."""
    real_cluster.apply(sandbox("source"))
    ready(real_cluster, "source")
    wait_until(lambda: count(real_cluster, "source") > 0, 30, "it counts")
    return "source"


def count(cluster, name: str) -> int:
    seen = inside(cluster, name, "cat /data/count 2>/dev/null || echo 0")
    return int(seen or 0)


def test_a_clone_goes_on_where_its_source_was_saved(source, node, real_cluster):
    before = count(real_cluster, source)
    status = saved(real_cluster, "kept", source)
    after = count(real_cluster, source)
    assert status["checkpointId"] and status["completionTime"]
    found = real_cluster.get(CHECKPOINTS, "kept")
    assert FILES in found["metadata"]["finalizers"]
    assert found["metadata"]["labels"]["shoal.dev/node"] == node.name
    # Files of the node are closed to everybody but root.
    listed = node.run("find", place(node, status["checkpointId"]), "-printf", "%m %y %U %f\n").splitlines()
    assert listed and {line.rsplit(" ", 1)[0] for line in listed} == {"700 d 0", "600 f 0"}, listed
    real_cluster.apply(sandbox("clone", restore="kept"))
    ready(real_cluster, "clone")
    # Its processes have not begun again: their numbers are the saved ones or later, and its file is there.
    first = inside(real_cluster, "clone", "ps | grep -c 'sleep 0.1' >/dev/null; cat /data/count")
    assert before <= int(first), (before, first)
    assert inside(real_cluster, "clone", "cat /root/kept") == "secret"
    assert inside(real_cluster, "clone", "hostname") == "clone"
    # Both count on, each for itself.
    for name in (source, "clone"):
        here = count(real_cluster, name)
        wait_until(lambda name=name, here=here: count(real_cluster, name) > here, 30, f"{name} counts on")
    assert after > 0
    inside(real_cluster, "clone", "echo changed > /root/kept")
    assert inside(real_cluster, source, "cat /root/kept") == "secret"
