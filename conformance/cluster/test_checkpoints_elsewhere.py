"""Checkpoints that leave their node: pods on another one start from the copy in an object store.

Both nodes have the store as a directory of the machine, as a volume of a network would be.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ..installation import wait_until
from .conftest import operator_of
from .kills import AGENT, kill
from .test_checkpoints_node import STORE, VALUES, agent_of, inside, raw_pod, ready, refusal, sandbox, saved
from .test_install import import_program, imported  # noqa: F401
from .test_kruise_checkpoint import CHECKPOINTS
from .test_kruise_sandbox import KIND, wait_for

STORED = "shoal.dev/stored"
#: Lists the fetches of a node.
FETCHES = f"find {STORE}/.fetch -type f 2>/dev/null || true"


@pytest.fixture(scope="module")
def operator(real_cluster):
    yield from operator_of(real_cluster)


@pytest.fixture(scope="module")
def objects(real_cluster):
    directory = real_cluster.directory / "objects"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def other(operator, imported, real_cluster, objects, tmp_path_factory):
    with real_cluster.another_node() as node:
        import_program(node, tmp_path_factory.mktemp("image"))
        values = f"url=file:///var/lib/shoal/objects,node.objects.volume.hostPath.path={objects}"
        for _ in agent_of(real_cluster, *VALUES, "--set", f"node.objects.{values}"):
            yield node


@pytest.fixture
def clean(real_cluster):
    yield
    for kind in (KIND, CHECKPOINTS):
        real_cluster.delete_all(kind)


def stored(cluster, name: str) -> None:
    """Waits until the object store has a checkpoint."""
    wait_until(
        lambda: STORED in cluster.get(CHECKPOINTS, name)["metadata"]["annotations"], 60, f"{name} is in the object store"
    )


def place(cluster, name: str) -> str:
    return cluster.get("pods", name)["spec"]["nodeName"]


def is_paused(found: dict) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "SandboxPaused" and one["status"] == "True" for one in conditions)


def counted(cluster, name: str) -> list[str]:
    """The number that the program drew when it began, and how far it counted."""
    return inside(cluster, name, "cat /data/count").split()


def on(name: str, node: str, **spec) -> dict:
    """A sandbox whose pod a node takes, and no other."""
    return sandbox(name, nodeSelector={"kubernetes.io/hostname": node}, **spec)


def check_clones(cluster, other, source: str, checkpoint: str) -> None:
    """Starts two clones of a checkpoint on the other node, which fetches it once."""
    own, count = counted(cluster, source)
    for number in range(2):
        cluster.apply(on(f"far-{number}", other.name, restore=checkpoint))
    for number in range(2):
        name = f"far-{number}"
        ready(cluster, name)
        assert place(cluster, name) == other.name
        # The same program continues.
        same, later = counted(cluster, name)
        assert same == own and int(later) > 0, (count, later)
        image = cluster.get("pods", name)["spec"]["containers"][0]["image"]
        assert image.startswith("shoal.invalid/busybox:1@sha256:")
    assert copies(other) == 1


def copies(other) -> int:
    """How many checkpoints a node has."""
    return other.run("sh", "-c", f"ls -d {STORE}/default/*").count("\n")


def check_fetch(cluster, node, other, is_there: Callable[[object, str], None]) -> None:
    """Kills the agent of a node while the other node fetches a large checkpoint. `is_there` waits until it can."""
    cluster.apply(on("large", "node-0"))
    ready(cluster, "large")
    inside(cluster, "large", "dd if=/dev/urandom of=/dev/shm/big bs=1M count=80")
    saved(cluster, "is-large", "large")
    is_there(cluster, "is-large")
    own, _ = counted(cluster, "large")
    cluster.apply(on("waits", other.name, restore="is-large"))
    wait_until(lambda: other.run("sh", "-c", FETCHES) != "", 60, "it is fetched")
    assert kill(node, AGENT) == 1
    ready(cluster, "waits", 240)
    assert counted(cluster, "waits")[0] == own
    assert copies(other) == 1


def check_resume(cluster, is_there: Callable[[object, str], None]) -> None:
    """Pauses a sandbox with its memory, and resumes it while its node takes no pods."""
    made = sandbox("mover")
    made["spec"] |= {"pauseStrategy": {"type": "Hibernate"}, "persistentContents": ["memory", "filesystem"]}
    cluster.apply(made)
    ready(cluster, "mover")
    first = place(cluster, "mover")
    own, _ = counted(cluster, "mover")
    cluster.patch(KIND, "mover", {"spec": {"paused": True}})
    # The phase says so before the pod is saved.
    wait_for(cluster, "mover", is_paused, "it is paused")
    is_there(cluster, cluster.get(CHECKPOINTS)["items"][0]["metadata"]["name"])
    cluster.kubectl("cordon", first)
    try:
        cluster.patch(KIND, "mover", {"spec": {"paused": False}})
        ready(cluster, "mover")
        assert place(cluster, "mover") != first
        assert counted(cluster, "mover")[0] == own
    finally:
        cluster.kubectl("uncordon", first)


def check_thief(cluster, other, identifier: str, why: str) -> None:
    """A pod of the namespace `strangers` names a checkpoint of another one, with the marks of the operator. It is given up."""
    thief = raw_pod("thief", identifier, "strangers")
    thief["metadata"]["annotations"]["shoal.dev/images"] = "{}"
    thief["spec"]["nodeSelector"] = {"kubernetes.io/hostname": other.name}
    cluster.apply(thief)
    refusal(cluster, "thief", f"was not fetched: {why}", "strangers")
    assert other.run("sh", "-c", f"ls {STORE}/strangers 2>/dev/null || true") == ""
    cluster.delete("namespace", "strangers")
    # The agent gives it up, too.
    wait_until(lambda: other.run("sh", "-c", FETCHES) == "", 90, "it is not being fetched any more")


def test_a_clone_starts_on_a_node_that_never_had_its_source(other, real_cluster, objects, clean):
    real_cluster.apply(on("source", "node-0"))
    ready(real_cluster, "source")
    saved(real_cluster, "leaves", "source")
    stored(real_cluster, "leaves")
    check_clones(real_cluster, other, "source", "leaves")
    # Without a wish, a clone starts where the checkpoint is.
    real_cluster.apply(sandbox("near", restore="leaves"))
    ready(real_cluster, "near")
    assert place(real_cluster, "near") in ("node-0", other.name)
    real_cluster.delete(CHECKPOINTS, "leaves")
    wait_until(lambda: other.run("find", STORE, "-type", "f") == "", 90, "the copy is deleted")
    assert [path for path in objects.rglob("*") if path.is_file()] == []


def test_a_paused_sandbox_resumes_when_its_node_is_away(other, real_cluster, clean):
    check_resume(real_cluster, stored)


def test_a_fetch_is_completed_when_its_agent_is_killed(other, real_cluster, clean):
    check_fetch(real_cluster, other, other, stored)


def test_no_other_namespace_gets_a_copy(other, real_cluster, clean):
    real_cluster.apply(on("owner", "node-0"))
    ready(real_cluster, "owner")
    identifier = saved(real_cluster, "private", "owner")["checkpointId"]
    stored(real_cluster, "private")
    real_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strangers"}})
    thief = raw_pod("thief", identifier, "strangers")
    check_thief(real_cluster, other, identifier, "the object store: ")


def test_a_damaged_copy_is_refused_with_a_reason(other, real_cluster, objects, clean):
    real_cluster.apply(on("victim", "node-0"))
    ready(real_cluster, "victim")
    saved(real_cluster, "damaged", "victim")
    stored(real_cluster, "damaged")
    pages, = [path for path in objects.rglob("pages.img")]
    kept = pages.read_bytes()
    pages.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    real_cluster.apply(on("refused", other.name, restore="damaged"))

    refusal(real_cluster, "refused", "changed after it was saved (pages.img)")
    # When the copy is good again, so is the pod.
    pages.write_bytes(kept)
    ready(real_cluster, "refused")
