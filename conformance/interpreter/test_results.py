"""Results of Python: text, data, pictures."""

from __future__ import annotations

import base64

from .conftest import done


async def only(run, code: str):
    execution = await run(code)
    assert len(execution.results) == 1, execution.results
    return execution.results[0]


async def test_a_table_is_data_html_and_text(run):
    result = await only(run, """
import pandas as pd
pd.DataFrame({
    "n": [1, 2.5, None], "t": pd.to_datetime(["2024-01-02", None, "2024-05-06"]),
    "s": ["a", "b", None], 3: [True, False, True],
})""")
    assert result.is_main_result
    assert result.data == {
        "n": [1.0, 2.5, None],
        "t": ["2024-01-02T00:00:00", None, "2024-05-06T00:00:00"],
        "s": ["a", "b", None],
        "3": [True, False, True],
    }
    assert "<table" in result.html and "2024-05-06" in result.text


async def test_lists_and_dictionaries_are_json_if_representable(run):
    assert (await only(run, "[1, {'a': None, 'b': 'ü'}]")).json == [1, {"a": None, "b": "ü"}]
    assert (await only(run, "{'a': [1.5, True]}")).json == {"a": [1.5, True]}
    for code in ("{'a': float('nan')}", "[object()]", "{(1, 2): 3}", "[1, {2}]"):
        result = await only(run, code)
        assert result.json is None and result.text, code


async def test_results_are_complete(run):
    assert (await only(run, "list(range(3000))")).text.count(",") == 2999
    assert len((await only(run, "'x' * 200_000")).text) == 200_000


async def test_a_text_has_no_quotes_and_no_colours(sandbox, run):
    assert (await only(run, "'say'")).text == "say"
    failed = await done(sandbox.run_code("{}['x']"))
    assert failed.error.name == "KeyError" and "\x1b" not in failed.error.traceback


async def test_displayed_objects_come_in_order_and_are_not_the_result(run):
    execution = await run("""
from IPython.display import HTML, Markdown, Latex, SVG, Javascript, JSON, display
display(HTML("<b>b</b>")); display(Markdown("*m*")); display(Latex("$x$"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg'></svg>")); display(Javascript("1")); display(JSON({"j": 1}))
display({"application/x-own": "o"}, raw=True)
5""")
    shown, main = execution.results[:-1], execution.results[-1]
    assert [result.is_main_result for result in shown] == [False] * 7
    assert shown[0].html == "<b>b</b>" and shown[1].markdown == "*m*" and shown[2].latex == "$x$"
    assert "<svg" in shown[3].svg and shown[4].javascript == "1" and shown[5].json == {"j": 1}
    assert shown[6].extra == {"application/x-own": "o"}
    assert main.is_main_result and main.text == "5" and execution.text == "5"


async def test_pictures_are_displayed_when_they_are_shown_saved_and_last(run):
    make = "from PIL import Image; im = Image.new('RGB', (3, 2), 'red')\n"
    for code in ("im", "im.show()", "im.save('/tmp/red.png')"):
        result = await only(run, make + code)
        png = base64.b64decode(result.png)
        assert png.startswith(b"\x89PNG"), code
    assert not (await run(make + "import io; im.save(io.BytesIO(), 'PNG')")).results
    assert (await run("import os; os.path.getsize('/tmp/red.png') > 0")).text == "True"


async def test_a_figure_of_plotly_is_passed_on(run):
    result = await only(run, "import plotly.graph_objects as go; go.Figure(go.Bar(x=[1], y=[2]))")
    assert "application/vnd.plotly.v1+json" in result.extra


async def test_packages_take_no_memory_before_they_are_imported(sdk):
    sandbox = await sdk.create(timeout=120)
    code = "import sys; [name in sys.modules for name in ('numpy', 'pandas', 'matplotlib', 'PIL')]"
    execution = await done(sandbox.run_code(code))
    assert execution.results[0].json == [False] * 4 and execution.execution_count == 1
    # None of our names is among the user's.
    names = (await done(sandbox.run_code("[n for n in dir() if not n.startswith('_')]"))).results[0].json
    assert sorted(names) == ["In", "Out", "exit", "get_ipython", "open", "quit", "sys"]
    await done(sandbox.kill())


async def test_the_packages_of_the_set_can_be_imported(run):
    names = (
        "scipy sklearn statsmodels sympy networkx pyarrow seaborn plotly bokeh PIL imageio cv2 openpyxl"
        " xlsxwriter xlrd docx pypdf lxml bs4 yaml nbformat tabulate tqdm requests httpx aiohttp pytest"
    )
    for name in names.split():
        await run(f"import {name}")


async def test_a_jpeg_and_a_pdf_are_results_of_their_own(run):
    result = await only(run, """
import io
from PIL import Image as Picture
from IPython.display import Image, display
out = io.BytesIO()
Picture.new("RGB", (3, 2), "red").save(out, "JPEG")
display(Image(out.getvalue(), format="jpeg"))""")
    assert base64.b64decode(result.jpeg).startswith(b"\xff\xd8") and result.png is None
    result = await only(run, """
import base64
display({"application/pdf": base64.b64encode(b"%PDF-1.4").decode()}, raw=True)""")
    assert base64.b64decode(result.pdf) == b"%PDF-1.4" and not result.extra
