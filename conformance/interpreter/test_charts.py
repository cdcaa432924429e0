"""Figures of matplotlib come with their picture and what is in them: `charts/<name>.py` shows a
figure, and `charts/<name>.json` is its chart on the wire."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import httpx
import pytest

from .conftest import done

CHARTS = Path(__file__).resolve().parent / "charts"

NAMES = sorted(path.stem for path in CHARTS.glob("*.py"))


def near(value):
    """A chart in which nearly equal numbers are equal."""
    if isinstance(value, dict):
        return {key: near(item) for key, item in value.items()}
    if isinstance(value, list):
        return [near(item) for item in value]
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


async def shown(run, code: str):
    execution = await run(code)
    assert len(execution.results) == 1, execution.results
    result = execution.results[0]
    assert base64.b64decode(result.png).startswith(b"\x89PNG") and not result.is_main_result
    return result


@pytest.mark.kernel
@pytest.mark.parametrize("name", NAMES)
async def test_a_figure_has_its_chart(run, name):
    result = await shown(run, (CHARTS / f"{name}.py").read_text())
    expected = json.loads((CHARTS / f"{name}.json").read_text())
    assert result.chart.to_dict() == near(expected)


async def test_a_figure_that_is_not_shown_is_displayed_after_the_code(run):
    result = await shown(run, "import matplotlib.pyplot as plt; plt.plot([1, 2]); None")
    assert result.chart.type == "line"
    # And only once.
    assert not (await run("1;")).results


async def test_an_unreadable_figure_still_has_a_picture(run):
    code = """
import e2b_charts
real = e2b_charts.chart_figure_to_dict
def failing(figure):
    raise ValueError("no")
e2b_charts.chart_figure_to_dict = failing
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
e2b_charts.chart_figure_to_dict = real
"""
    result = await shown(run, code)
    assert not result.chart


async def test_an_empty_figure_has_no_chart(run):
    result = await shown(run, "import matplotlib.pyplot as plt; plt.subplots(); plt.show()")
    assert not result.chart


async def test_labels_in_other_scripts_have_glyphs(sandbox):
    code = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.title('日本語 한국어 中文'); plt.show()"
    execution = await done(sandbox.run_code(code))
    assert execution.results and "missing from font" not in "".join(execution.logs.stderr)


async def test_a_chart_that_fails_is_on_the_wire_and_empty(server, sandbox):
    code = """
import e2b_charts
real = e2b_charts.chart_figure_to_dict
e2b_charts.chart_figure_to_dict = None
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
e2b_charts.chart_figure_to_dict = real"""
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
    headers["X-Access-Token"] = sandbox._envd_access_token
    answer = httpx.post(server.url + "/execute", json={"code": code}, headers=headers, timeout=60)
    said = [json.loads(line) for line in answer.text.splitlines()]
    (result,) = [line for line in said if line["type"] == "result"]
    assert result["chart"] == {} and base64.b64decode(result["png"]).startswith(b"\x89PNG")
