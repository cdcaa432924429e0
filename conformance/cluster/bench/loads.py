"""The loads, and what each of them measures."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ...installation import wait_until
from ..api import EXTENSIONS, Api, Refused, Watch
from .contenders import Contender
from .measures import by_resource, quantile, requests, usage

#: How many requests are sent at once.
CONNECTIONS = 32
#: The most seconds of a phase.
PHASE_SECONDS = 600
#: The time after the last claim and the last refill, in seconds.
TRAIL = 3


@dataclass
class Load:
    """Claims from a pool, at a rate per second or, with a rate of 0, all at once."""

    name: str
    pool: int
    claims: int
    rate: float


LIGHT = Load("light", pool=100, claims=60, rate=5)
BURST = Load("burst", pool=300, claims=300, rate=0)
SATURATED = Load("saturated", pool=1050, claims=750, rate=75)


def pod_template() -> dict:
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    container = {"name": "main", "image": "shoal.invalid/pause:1", "resources": resources}
    return {"spec": {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}}


def extension(kind: str, name: str, spec: dict) -> dict:
    return {"apiVersion": f"{EXTENSIONS}/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def fill(api: Api, size: int) -> None:
    """Creates a pool and waits until it is full."""
    template = extension("SandboxTemplate", "load", {"podTemplate": pod_template()})
    # A webhook that has just started is not reachable yet.
    wait_until(lambda: accepted(api, api.path("sandboxtemplates"), template), 60, "the template")
    pool = extension("SandboxWarmPool", "load", {"replicas": size, "sandboxTemplateRef": {"name": "load"}})
    api.create(api.path("sandboxwarmpools"), pool)
    wait_full(api, size)


def accepted(api: Api, at: str, body: dict) -> bool:
    try:
        api.create(at, body)
    except Refused as refused:
        if refused.status < 500:
            raise
        return False
    return True


def wait_full(api: Api, size: int) -> int:
    """Waits until a pool is full; how many requests that took."""
    end = time.monotonic() + PHASE_SECONDS
    polls = 1
    while api.get(api.path("sandboxwarmpools", "load")).get("status", {}).get("readyReplicas", 0) < size:
        assert time.monotonic() < end, f"the pool is not full after {PHASE_SECONDS} s"
        polls += 1
        time.sleep(0.2)
    return polls


@dataclass
class Arrivals:
    """When claims were sent, and when each was ready and with which sandbox."""

    expected: int
    sent: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    sandboxes: dict[str, str] = field(default_factory=dict)
    all_ready: threading.Event = field(default_factory=threading.Event)

    def see(self, change: str, claim: dict, at: float) -> None:
        name, status = claim["metadata"]["name"], claim.get("status", {})
        if change == "DELETED" or name in self.ready or not is_true(status, "Ready"):
            return
        self.ready[name] = at
        self.sandboxes[name] = status["sandbox"]["name"]
        if len(self.ready) == self.expected:
            self.all_ready.set()

    def latencies(self) -> list[float]:
        return [(self.ready[name] - sent) * 1000 for name, sent in self.sent.items()]


def is_true(status: dict, kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in status.get("conditions", []))


def send(api: Api, arrivals: Arrivals, load: Load) -> None:
    """Sends the claims. A claim that waits for a slow answer does not hold back the next one."""

    def create(number: int) -> None:
        name = f"claim-{number}"
        arrivals.sent[name] = time.monotonic()
        claim = extension("SandboxClaim", name, {"warmPoolRef": {"name": "load"}})
        api.create(api.path("sandboxclaims"), claim)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        # Opens the connections.
        list(threads.map(lambda _: (api.text("/version"), time.sleep(0.05)), range(CONNECTIONS)))
        begun = time.monotonic()
        sent = []
        for number in range(load.claims):
            if load.rate:
                time.sleep(max(0.0, begun + number / load.rate - time.monotonic()))
            sent.append(threads.submit(create, number))
        for one in sent:
            one.result()


def show(served: Counter[str], claims: int) -> None:
    """Prints the most frequent requests, which tell where a difference comes from."""
    most = ", ".join(f"{what} {count / claims:.1f}" for what, count in served.most_common(12))
    print(f"bench: requests a claim: {most}", file=sys.stderr)


def claims(contender: Contender, load: Load) -> dict[str, float]:
    """Runs a load of claims; refilling the pool is part of its cost."""
    api = Api(contender.cluster)
    contender.install()
    contender.start()
    fill(api, load.pool)
    time.sleep(TRAIL)
    arrivals = Arrivals(load.claims)
    watch = Watch(api, api.path("sandboxclaims"), arrivals.see)
    counted, used = by_resource(api), usage(contender.pid)
    send(api, arrivals, load)
    assert arrivals.all_ready.wait(PHASE_SECONDS), f"{len(arrivals.ready)} of {load.claims} claims are ready"
    polls = wait_full(api, load.pool)
    time.sleep(TRAIL)
    served = by_resource(api) - counted
    spent = requests(served)
    processor = usage(contender.pid).processor - used.processor
    watch.close()
    assert len(set(arrivals.sandboxes.values())) == load.claims, "a sandbox has two claims"
    show(served, load.claims)
    latencies = arrivals.latencies()
    return {
        "p50 ms": quantile(latencies, 0.5),
        "p99 ms": quantile(latencies, 0.99),
        "all ready s": max(arrivals.ready.values()) - min(arrivals.sent.values()),
        "requests": (spent.objects - load.claims - polls) / load.claims,
        "events": spent.events / load.claims,
        "processor ms": processor / load.claims * 1000,
    }
