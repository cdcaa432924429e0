"""The cost of a run: requests that the API server counted, processor time and memory of a process."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..api import Api

#: One line of the API server's metrics.
LINE = re.compile(r"apiserver_request_total\{(.*)\} (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')

#: Resources that the rest of the cluster writes: its nodes, leases and bookkeeping.
OTHERS = {
    "leases", "nodes", "csinodes", "endpoints", "endpointslices", "serviceaccounts", "namespaces", "configmaps",
    "customresourcedefinitions", "apiservices", "subjectaccessreviews", "tokenreviews", "secrets",
}

#: Requests of the scheduler and of fake nodes.
OF_NODES = {("POST", "pods", "binding"), ("PUT", "pods", "status"), ("PATCH", "pods", "status")}


@dataclass
class Requests:
    """How many requests a controller may have sent. Watches are left out; they last as long as it runs."""

    objects: float
    events: float


def by_resource(api: Api) -> Counter[str]:
    """All requests of the API server, by verb and resource."""
    found: Counter[str] = Counter()
    for line in api.text("/metrics").splitlines():
        if not (match := LINE.match(line)):
            continue
        labels = dict(LABEL.findall(match[1]))
        if labels["resource"]:
            name = "/".join(filter(None, [labels["resource"], labels["subresource"]]))
            found[f"{labels['verb']} {name}"] += float(match[2])
    return found


def requests(found: Counter[str]) -> Requests:
    """The requests that a controller of these kinds may have sent."""
    objects = events = 0.0
    for key, count in found.items():
        verb, name = key.split(" ", 1)
        resource, _, subresource = name.partition("/")
        if verb in ("WATCH", "CONNECT") or resource in OTHERS or (verb, resource, subresource) in OF_NODES:
            continue
        if resource == "events":
            events += count
        else:
            objects += count
    return Requests(objects, events)


@dataclass
class Usage:
    """Processor time in seconds, and memory in MiB."""

    processor: float
    memory: float


def usage(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def quantile(values: list[float], share: float) -> float:
    """A quantile, interpolated between the two nearest values."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
