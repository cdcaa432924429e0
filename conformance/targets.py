"""Tables of the benchmarks: figures beside what they are compared with, and targets."""

from __future__ import annotations

import datetime
import os
import statistics
import time
from collections.abc import Callable

#: Measured values of a figure, by round: ours, and that beside it.
Rounds = list[tuple[float, float]]


def timed(act: Callable[[], object]) -> float:
    """How long it takes, in milliseconds."""
    begun = time.monotonic()
    act()
    return (time.monotonic() - begun) * 1000


def table(figures: dict[str, tuple[str, str, str]], found: dict[str, Rounds], conditions: str, digits: int = 0) -> str:
    """A report of medians. `figures` has by name: the meaning, what it is compared with, and the target."""
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {os.cpu_count()} cores, {conditions}.", "",
        "| figure | Shoal | beside it | | target |", "|---|---|---|---|---|",
    ]
    for figure, (meaning, beside, target) in figures.items():
        ours, theirs = (statistics.median(values) for values in zip(*found[figure], strict=True))
        shown = f"{theirs:.{digits}f}: {beside}" if beside else ""
        difference, met = compared(ours, theirs, target)
        bound = target if target.startswith("≥") else f"≤ {target}"
        verdict = f"{bound}: {'met' if met else '**missed**'}" if target else ""
        lines.append(f"| {meaning} | {ours:.{digits}f} | {shown} | {difference} | {verdict} |")
    return "\n".join([*lines, ""])


def compared(ours: float, theirs: float, target: str) -> tuple[str, bool]:
    """The comparison as the target puts it, and whether it is met. A target is an upper bound, unless it begins with ≥."""
    if target.startswith("≥ "):
        least = target.removeprefix("≥ ")
        if least.endswith("×"):
            return f"{ours / theirs:.2f} ×", ours / theirs >= float(least[:-1])
        return "", ours >= float(least)
    if target.startswith("+"):
        return f"{ours - theirs:+.0f}", ours - theirs <= float(target[1:])
    if target.endswith("×"):
        return f"{ours / theirs:.2f} ×", ours / theirs <= float(target[:-1])
    return "", not target or ours <= float(target)
