"""Every case for the JavaScript package, as a case of this run."""

from __future__ import annotations

import pytest

from ..js.packages import install, pointing_at
from ..js.test_js import FILE_SECONDS, cases, run
from .conftest import HERE

FILE = "interpreter.test.js"

pytestmark = pytest.mark.timeout(FILE_SECONDS + 120)


@pytest.fixture(scope="module")
def ended(server):
    install()
    return run(FILE, pointing_at(server) | {"CHARTS": str(HERE / "charts")}, HERE)


@pytest.mark.parametrize("case", cases(FILE, HERE))
def test_case(ended, case):
    result = ended.ended.get(case)
    assert result is not None, f"it did not run:\n{ended.said}"
    assert result["passed"] and not result["skipped"], result["error"] or ended.said
