"""The report of the benchmarks."""

from __future__ import annotations

import argparse

from ..installation import ROOT
from .bench import report

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
