"""Checkpoints of pods for which their node's disk or their own limit has no room."""

from __future__ import annotations

import pytest

from ..installation import wait_until
from .images import SHELL
from .test_checkpoints_elsewhere import clean  # noqa: F401
from .test_checkpoints_node import (  # noqa: F401
    COUNT, STORE, agent_of, ended, inside, number, operator, place, ready, sandbox, state,
)
from .test_install import imported  # noqa: F401
from .test_kruise_checkpoint import CHECKPOINTS, checkpoint

#: The settings of the agent: the disk has less room than they give.
VALUES = ("--set", "node.enabled=true,node.storeSize=1Gi,node.namespaceShare=90,definitions.install=false")
#: The size of the store's disk, of which the agent spares 64 MiB.
DISK = "160m"


@pytest.fixture(scope="module")
def small(operator, imported, real_cluster):  # noqa: F811
    """A node whose store has a small disk of its own."""
    node = real_cluster.node
    node.run("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "none", STORE)
    yield from agent_of(real_cluster, *VALUES)
    node.run("umount", STORE)


def test_a_save_that_the_disk_has_no_room_for_leaves_nothing(small, real_cluster, clean):
    real_cluster.apply(sandbox("fat"))
    ready(real_cluster, "fat")
    drawn = number(real_cluster, "fat")
    inside(real_cluster, "fat", "dd if=/dev/urandom of=/dev/shm/big bs=1M count=120")
    real_cluster.apply(checkpoint("too-big", "fat", "memory", "filesystem"))
    assert "the disk of the node has" in ended(real_cluster, "too-big", "Failed")["message"]
    assert number(real_cluster, "fat") == drawn
    assert small.run("find", STORE, "-type", "f") == ""


def test_a_disk_that_fills_up_during_the_save_leaves_nothing(small, real_cluster, clean):
    real_cluster.apply(sandbox("grows"))
    ready(real_cluster, "grows")
    drawn = number(real_cluster, "grows")
    # gVisor keeps files of the root on the disk, and not in memory: the estimate lacks them.
    inside(real_cluster, "grows", "dd if=/dev/urandom of=/root/big bs=1M count=200")
    real_cluster.apply(checkpoint("grown", "grows", "memory", "filesystem"))
    message = ended(real_cluster, "grown", "Failed")["message"]
    assert "no space left" in message or "the disk of the node has" in message, message
    assert number(real_cluster, "grows") == drawn
    assert small.run("find", STORE, "-type", "f") == ""
    # The next one has the whole disk.
    inside(real_cluster, "grows", "rm /root/big")
    real_cluster.apply(checkpoint("fits", "grows", "memory", "filesystem"))
    ended(real_cluster, "fits", "Succeeded")
    assert state(real_cluster, "grows")[0] == drawn


#: When programs begin to use up the memory of their pods, in seconds after the request for a save.
HOGS = (0.0, 0.15, 0.4)


def test_a_pod_that_is_killed_for_its_memory_during_the_save(small, real_cluster, clean):
    """Its checkpoint is complete, or has failed and left nothing."""
    limited = {"name": "main", "image": SHELL, "command": ["sh", "-c", COUNT], "resources": {"limits": {"memory": "96Mi"}}}
    pods = {f"greedy-{number}": delay for number, delay in enumerate(HOGS)}
    for name in pods:
        real_cluster.apply(sandbox(name, limited, restartPolicy="Never"))
    drawn = {}
    for name, delay in pods.items():
        ready(real_cluster, name)
        inside(real_cluster, name, "dd if=/dev/urandom of=/dev/shm/some bs=1M count=15")
        drawn[name] = number(real_cluster, name)
        hog = f"(sleep {delay}; dd if=/dev/urandom of=/dev/shm/all bs=1M count=400) >/dev/null 2>&1 &"
        inside(real_cluster, name, hog)
        real_cluster.apply(checkpoint(name, name, "memory", "filesystem"))
    kept = []
    for name in pods:
        wait_until(lambda name=name: real_cluster.get("pods", name)["status"]["phase"] == "Failed", 60, f"{name} is killed")
        finished = lambda name=name: real_cluster.get(CHECKPOINTS, name).get("status", {}).get("phase") in ("Succeeded", "Failed")
        wait_until(finished, 60, f"the save of {name} ends")
        status = real_cluster.get(CHECKPOINTS, name)["status"]
        if status["phase"] == "Failed":
            assert f"pod {name} " in status["message"], status
            continue
        kept.append(place(small, status["checkpointId"]))
        clone = f"{name}-clone"
        # Programs that a command started are not restored: only the limit would end them again.
        real_cluster.apply(sandbox(clone, limited, restore=name, restartPolicy="Never"))
        ready(real_cluster, clone)
        assert number(real_cluster, clone) == drawn[name]
    listed = small.run("find", f"{STORE}/default", "-mindepth", "1", "-maxdepth", "1").split() if kept else []
    assert sorted(listed) == sorted(kept)
    # The agent saves the next one.
    real_cluster.apply(sandbox("modest"))
    ready(real_cluster, "modest")
    real_cluster.apply(checkpoint("next", "modest", "memory", "filesystem"))
    ended(real_cluster, "next", "Succeeded")
