"""Kills of the node's programs at random moments of saves and restores.

`SHOAL_KILL_ROUNDS` says how many rounds there are, and `SHOAL_KILL_SEED` repeats those of another run.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from ..installation import wait_until
from .kills import AGENT, CONTAINERD, KUBELET, SHIM, WRAPPER, is_kind, kill, processes
from .test_checkpoints_node import (  # noqa: F401
    STORE, count, inside, node, number, operator, ready, sandbox, sandboxes_of, told,
)
from .test_install import imported  # noqa: F401
from .test_kruise_checkpoint import CHECKPOINTS, checkpoint
from .test_kruise_sandbox import KIND

ROUNDS = int(os.environ.get("SHOAL_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("SHOAL_KILL_SEED", str(time.time_ns())))

#: Kinds of processes that are killed during saves and restores.
SAVING = (AGENT, AGENT, WRAPPER, KUBELET, CONTAINERD)
RESTORING = (WRAPPER, WRAPPER, SHIM, KUBELET, CONTAINERD)
#: The longest wait before a kill in seconds, for those that differ: the calls of the runtime are waited for.
DELAYS = {WRAPPER: 0.3}


@pytest.fixture
def source(node, real_cluster):
    real_cluster.apply(sandbox("source"))
    ready(real_cluster, "source")
    wait_until(lambda: count(real_cluster, "source") > 0, 60, "it counts")
    return "source"


def kill_a_call(node, chance: random.Random) -> int:
    """Kills calls of the runtime. Each lasts for a moment, so it waits until some are there."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        if any(is_kind(WRAPPER, words, ()) for words in processes(node).values()):
            time.sleep(chance.choice((0, chance.uniform(0, 0.3))))
            if killed := kill(node, WRAPPER):
                return killed
    return 0


def is_started(node, sandbox: str) -> bool:
    """Whether a restored pod's own container has started."""
    return node.run("sh", "-c", f"ls /run/shoal-runsc/pods/{sandbox}/restored-_sandbox 2>/dev/null || true") != ""


def hit(node, kind: str, chance: random.Random, pod: str) -> int:
    """Kills processes of a kind, and returns their number."""
    if kind == WRAPPER:
        return kill_a_call(node, chance)
    if kind == CONTAINERD and pod.startswith("clone"):
        # gVisor's shim reports no end of a sandbox that did not start, so containerd waits forever for one that it
        # was creating when it was killed. It is the same for pods that are not restored.
        wait_until(lambda: any(is_started(node, one) for one in sandboxes_of(node, pod)), 60, "the sandbox starts")
        time.sleep(chance.uniform(0, 1))
    return kill(node, kind, sandboxes_of(node, pod) if kind == SHIM else ())


def goes_on(cluster, name: str, drawn: str) -> None:
    """Waits until the program of a sandbox counts on. It must be the one that drew this number, and no other."""
    seen: set[int] = set()

    def counts() -> bool:
        try:
            words = inside(cluster, name, "cat /data/count").split()
        except AssertionError:
            # The kubelet may be away, or not serve yet.
            return False
        assert words[0] == drawn, f"{name} has started again"
        seen.add(int(words[1]))
        return len(seen) > 1

    wait_until(counts, 120, f"{name} counts on")


def seen_on_the_node(node, pod: str) -> str:
    """The calls of the runtime, and what containerd and the kubelet said of a pod, for the report of a failure."""
    calls = [f"{process}: {' '.join(words)}" for process, words in processes(node).items() if "runsc" in words[0]]
    logs = (node.directory / "containerd.log", node.cluster.processes.log(node.name))
    ids = [pod, *sandboxes_of(node, pod)]
    lines = [line[:600] for log in logs for line in log.read_text(errors="replace").splitlines() if any(one in line for one in ids)]
    return "\n".join([*calls, *lines[-150:]])


def ended_somehow(cluster, name: str) -> dict:
    """The status of a checkpoint that has ended, well or not."""

    def seen():
        status = cluster.get(CHECKPOINTS, name).get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    return wait_until(seen, 240, f"{name} has ended")


def gone(cluster, kind: str, name: str) -> None:
    cluster.delete(kind, name, within=200)


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_kills_at_random_moments_lose_nothing_and_leave_nothing(source, node, real_cluster):
    chance = random.Random(SEED)
    drawn = number(real_cluster, source)
    did = []
    for turn in range(ROUNDS):
        name, clone = f"kill-{turn}", f"clone-{turn}"
        saving, restoring = chance.choice(SAVING), chance.choice(RESTORING)
        save_delay, restore_delay = chance.uniform(0, DELAYS.get(saving, 1.5)), chance.uniform(0, DELAYS.get(restoring, 2.5))
        did.append(f"seed {SEED}, round {turn}: {saving} after {save_delay:.2f} s")
        real_cluster.apply(checkpoint(name, source, "memory", "filesystem"))
        # No condition is waited for: the moment is the point.
        time.sleep(save_delay)
        did[-1] += f" ({hit(node, saving, chance, source)})"
        status = ended_somehow(real_cluster, name)
        did[-1] += f", {status['phase']}"
        goes_on(real_cluster, source, drawn)
        if status["phase"] == "Failed":
            assert status["message"], did
        else:
            did[-1] += f"; {restoring} after {restore_delay:.2f} s"
            real_cluster.apply(sandbox(clone, restore=name))
            time.sleep(restore_delay)
            did[-1] += f" ({hit(node, restoring, chance, clone)})"
            print(did[-1], flush=True)
            try:
                ready(real_cluster, clone, 240)
                goes_on(real_cluster, clone, drawn)
            except AssertionError as mistake:
                seen = (mistake, told(real_cluster, clone), *did, seen_on_the_node(node, clone))
                raise AssertionError("\n".join(map(str, seen))) from None
            goes_on(real_cluster, source, drawn)
            gone(real_cluster, KIND, clone)
        gone(real_cluster, CHECKPOINTS, name)
        left = node.run("sh", "-c", f"find {STORE} -type f 2>/dev/null || true")
        assert left == "", f"files are left\n{left}\n{did}"
        try:
            wait_until(lambda: nothing_left(node), 120, "the clone's sandbox and shim end")
        except AssertionError as mistake:
            raise AssertionError("\n".join(map(str, (mistake, *did, seen_on_the_node(node, clone))))) from None


def nothing_left(node) -> bool:
    """Whether the only sandbox, and the only shim of gVisor, is that of the source."""
    lines = processes(node).values()
    shims = [words for words in lines if words[0].endswith("/containerd-shim-runsc-v1")]
    return sum("boot" in words for words in lines) == len(shims) == 1
