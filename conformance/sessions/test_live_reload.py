"""A development server in the machine, and a browser that shows its preview."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from ..installation import wait_until
from ..sdk.test_native import NATIVE
from ..sdk.test_sessions import run
from .test_session_template import output, trust

#: How long a step of a busy machine may take, in seconds.
PATIENCE = 300

#: The last that runs on the Node of Ubuntu 24.04.
VITE = "5.4.21"

PACKAGE = {"name": "page", "private": True, "type": "module", "devDependencies": {"vite": VITE}}
INDEX = '<!doctype html><title>page</title><p id="text"></p><script type="module" src="/main.js"></script>'
MAIN = "document.getElementById('text').textContent = '{text}'\n"


def put(native, session: str, path: str, text: str) -> None:
    written = native.http.put(f"{NATIVE}/sessions/{session}/files/content", params={"path": path}, content=text.encode())
    assert written.status_code == 200, written.text


@pytest.mark.timeout(1500)
def test_r2_057_a_page_reloads_when_a_file_of_the_session_is_edited(server, native, own, chromium):
    put(native, own, "package.json", json.dumps(PACKAGE))
    put(native, own, "index.html", INDEX)
    put(native, own, "main.js", MAIN.format(text="the first text"))
    output(native, own, f"{trust(server, native, own)}; npm install --silent --no-audit --no-fund")
    output(native, own, "npx vite --host 0.0.0.0 --port 8080 --strictPort > /tmp/vite.log 2>&1 &")
    log = lambda: run(native, own, "cat /tmp/vite.log", "other")[0]  # noqa: E731
    wait_until(lambda: "ready in" in log(), PATIENCE, "the server")
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    try:
        # Its client tells that the server will tell of changes.
        with page.expect_console_message(lambda message: message.text == "[vite] connected."):
            page.goto(native("GET", f"/sessions/{own}")["previewUrl"])
        text = page.locator("#text")
        expect(text).to_have_text("the first text", timeout=PATIENCE * 1000)
        put(native, own, "main.js", MAIN.format(text="the second text"))
        expect(text).to_have_text("the second text", timeout=PATIENCE * 1000)
    except Exception:
        print(*said, log(), sep="\n")
        raise
    finally:
        page.close()
