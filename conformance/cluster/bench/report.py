"""The report: medians, and ratios within a round."""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

#: The largest ratio to the reference that is aimed at, by load and figure.
TARGETS = {
    ("light", "p50 ms"): 0.5,
    ("light", "p99 ms"): 0.5,
    ("burst", "all ready s"): 0.5,
    ("saturated", "all ready s"): 0.5,
    ("saturated", "requests"): 0.6,
    ("saturated", "processor ms"): 0.25,
    ("light", "requests"): 0.6,
    ("light", "processor ms"): 0.25,
    ("burst", "requests"): 0.6,
    ("burst", "processor ms"): 0.25,
    ("scale", "memory MiB"): 0.25,
    ("scale", "start s"): 1.0,
}

TITLES = {
    "light": "60 claims at 5/s from a pool of 100",
    "burst": "300 claims at once from a pool of 300",
    "saturated": "750 claims at 75/s from a pool of 1,050",
    "scale": "{sandboxes:,} sandboxes with their pods",
}

MEANINGS = {
    "p50 ms": "claim → Ready, median, ms",
    "p99 ms": "claim → Ready, p99, ms",
    "all ready s": "until all are ready, s",
    "requests": "API requests a claim, refill included",
    "events": "events a claim",
    "processor ms": "the controller's processor time for each, refill included, ms",
    "memory MiB": "resident memory, MiB",
    "memory MiB after a start": "resident memory after a start, MiB",
    "start s": "start → first reconciled sandbox, s",
}


#: The page above its figures.
FRAME = """\
# Benchmarks of the operator

`make bench-cluster` writes this page. It compares `shoal operator` with the reference controller of `agents.x-k8s.io`, in one
run on one machine, in turns. Each measurement has a new test cluster with four fake nodes, which report pods as ready at once
and run nothing. API server, etcd, scheduler, load and controller share the processors: ratios matter, times do not. Each
figure is the median of the rounds; a ratio is the median of the rounds' ratios.

## Running it

The reference is built by hand in a checkout of its repository; without it there are no ratios.

```text
(cd CHECKOUT && go build -o bin/ ./cmd/agent-sandbox-controller)
SHOAL_BENCH_REFERENCE=CHECKOUT make bench-cluster
SHOAL_BENCH_REFERENCE=CHECKOUT make bench-cluster ARGS='--only light --rounds 1'
```

| option | meaning |
|---|---|
| `--only LOAD` | one of `light`, `burst`, `saturated` and `scale`; may be repeated. All by default |
| `--rounds 3` | rounds of each load; `scale` has one |
| `--sandboxes 5000` | the number of sandboxes for `scale` |
| `--two-versions` | serve `v1alpha1` too, with the conversion webhook. By default the API server converts nothing |

## Measurements

| figure | definition |
|---|---|
| claim → Ready | from sending a claim until a watch shows it as ready, at the client. A slow answer does not delay the next claim |
| until all are ready | from sending the first claim until the last one is ready |
| API requests a claim | requests that the API server counted from the first claim until the pool is full again, divided by the claims. Watches, events, the load's own requests and those of nodes and scheduler are left out |
| events a claim | requests for events in the same time, divided by the claims |
| processor time | user and system time of the controller in the same time, divided by the claims; for `scale`, divided by the sandboxes that it created |
| resident memory | of the controller: after the sandboxes are ready, and three seconds after a start beside them |
| start → first reconciled sandbox | from the start of the process beside all sandboxes until it has written a status; the median of three starts |

A target is the largest ratio that is aimed at.
"""


@dataclass
class Results:
    """The figures of all rounds, by load and contender."""

    options: argparse.Namespace
    rounds: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)

    def add(self, load: str, contender: str, figures: dict[str, float]) -> None:
        self.rounds.setdefault(load, {}).setdefault(contender, []).append(figures)


def rows(results: Results, load: str) -> list[str]:
    contenders = results.rounds[load]
    ours, reference = contenders["shoal"], contenders.get("reference", [])
    found = []
    for what in ours[0]:
        median = statistics.median(one[what] for one in ours)
        if reference:
            pairs = zip(ours, reference, strict=True)
            ratios = [mine[what] / theirs[what] for mine, theirs in pairs if theirs[what]]
            ratio = statistics.median(ratios) if ratios else None
            theirs = f"{statistics.median(one[what] for one in reference):.1f}"
            shown = f"{ratio:.2f} ×" if ratio is not None else ""
            found.append(f"| {MEANINGS[what]} | {median:.1f} | {theirs} | {shown} | {verdict(load, what, ratio)} |")
        else:
            found.append(f"| {MEANINGS[what]} | {median:.1f} | | | |")
    return found


def open_targets(load: str) -> list[str]:
    """The rows of a load that was not measured."""
    wanted = {what: target for (of, what), target in TARGETS.items() if of == load}
    return [f"| {MEANINGS[what]} | | | | ≤ {target} ×: not measured |" for what, target in wanted.items()]


def verdict(load: str, what: str, ratio: float | None) -> str:
    target = TARGETS.get((load, what))
    if target is None or ratio is None:
        return ""
    return f"≤ {target} ×: " + ("met" if ratio <= target else "**missed**")


def text(results: Results) -> str:
    count = results.options.rounds
    rounds = f"{count} round{'s' if count != 1 else ''}"
    versions = "both versions, with the webhook" if results.options.two_versions else "v1beta1 only"
    parts = [
        FRAME,
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {os.cpu_count()} cores, {rounds}, "
        f"served: {versions}.", "",
    ]
    if not results.options.reference:
        parts += ["Without the reference controller (`--reference`), there are no ratios.", ""]
    for load, title in TITLES.items():
        parts += [
            f"## `{load}`: {title.format(sandboxes=results.options.sandboxes)}", "",
            "| figure | Shoal | reference | ratio | target |", "|---|---|---|---|---|",
            *(rows(results, load) if load in results.rounds else open_targets(load)), "",
        ]
    return "\n".join(parts)


def write(results: Results, output: Path | None) -> None:
    if output:
        output.write_text(text(results))
    else:
        print(text(results))
