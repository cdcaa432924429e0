"""The test cluster itself: what other cases of this suite rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..installation import wait_until
from .images import SHELL


def pod(name: str, *command: str, annotations: dict | None = None, **spec) -> dict:
    container = {"name": "main", "image": SHELL, "command": list(command) or ["sleep", "1000"]}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def test_pods_of_the_fake_node_are_ready_at_once(cluster):
    cluster.apply(pod("fake"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/fake", "--timeout=60s")
    cluster.delete("pod", "fake")


@pytest.mark.parametrize("code, phase", [("0", "Succeeded"), ("3", "Failed")])
def test_pods_of_the_fake_node_end_on_demand(cluster, code, phase):
    cluster.apply(pod(f"ends-{code}", annotations={"fake-node/exit": code}))
    seen = lambda: cluster.get("pod", f"ends-{code}")["status"].get("phase") == phase  # noqa: E731
    wait_until(seen, 60, f"the phase {phase}")
    cluster.delete("pod", f"ends-{code}")


@pytest.mark.parametrize("runtime", ["runc", "gvisor"])
def test_pods_of_the_real_node_run_programs(real_cluster, runtime):
    chosen = {"runtimeClassName": "gvisor"} if runtime == "gvisor" else {}
    real_cluster.apply(pod(runtime, "sh", "-c", "echo begun; exec sleep 1000", **chosen))
    real_cluster.kubectl("wait", "--for=condition=Ready", f"pod/{runtime}", "--timeout=120s")
    kernel = real_cluster.kubectl("exec", runtime, "--", "dmesg") if runtime == "gvisor" else ""
    assert ("Starting gVisor" in kernel) == (runtime == "gvisor")
    wait_until(lambda: real_cluster.kubectl("logs", runtime) == "begun\n", 60, "the pod's log")
    real_cluster.delete("pod", runtime)


def test_a_node_leaves_nothing_on_the_machine(real_cluster):
    """Its mounts and its links are in namespaces of its own."""
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(real_cluster.directory) not in mounts
    assert "/var/lib/kubelet" not in mounts
