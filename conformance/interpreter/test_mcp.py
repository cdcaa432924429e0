"""Code by the Model Context Protocol: variables that stay, plots as images, errors."""

from __future__ import annotations

import base64

from ..mcp.clients import done, over_http
from .server import TEMPLATE

PLOT = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.show()
print("plotted")
"""


async def test_code_keeps_variables_shows_plots_and_raises(server):
    async with over_http(server, headers={"Shoal-Template": TEMPLATE}) as client:
        await done(client, "run_code", code="x = 41")
        ran = await done(client, "run_code", code="print('told'); x + 1")
        assert ran["stdout"] == "told\n" and ran["results"][0]["text"] == "42" and ran["results"][0]["main"]
        plotted = await client.call_tool("run_code", {"code": PLOT})
        (image,) = [part for part in plotted.content if part.type == "image"]
        assert image.mime_type == "image/png" and base64.b64decode(image.data).startswith(b"\x89PNG")
        assert plotted.structured_content["stdout"] == "plotted\n"
        raised = await client.call_tool("run_code", {"code": "1 / 0"})
        assert raised.is_error and raised.structured_content["error"]["name"] == "ZeroDivisionError"
        assert "ZeroDivisionError" in raised.content[0].text
        late = await client.call_tool("run_code", {"code": "import time; time.sleep(600)", "timeout": 2})
        assert late.is_error and late.meta["shoal.dev/error"]["code"] == "timeout"
        assert (await done(client, "run_code", code="x"))["results"][0]["text"] == "41"
