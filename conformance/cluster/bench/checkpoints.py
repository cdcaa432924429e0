"""Measures checkpoints of real pods, beside the bare runtime and pods that start cold:

    python -m conformance.cluster.bench.checkpoints [--rounds N] [--output FILE]

One cluster with a real node serves all rounds. The two sides of a figure take turns.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from e2b import Sandbox

from ...installation import wait_until
from ...targets import table, timed
from ..cluster import Cluster
from ..conftest import operator_of, sdk_of
from ..images import RUNTIME, SHELL
from ..kills import AGENT, is_kind, processes
from ..node import Node
from ..test_checkpoints_node import STORE, agent_of, sandboxes_of
from ..test_install import import_program
from ..test_kruise_checkpoint import CHECKPOINTS, checkpoint
from ..test_kruise_sandbox import KIND
from ..test_sdk import available, resource_of, sandbox_set
from .measures import usage

#: The memory that a sandbox holds, of random bytes.
MEGABYTES = 100
#: How many forks are made at once.
FORKS = 20
#: The pool that is filled by restores, and the other.
POOLS = ("restored", "plain")
#: All pods have these, and no limit of the processors.
RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
#: The settings of the agent.
VALUES = ("--set", "node.enabled=true,node.storeSize=4Gi,node.namespaceShare=90,definitions.install=false")

#: Writes the longest time that it stood still, in hundredths of a second, since the file was last emptied. It looks every 10 ms.
STAND_STILL = (
    "mkfifo /tmp/never; exec 3<>/tmp/never; now() { read t rest < /proc/uptime; t=${t%.*}${t#*.}; }; now; last=$t; longest=0; "
    "while true; do read -t 0.01 -u 3 x; now; gap=$((t-last)); last=$t; [ -s /tmp/longest ] || longest=0; "
    "[ $gap -gt $longest ] && longest=$gap; echo $longest > /tmp/longest; done"
)

#: By figure: its meaning, what it is compared with, and the target: a ratio, or what it may take more.
FIGURES = {
    "save": (f"Checkpoint created → Succeeded, {MEGABYTES} MB, ms", "`runsc checkpoint` of the same pod", "+ 250"),
    "clone": ("clone: SDK create → end of the first command, ms", "a cold gVisor pod of the same image: created → Ready", "+ 300"),
    "claim": ("claim from a pool that is filled by restores, ms", "from a pool that is not", "1.1 ×"),
    "freeze": (f"the source stands still, {MEGABYTES} MB, ms", "", "250"),
    "forks": (f"{FORKS} forks of a sandbox, ms", f"{FORKS} times one fork", "0.7 ×"),
    "agent": ("memory of the node's agent, MiB", "", "25"),
}

FRAME = f"""\
# Benchmarks of checkpoints

`make bench-checkpoints` writes this page. It measures [checkpoints of pods](kubernetes-checkpoints.md) on a cluster of its own with a
real node: kubelet, containerd and gVisor. Everything shares the processors of one machine, so the second column of figures counts: what
the same takes without a checkpoint, in turns in the same run. Figures are medians of the rounds.

| figure | definition |
|---|---|
| save | from sending a `Checkpoint` until its phase is `Succeeded`; the pod has {MEGABYTES} MB of random bytes in memory. Beside it: `runsc checkpoint` with the agent's flags |
| clone | `Sandbox.create` with a snapshot, and the first command; beside it, a pod of the RuntimeClass `gvisor` from its creation until it is ready |
| claim | `Sandbox.create` with the name of a pool that has a member |
| stands still | the longest time between two steps of a program in the pod during the save; its clock has steps of 10 ms |
| forks | `Sandbox.fork(count={FORKS})`, beside {FORKS} times `fork(count=1)`, once |
| memory of the agent | resident, after all of this |
"""


class Bench:
    """The cluster and its measurements."""

    def __init__(self, cluster: Cluster, api: dict[str, str]) -> None:
        self.cluster = cluster
        self.api = api
        self.number = 0
        self.found: dict[str, list[tuple[float, float]]] = {}

    def name(self, what: str) -> str:
        self.number += 1
        return f"{what}-{self.number}"

    def add(self, figure: str, ours: float, beside: float = 0.0) -> None:
        print(f"bench: {figure}: {ours:.1f}, beside it {beside:.1f}", flush=True)
        self.found.setdefault(figure, []).append((ours, beside))

    def pool(self, name: str, restore: str = "", **pod) -> None:
        made = sandbox_set(name, 1, runtimeClassName="shoal", dnsPolicy="Default", **pod)
        made["spec"]["persistentContents"] = ["memory", "filesystem"]
        made["spec"]["template"]["spec"]["containers"][0] |= {"resources": RESOURCES}
        if restore:
            made["spec"]["template"].setdefault("metadata", {})["annotations"] = {"agents.kruise.io/restore-from": restore}
        self.cluster.apply(made)
        self.is_filled(name)

    def is_filled(self, name: str) -> None:
        wait_until(lambda: available(self.cluster, name) >= 1, 150, f"a member of {name}")

    def settle(self) -> None:
        """Waits until the pools are filled and no pod ends, so that nothing else runs during a measurement.

        The kubelet looks at its containers once a second, and what is waited for is seen then: a random part of a second
        is added, so that measurements do not all begin at the same part of it.
        """
        for pool in POOLS:
            self.is_filled(pool)
        ends = lambda: [one for one in self.cluster.get("pods")["items"] if "deletionTimestamp" in one["metadata"]]
        wait_until(lambda: not ends(), 120, "no pod ends")
        time.sleep(random.random())

    def save(self, source: Sandbox, pod: str) -> None:
        """A checkpoint by the agent, and one by the bare runtime."""
        source.commands.run(": > /tmp/longest")
        name = self.name("save")
        ours = timed(lambda: self.saved(name, pod))
        still = 10.0 * float(source.commands.run("cat /tmp/longest").stdout or 0)
        self.cluster.delete(CHECKPOINTS, name)
        (sandbox,) = sandboxes_of(self.cluster.node, pod)
        scratch = f"{STORE}/bench"
        self.cluster.node.run("mkdir", scratch)
        words = ("--leave-running", "--compression=none", f"--image-path={scratch}", sandbox)
        bare = timed(lambda: self.cluster.node.run(
            "/usr/local/lib/shoal/runsc", "--root=/run/shoal-runsc/k8s.io", "checkpoint", *words
        ))
        self.cluster.node.run("rm", "-r", scratch)
        self.add("save", ours, bare)
        self.add("freeze", still)

    def saved(self, name: str, pod: str) -> None:
        self.cluster.apply(checkpoint(name, pod, "memory", "filesystem"))
        wait_until(
            lambda: self.cluster.get(CHECKPOINTS, name).get("status", {}).get("phase") == "Succeeded", 120, f"{name} is saved"
        )

    def clone(self, snapshot: str) -> None:
        """A clone and its first command, and a cold pod."""
        made: list[Sandbox] = []
        self.settle()
        ours = timed(lambda: made.append(self.created(snapshot)))
        made[0].kill()
        self.settle()
        pod = self.name("cold")
        cold = timed(lambda: self.cold(pod))
        self.cluster.delete("pod", pod)
        self.add("clone", ours, cold)

    def created(self, template: str) -> Sandbox:
        sandbox = Sandbox.create(template, timeout=600, **self.api)
        sandbox.commands.run("true")
        return sandbox

    def cold(self, name: str) -> None:
        container = {"name": "main", "image": SHELL, "command": ["sleep", "1000000"], "resources": RESOURCES}
        self.cluster.apply({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "runtimeClassName": "gvisor", "containers": [container], "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False, "dnsPolicy": "Default", "nodeSelector": {"kubernetes.io/hostname": "node-0"},
            },
        })

        def ready() -> bool:
            conditions = self.cluster.get("pods", name).get("status", {}).get("conditions", [])
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        wait_until(ready, 120, f"{name} is ready")

    def claim(self) -> None:
        """A sandbox from each of the two pools."""
        taken = {}
        for pool in POOLS:
            self.settle()
            made: list[Sandbox] = []
            taken[pool] = timed(lambda: made.append(Sandbox.create(pool, timeout=600, **self.api)))
            made[0].kill()
        self.add("claim", taken["restored"], taken["plain"])

    def forks(self, source: Sandbox) -> None:
        self.settle()
        many = timed(lambda: forked(source, FORKS))
        one = timed(lambda: [forked(source, 1) for _ in range(FORKS)])
        self.add("forks", many, one)


def forked(source: Sandbox, count: int) -> None:
    forks = source.fork(count=count, timeout=600)
    assert all(isinstance(one, Sandbox) for one in forks), forks
    for fork in forks:
        fork.kill()


def agent_memory(node: Node) -> float:
    """The resident memory of the agent in MiB."""
    (agent,) = [process for process, words in processes(node).items() if is_kind(AGENT, words, ())]
    return usage(agent).memory


def measure(bench: Bench, rounds: int) -> None:
    bench.pool("plain")
    source = Sandbox.create("plain", timeout=3600, **bench.api)
    source.commands.run(f"dd if=/dev/urandom of=/dev/shm/big bs=1M count={MEGABYTES}", timeout=60)
    source.commands.run(STAND_STILL, background=True, timeout=0)
    pod = resource_of(source)
    for _ in range(rounds):
        bench.save(source, pod)
    source.kill()
    small = bench.created("plain")
    snapshot = small.create_snapshot().snapshot_id
    bench.pool("restored", restore=snapshot)
    for _ in range(rounds):
        bench.clone(snapshot)
        bench.claim()
    bench.forks(small)
    bench.add("agent", agent_memory(bench.cluster.node))


def text(found: dict[str, list[tuple[float, float]]], rounds: int) -> str:
    return f"{FRAME}\n{table(FIGURES, found, f'{rounds} rounds')}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance.cluster.bench.checkpoints")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="file for the report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        cluster = Cluster(Path(scratch) / "state", node=True)
        try:
            cluster.start()
            import_program(cluster.node, Path(scratch))
            for _ in operator_of(cluster, "--runtime-image", RUNTIME):
                for _ in agent_of(cluster, *VALUES):
                    for api in sdk_of(cluster):
                        bench = Bench(cluster, api)
                        measure(bench, options.rounds)
                        for one in cluster.get(KIND)["items"]:
                            cluster.delete(KIND, one["metadata"]["name"], wait=False)
        finally:
            cluster.stop()
    report = text(bench.found, options.rounds)
    if options.output:
        options.output.write_text(report)
    print(report)


if __name__ == "__main__":
    main()
