"""Measures one replica of the E2B API in a cluster:

    python -m conformance.cluster.bench.replicas [--sandboxes N] [--rounds N] [--output FILE]

A cluster with fake nodes, and another with a real one. The API server, etcd, the scheduler, the operator and the load share
the machine with the replica, so what the API server takes for the same is measured beside it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...installation import wait_until
from ...targets import table, timed
from ..api import Api, Watch
from ..cluster import Cluster
from ..conftest import operator_of
from ..images import RUNTIME
from ..serving import Replica, first_key
from ..test_kruise_claims import PLAIN
from ..test_sdk import available, sandbox_set
from .gateway import Upstream
from .loads import CONNECTIONS, pod_template
from .measures import by_resource, quantile, usage

#: Fake nodes beside the first one.
NODES = 3
#: The most requests of a cluster at rest in so many seconds: leases, nodes and the look itself.
HEARTBEATS, LOOK = 60, 5
#: Creates of the light load, and how many there are a second.
LIGHT, RATE = 60, 5
#: Creates of the burst. As many members wait in its pool.
BURST = 600
#: What a page of a list has.
PAGE = 100
#: The time after the last create in which its sandbox may still change, in seconds.
TRAIL = 3
#: Where the sandboxes are.
SANDBOXES = "/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxes"
#: Servers close connections that are idle for longer, in seconds.
IDLE = 30
#: The longest that anything takes, in seconds.
LONGEST = 900

#: By figure: its meaning, what it is compared with, and the target.
FIGURES = {
    "p50": ("create from a pool, median, ms", "a PATCH of a Sandbox at the API server", "25"),
    "p99": ("create from a pool, p99, ms", "a PATCH of a Sandbox at the API server", "100"),
    "rate": ("creates a second, all at once", "PATCHes a second", "≥ 150"),
    "writes": ("changes of a Sandbox by its create", "", "2"),
    "resize": ("resize → in force, ms", "a PATCH of the pod's `resize` → in force", "+ 20"),
    "gateway": ("requests a second through the gateway, 50 connections", "nginx's proxy", "≥ 0.9 ×"),
    "memory": ("resident memory with {sandboxes} sandboxes, MiB", "", "150"),
    "many p50": ("create from a pool beside {sandboxes} sandboxes, median, ms", "a PATCH of a Sandbox at the API server", "25"),
    "list": ("all {sandboxes} sandboxes in pages of 100, ms", "as many from the API server, in pages of 100", ""),
    "filter": ("the sandboxes with one of 100 values of the metadata, ms", "", ""),
}

FRAME = """\
# Benchmarks of the E2B API in a cluster

`make bench-replicas` writes this page. It measures one replica of `shoal serve --backend kubernetes`, on a cluster of its own with fake
nodes, which report pods as ready at once and run nothing. A resize is measured on a real node. Everything shares the processors of one
machine (API server, etcd, scheduler, operator, load), so the second column counts: what the bare tool takes, in the same run.

| figure | definition |
|---|---|
| create from a pool | `POST /sandboxes` until the answer, 5 a second. Beside it: a PATCH of the labels of one Sandbox, as often |
| creates a second | 600 creates at once on 32 connections, from a pool with as many members, until the last answer. Beside it: as many PATCHes of those Sandboxes |
| changes of a Sandbox | versions of the Sandbox that a watch shows from its create on: the claim and the status |
| resize → in force | `PATCH /api/v1/sandbox/{id}/resources` until the pod's status has the new limit. Beside it: the same by a PATCH of the pod itself |
| requests through the gateway | to a server that answers for the address of a pod. Beside it: nginx as a proxy to the same server |
| resident memory | of the replica, after all sandboxes are listed |
"""


class Bench:
    """One replica, and its measurements."""

    def __init__(self, cluster: Cluster, replica: Replica) -> None:
        self.cluster = cluster
        self.replica = replica
        self.api = Api(cluster)
        self.key = first_key(cluster)
        self.found: dict[str, list[tuple[float, float]]] = {}
        self.local = threading.local()

    def add(self, figure: str, ours: float, beside: float = 0.0) -> None:
        print(f"bench: {figure}: {ours:.1f}, beside it {beside:.1f}", flush=True)
        self.found.setdefault(figure, []).append((ours, beside))

    def call(self, method: str, path: str, body: dict | None = None) -> tuple[http.client.HTTPResponse, object]:
        """An answer of the replica, over a connection that stays open while it is used."""
        connection, last = getattr(self.local, "connection", (None, 0.0))
        if connection is None or time.monotonic() > last + IDLE:
            connection = http.client.HTTPConnection("127.0.0.1", self.replica.port, timeout=120)
        self.local.connection = connection, time.monotonic()
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text[:500])
        return answer, json.loads(text) if text else None

    def create(self, pool: str) -> str:
        _, made = self.call("POST", "/sandboxes", {"templateID": pool, "metadata": PLAIN, "timeout": 3600})
        return made["sandboxID"]

    def resources(self, pool: str) -> list[str]:
        """The paths of a pool's Sandboxes."""
        listed = self.api.get(f"{SANDBOXES}?labelSelector=agents.kruise.io/sandbox-pool%3D{pool}")
        return [f"{SANDBOXES}/{one['metadata']['name']}" for one in listed["items"]]

    def mark(self, path: str) -> None:
        """The write that a claim is made of, without the replica."""
        self.api.patch(path, {"metadata": {"labels": {"marked": str(time.monotonic_ns())}}})

    def fill(self, pool: str, size: int) -> None:
        made = sandbox_set(pool, size)
        del made["spec"]["runtimes"]
        made["spec"]["template"] = pod_template()
        made["spec"]["scaleStrategy"] = {"maxUnavailable": "100%"}
        self.cluster.apply(made)
        self.full(pool, size)

    def full(self, pool: str, size: int) -> None:
        wait_until(lambda: available(self.cluster, pool) >= size, LONGEST, f"{size} members of {pool}")


def paced(count: int, act: Callable[[int], object]) -> list[float]:
    """Latencies in milliseconds of calls at the light load's rate."""
    begun, taken = time.monotonic(), []
    for number in range(count):
        time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        taken.append(timed(lambda number=number: act(number)))
    return taken


def at_once(bench: Bench, acts: list[Callable[[], object]]) -> float:
    """Calls a second, all at once."""
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        # Opens the connections.
        list(threads.map(lambda _: (bench.call("GET", "/health"), bench.api.text("/version"), time.sleep(0.05)), range(CONNECTIONS)))
        begun = time.monotonic()
        list(threads.map(lambda act: act(), acts))
        return len(acts) / (time.monotonic() - begun)


def light(bench: Bench, figures: tuple[str, ...]) -> None:
    """Creates at a rate that the machine easily manages."""
    bench.full("light", 2 * LIGHT)
    paced(2, lambda _: bench.create("light"))
    ours = paced(LIGHT, lambda _: bench.create("light"))
    bench.full("light", 2 * LIGHT)
    paths = bench.resources("light")
    theirs = paced(LIGHT, lambda number: bench.mark(paths[number % len(paths)]))
    for figure in figures:
        share = 0.99 if "p99" in figure else 0.5
        bench.add(figure, quantile(ours, share), quantile(theirs, share))


def burst(bench: Bench) -> None:
    """Creates all at once, and the changes of each Sandbox."""
    bench.full("burst", BURST)
    calm(bench)
    waiting = {path.rsplit("/", 1)[1] for path in bench.resources("burst")}
    changes: Counter[str] = Counter()
    listed = threading.Event()

    def see(change: str, seen: dict, at: float) -> None:
        if listed.is_set() and change == "MODIFIED" and seen["metadata"]["name"] in waiting:
            changes[seen["metadata"]["name"]] += 1

    watch = Watch(bench.api, SANDBOXES, see)
    time.sleep(TRAIL)
    listed.set()
    ours = at_once(bench, [lambda: bench.create("burst")] * BURST)
    # The operator writes status after status: it has caught up when the pool is full.
    bench.full("burst", BURST)
    time.sleep(TRAIL)
    watch.close()
    calm(bench)
    paths = bench.resources("burst")[:BURST]
    theirs = at_once(bench, [lambda path=path: bench.mark(path) for path in paths])
    bench.add("rate", ours, theirs)
    bench.add("writes", sum(changes.values()) / len(changes))


def gateway(bench: Bench) -> None:
    """Requests to a server that answers in place of a pod."""
    sandbox = bench.create("light")
    with Upstream(bench.cluster.directory) as upstream:
        for _ in range(5):
            ours = upstream.load(f"{bench.replica.url}/kruise/{sandbox}/{upstream.port}/")
            bench.add("gateway", ours, upstream.load(upstream.proxy))


def many(bench: Bench, count: int) -> None:
    """Many sandboxes, as `kubectl` makes them."""
    spec = {"template": pod_template()}

    def make(number: int) -> None:
        bench.api.create(SANDBOXES, {
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox",
            "metadata": {"name": f"many-{number}", "annotations": {"shard": str(number % 100)}}, "spec": spec,
        })

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(make, range(count)))
    wait_until(lambda: running(bench) >= count, LONGEST, f"{count} sandboxes run")
    calm(bench)
    ours = timed(lambda: pages(bench, ""))
    theirs = timed(lambda: pages_of_api_server(bench))
    seen = pages(bench, "")
    assert len(seen) == len(set(seen)) >= count, "each is listed once"
    bench.add("list", ours, theirs)
    matching: list[str] = []
    bench.add("filter", timed(lambda: matching.extend(pages(bench, "&metadata=shard%3D7"))))
    assert len(matching) == count // 100, len(matching)
    bench.add("memory", usage(bench.cluster.processes.running[bench.replica.name].pid).memory)
    light(bench, ("many p50",))


def running(bench: Bench) -> int:
    """How many running sandboxes the replica lists."""
    time.sleep(2)
    return len(pages(bench, "&state=running"))


def calm(bench: Bench) -> None:
    """Waits until nodes and controllers have written what became of all sandboxes. Their requests would slow down others."""
    # The API server may have closed the connection, which was idle meanwhile.
    bench.api = Api(bench.cluster)
    wait_until(lambda: is_calm(bench), LONGEST, "calm")


def is_calm(bench: Bench) -> bool:
    before = by_resource(bench.api).total()
    time.sleep(LOOK)
    return by_resource(bench.api).total() - before < HEARTBEATS


def pages(bench: Bench, query: str) -> list[str]:
    """The ids of all sandboxes that match, page by page."""
    found, token = [], ""
    while True:
        answer, listed = bench.call("GET", f"/v2/sandboxes?limit={PAGE}{query}{token}")
        found += [one["sandboxID"] for one in listed]
        following = answer.getheader("x-next-token")
        if not following:
            return found
        token = f"&nextToken={following}"


def pages_of_api_server(bench: Bench) -> None:
    token = ""
    while True:
        listed = bench.api.get(f"{SANDBOXES}?limit={PAGE}{token}")
        token = listed["metadata"].get("continue", "")
        if not token:
            return
        token = f"&continue={token}"


def resize(bench: Bench, rounds: int) -> None:
    """Resizes of a pod of a real node."""
    bench.cluster.apply(sandbox_set("sized", 1))
    bench.full("sized", 1)
    _, made = bench.call("POST", "/sandboxes", {"templateID": "sized", "timeout": 3600})
    sandbox = made["sandboxID"]
    _, known = bench.call("GET", f"/sandboxes/{sandbox}")
    pod = known["metadata"]["e2b.agents.kruise.io/sandbox-resource"].split("/")[1]
    path = f"/api/v1/namespaces/default/pods/{pod}"

    def until(cpu: str, ask: Callable[[], object]) -> float:
        """Milliseconds until the pod has this limit."""
        done = threading.Event()

        def see(change: str, seen: dict, at: float) -> None:
            statuses = seen.get("status", {}).get("containerStatuses", []) if seen["metadata"]["name"] == pod else []
            if any(one.get("resources", {}).get("limits", {}).get("cpu") == cpu for one in statuses):
                done.set()

        watch = Watch(bench.api, "/api/v1/namespaces/default/pods", see)
        taken = timed(lambda: (ask(), done.wait(60)))
        watch.close()
        assert done.is_set(), f"the kubelet does not set {cpu}"
        # The kubelet looks at its pods once a second: each measurement begins at a random part of one.
        time.sleep(1 + random.random())
        return taken

    for number in range(rounds):
        cpu = f"{600 + number}m"
        ours = until(cpu, lambda cpu=cpu: bench.call("PATCH", f"/api/v1/sandbox/{sandbox}/resources", {"cpu": cpu}))
        bare = f"{700 + number}m"
        change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": bare}}}]}}
        strategic = "application/strategic-merge-patch+json"
        theirs = until(bare, lambda change=change: bench.api.request("PATCH", f"{path}/resize", change, strategic))
        bench.add("resize", ours, theirs)


def measured(scratch: Path, node: bool, measure: Callable[[Bench], None]) -> dict[str, list[tuple[float, float]]]:
    """The figures of a cluster of its own."""
    cluster = Cluster(scratch / ("real" if node else "fake"), node=node)
    try:
        cluster.start()
        for number in range(1, NODES + 1 if not node else 1):
            cluster.add_fake_node(f"fake-{number}")
        for _ in operator_of(cluster, *(("--runtime-image", RUNTIME) if node else ())):
            replica = Replica(cluster, "replica-1")
            replica.start()
            bench = Bench(cluster, replica)
            measure(bench)
            return bench.found
    finally:
        cluster.stop()


def on_fake_nodes(bench: Bench, rounds: int, sandboxes: int) -> None:
    bench.fill("light", 2 * LIGHT)
    for _ in range(rounds):
        light(bench, ("p50", "p99"))
    gateway(bench)
    bench.fill("burst", BURST)
    for _ in range(rounds):
        burst(bench)
    bench.cluster.delete("sandboxsets.agents.kruise.io", "burst")
    many(bench, sandboxes)


def text(found: dict[str, list[tuple[float, float]]], rounds: int, sandboxes: int) -> str:
    figures = {name: (meaning.format(sandboxes=f"{sandboxes:,}"), *rest) for name, (meaning, *rest) in FIGURES.items()}
    return f"{FRAME}\n{table(figures, found, f'{rounds} rounds', digits=1)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance.cluster.bench.replicas")
    parser.add_argument("--sandboxes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="file for the report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        found = measured(Path(scratch), False, lambda bench: on_fake_nodes(bench, options.rounds, options.sandboxes))
        found |= measured(Path(scratch), True, lambda bench: resize(bench, 5 * options.rounds))
    report = text(found, options.rounds, options.sandboxes)
    if options.output:
        options.output.write_text(report)
    print(report)


if __name__ == "__main__":
    main()
