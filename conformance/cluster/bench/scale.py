"""Many sandboxes with their pods: memory, and the time of a start."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ...installation import wait_until
from ..api import CORE, Api, Watch
from .contenders import Contender
from .loads import CONNECTIONS, PHASE_SECONDS, TRAIL, accepted, is_true, pod_template
from .measures import usage

#: Sandboxes a second: less than the scheduler and the fake nodes manage.
RATE = 100


def sandbox(name: str, **spec) -> dict:
    spec = {"podTemplate": pod_template()} | spec
    return {"apiVersion": f"{CORE}/v1beta1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec}


def scale(contender: Contender, count: int) -> dict[str, float]:
    """Creates sandboxes, and starts the controller again beside them."""
    api = Api(contender.cluster)
    contender.install()
    contender.start()
    # A suspended sandbox has no pod. Its status says that the controller works.
    first = sandbox("first", operatingMode="Suspended")
    wait_until(lambda: accepted(api, api.path("sandboxes"), first), 60, "the first sandbox")
    ready: set[str] = set()
    everything = threading.Event()

    def see(change: str, seen: dict, at: float) -> None:
        if is_true(seen.get("status", {}), "Ready"):
            ready.add(seen["metadata"]["name"])
            if len(ready) == count:
                everything.set()

    watch = Watch(api, api.path("sandboxes"), see)
    begun = time.monotonic()

    def create(number: int) -> None:
        time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        api.create(api.path("sandboxes"), sandbox(f"sandbox-{number}"))

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(create, range(count)))
    assert everything.wait(PHASE_SECONDS), f"{len(ready)} of {count} sandboxes are ready"
    watch.close()
    time.sleep(TRAIL)
    created = usage(contender.pid)
    # The API server has closed the connection, which was idle meanwhile.
    api = Api(contender.cluster)
    starts, resident = [], []
    for number in range(3):
        contender.stop()
        starts.append(start(contender, api, f"probe-{number}"))
        time.sleep(TRAIL)
        resident.append(usage(contender.pid).memory)
    return {
        "memory MiB": created.memory,
        "memory MiB after a start": sorted(resident)[1],
        "processor ms": created.processor / count * 1000,
        "start s": sorted(starts)[1],
    }


def start(contender: Contender, api: Api, name: str) -> float:
    """Seconds from the start of the process until it has reconciled a sandbox that was there before."""
    reconciled = threading.Event()

    def see(change: str, seen: dict, at: float) -> None:
        if seen["metadata"]["name"] == name and seen.get("status", {}).get("conditions"):
            reconciled.set()

    # No webhook runs: only the stored version can be written.
    api.create(api.path("sandboxes"), sandbox(name, operatingMode="Suspended"))
    watch = Watch(api, api.path("sandboxes"), see)
    begun = time.monotonic()
    contender.start()
    assert reconciled.wait(PHASE_SECONDS), "the controller reconciles nothing"
    taken = time.monotonic() - begun
    watch.close()
    return taken
