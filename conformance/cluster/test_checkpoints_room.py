"""Checkpoints of pods for which their node's disk has no room."""

from __future__ import annotations

import pytest

from .test_checkpoints_elsewhere import clean  # noqa: F401
from .test_checkpoints_node import (  # noqa: F401
    STORE, agent_of, ended, inside, number, operator, ready, sandbox, state,
)
from .test_install import imported  # noqa: F401
from .test_kruise_checkpoint import checkpoint

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
