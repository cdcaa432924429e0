"""The programs of `examples/` that use the code interpreter."""

from __future__ import annotations

from .. import examples


def test_the_analysis(server, tmp_path):
    examples.check("analysis.py", server, tmp_path)
