"""Measures `shoal operator` under load, beside the reference controller:

    python -m conformance.cluster.bench [--reference CHECKOUT] [--rounds N] [--only LOAD] [--sandboxes N]

Each measurement has a new cluster with fake nodes. The two controllers take turns, so that whatever else
the machine does affects both. Ratios matter; times depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..cluster import Cluster
from .contenders import Contender, Reference, Shoal
from .loads import BURST, LIGHT, SATURATED, claims
from .report import Results, write
from .scale import scale

#: Fake nodes beside the first one: each writes the status of one pod after another.
NODES = 3

#: By name: what it does to a contender.
LOADS: dict[str, Callable[[Contender, argparse.Namespace], dict[str, float]]] = {
    load.name: lambda contender, _, load=load: claims(contender, load) for load in (LIGHT, BURST, SATURATED)
} | {"scale": lambda contender, options: scale(contender, options.sandboxes)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance.cluster.bench")
    reference = os.environ.get("SHOAL_BENCH_REFERENCE")
    parser.add_argument(
        "--reference", type=Path, default=Path(reference) if reference else None, metavar="CHECKOUT",
        help="a checkout of kubernetes-sigs/agent-sandbox with bin/agent-sandbox-controller",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=LOADS, action="append")
    parser.add_argument("--sandboxes", type=int, default=5000, help="for `scale`")
    parser.add_argument("--two-versions", action="store_true", help="serve v1alpha1, too, with the conversion webhook")
    parser.add_argument("--output", type=Path, help="file for the report")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if not options.reference:
        print("bench: no --reference: there are no ratios, only Shoal's own figures", file=sys.stderr)
    results = Results(options)
    for name in options.only or LOADS:
        # The processor time of thousands of sandboxes differs little between rounds.
        for number in range(1 if name == "scale" else options.rounds):
            for contender in ("shoal", "reference") if options.reference else ("shoal",):
                figures = measured(contender, name, options)
                shown = ", ".join(f"{what} {value:.1f}" for what, value in figures.items())
                print(f"bench: {name} {number + 1}: {contender}: {shown}", file=sys.stderr, flush=True)
                results.add(name, contender, figures)
    write(results, options.output)


def measured(contender: str, load: str, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        cluster = Cluster(Path(scratch) / "state")
        try:
            cluster.start()
            for number in range(1, NODES + 1):
                cluster.add_fake_node(f"fake-{number}")
            one_version = not options.two_versions
            if contender == "shoal":
                made: Contender = Shoal(cluster, one_version)
            else:
                made = Reference(cluster, one_version, options.reference)
            return LOADS[load](made, options)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
