"""`Checkpoint` of `agents.kruise.io`, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import json

import pytest

from ..installation import wait_until
from .test_kruise_sandbox import in_phase, missing, sandbox, wait_for, wait_until_ready

CHECKPOINTS = "checkpoints.v1alpha1.agents.kruise.io"


def checkpoint(name: str, pod: str, *contents: str, **spec) -> dict:
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Checkpoint", "metadata": {"name": name},
        "spec": {"podName": pod, "persistentContents": list(contents), **spec},
    }


def in_phase_of(cluster, name: str, phase: str) -> dict:
    return wait_for(cluster, name, in_phase(phase), phase, CHECKPOINTS)["status"]


def executed(cluster, name: str, phase: str) -> None:
    """An executor of checkpoints sets a phase."""
    change = json.dumps({"status": {"phase": phase}})
    cluster.kubectl("patch", CHECKPOINTS, name, "--subresource=status", "--type=merge", "-p", change)


@pytest.fixture(scope="module")
def pod(operator, cluster):
    cluster.apply(sandbox("checked"))
    wait_until_ready(cluster, "checked")
    return "checked"


def test_the_description_of_a_pod_is_what_changed_in_place(cluster, pod):
    cluster.apply(checkpoint("same", pod, "podInfo"))
    status = in_phase_of(cluster, "same", "Succeeded")
    assert status["completionTime"] and "podTemplateDelta" not in status
    assert "finalizers" not in cluster.get(CHECKPOINTS, "same")["metadata"]
    image = "example.org/other:1"
    cluster.kubectl("label", "pod", pod, "team=a")
    cluster.kubectl("set", "image", f"pod/{pod}", f"main={image}")

    def is_described():
        cluster.delete(CHECKPOINTS, "changed", missing_ok=True)
        cluster.apply(checkpoint("changed", pod, "podInfo"))
        return in_phase_of(cluster, "changed", "Succeeded").get("podTemplateDelta")

    # The operator may not have seen the change at first. Labels and annotations are no part of it.
    assert wait_until(is_described, 60, "a difference") == {"spec": {"containers": [{"name": "main", "image": image}]}}


def test_memory_waits_for_an_executor_which_a_deletion_does_not_abort(cluster, pod):
    cluster.apply(checkpoint("memory", pod, "memory", "filesystem"))
    assert "executor" in in_phase_of(cluster, "memory", "Pending")["message"]
    assert cluster.get(CHECKPOINTS, "memory")["metadata"]["finalizers"] == ["agents.kruise.io/checkpoint"]
    cluster.apply(checkpoint("second", pod, "filesystem"))
    assert "under way: memory" in in_phase_of(cluster, "second", "Failed")["message"]
    executed(cluster, "memory", "Creating")
    cluster.delete(CHECKPOINTS, "memory", wait=False)
    assert cluster.get(CHECKPOINTS, "memory")["metadata"]["deletionTimestamp"]
    executed(cluster, "memory", "Succeeded")
    wait_until(lambda: missing(cluster, CHECKPOINTS, "memory"), 60, "it is gone")
    cluster.apply(checkpoint("third", pod, "filesystem"))
    in_phase_of(cluster, "third", "Pending")
    cluster.delete(CHECKPOINTS, "third")


@pytest.mark.parametrize("name, spec, told", [
    ("nothing", {"podName": "missing"}, "not running and ready"),
    ("alone", {"persistentContents": ["memory"]}, "cannot be kept"),
])
def test_what_cannot_be_kept_fails(cluster, pod, name, spec, told):
    wanted = checkpoint(name, pod, "filesystem")
    wanted["spec"] |= spec
    cluster.apply(wanted)
    assert told in in_phase_of(cluster, name, "Failed")["message"]
    selected = f"involvedObject.name={name},reason=CheckpointFailed"
    wait_until(lambda: cluster.get("events", fields=selected)["items"], 60, "the event")


def test_a_finished_checkpoint_goes_after_its_time(cluster, pod):
    cluster.apply(checkpoint("brief", pod, "podInfo", ttlAfterFinished="1s"))
    wait_until(lambda: missing(cluster, CHECKPOINTS, "brief"), 60, "it is gone")
