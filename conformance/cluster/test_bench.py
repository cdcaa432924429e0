"""The report of the benchmarks."""

from __future__ import annotations

import argparse

from ..installation import ROOT
from .bench import checkpoints, replicas, report

PAGE = ROOT / "docs" / "kubernetes-benchmarks.md"


def results(**rounds: list[tuple[float, float]]) -> report.Results:
    """Results with the requests of both contenders in each round of a load."""
    made = report.Results(argparse.Namespace(rounds=2, sandboxes=5000, two_versions=False, reference="checkout"))
    for load, pairs in rounds.items():
        for shoal, reference in pairs:
            made.add(load, "shoal", {"requests": shoal})
            made.add(load, "reference", {"requests": reference})
    return made


def test_a_report_has_medians_and_the_ratio_of_each_round():
    text = report.text(results(light=[(6, 10), (5, 10), (9, 20)], burst=[(8, 10)]))
    assert "| API requests a claim, refill included | 6.0 | 10.0 | 0.50 × | ≤ 0.6 ×: met |" in text
    assert "| API requests a claim, refill included | 8.0 | 10.0 | 0.80 × | ≤ 0.6 ×: **missed** |" in text


def test_a_report_names_what_was_not_measured():
    text = report.text(results(light=[(6, 10)]))
    assert text.count("## `") == len(report.TITLES)
    targets = sum(load != "light" for load, _ in report.TARGETS)
    assert text.count("not measured |") == targets


def test_the_page_says_how_its_figures_are_measured():
    assert PAGE.read_text().startswith(report.FRAME), "run `make bench-cluster`, or copy the frame"


CHECKPOINTS_PAGE = ROOT / "docs" / "kubernetes-checkpoint-benchmarks.md"


def test_a_report_of_checkpoints_compares_as_its_targets_say():
    found = {figure: [(100.0, 80.0), (120.0, 100.0)] for figure in checkpoints.FIGURES}
    text = checkpoints.text(found, 2)
    assert "| 110 | 90: `runsc checkpoint` of the same pod | +20 | ≤ + 250: met |" in text
    assert "1.22 × | ≤ 1.1 ×: **missed** |" in text
    assert "| memory of the node's agent, MiB | 110 |  |  | ≤ 25: **missed** |" in text


def test_the_page_of_checkpoints_says_how_its_figures_are_measured():
    assert CHECKPOINTS_PAGE.read_text().startswith(checkpoints.FRAME), "run `make bench-checkpoints`, or copy the frame"


REPLICAS_PAGE = ROOT / "docs" / "kubernetes-api-benchmarks.md"


def test_a_report_of_replicas_has_lower_bounds_too():
    found = {figure: [(100.0, 120.0), (110.0, 100.0)] for figure in replicas.FIGURES}
    text = replicas.text(found, 2, 10_000)
    assert "| creates a second, all at once | 105.0 | 110.0: PATCHes a second |  | ≥ 150: **missed** |" in text
    assert "| 0.95 × | ≥ 0.9 ×: met |" in text
    assert "| resident memory with 10,000 sandboxes, MiB | 105.0 |  |  | ≤ 150: met |" in text


def test_the_page_of_replicas_says_how_its_figures_are_measured():
    assert REPLICAS_PAGE.read_text().startswith(replicas.FRAME), "run `make bench-replicas`, or copy the frame"
