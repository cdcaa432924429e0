"""A development server in the machine, and a browser that shows its preview."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from pathlib import Path

import pytest

from ..installation import wait_until
from ..js.packages import PACKAGES, environment, install, node
from ..sdk.test_native import NATIVE
from ..sdk.test_sessions import run
from .test_session_template import output, trust

#: How long a browser on a busy machine may take, in seconds.
PATIENCE = 300

#: The last that runs on the Node of Ubuntu 24.04.
VITE = "5.4.21"

PACKAGE = {"name": "page", "private": True, "type": "module", "devDependencies": {"vite": VITE}}
INDEX = '<!doctype html><title>page</title><p id="text"></p><script type="module" src="/main.js"></script>'
MAIN = "document.getElementById('text').textContent = '{text}'\n"


def put(native, session: str, path: str, text: str) -> None:
    written = native.http.put(f"{NATIVE}/sessions/{session}/files/content", params={"path": path}, content=text.encode())
    assert written.status_code == 200, written.text


class Browser:
    """A page, and the texts that it has shown."""

    def __init__(self, url: str, *texts: str) -> None:
        install()
        script = PACKAGES / "page.mjs"
        script.write_text(Path(__file__).with_name("page.mjs").read_text())
        self.process = subprocess.Popen(
            [node(), script, url, *texts], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.shown: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.listen)]
        for reader in self.readers:
            reader.start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.shown.put(line.strip())

    def listen(self) -> None:
        self.said += self.process.stderr

    def shows(self, text: str) -> None:
        try:
            assert self.shown.get(timeout=PATIENCE) == text
        except queue.Empty:
            raise AssertionError(f"{text!r} is not shown:\n{''.join(self.said)}") from None

    def close(self) -> None:
        # Its script closes the browser after the last text; otherwise the browser ends with its pipe.
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait(30)
        for reader in self.readers:
            reader.join()


@pytest.mark.timeout(900)
def test_r2_057_a_page_reloads_when_a_file_of_the_session_is_edited(server, native, own):
    put(native, own, "package.json", json.dumps(PACKAGE))
    put(native, own, "index.html", INDEX)
    put(native, own, "main.js", MAIN.format(text="the first text"))
    output(native, own, f"{trust(server, native, own)}; npm install --silent --no-audit --no-fund")
    start = "npx vite --host 0.0.0.0 --port 8080 --strictPort > /tmp/vite.log 2>&1 &"
    output(native, own, f"{start} sleep 0")
    served = lambda: "ready in" in run(native, own, "cat /tmp/vite.log", "other")[0]  # noqa: E731
    wait_until(served, PATIENCE, "the server")
    browser = Browser(native("GET", f"/sessions/{own}")["previewUrl"], "the first text", "the second text")
    try:
        browser.shows("the first text")
        put(native, own, "main.js", MAIN.format(text="the second text"))
        browser.shows("the second text")
    finally:
        browser.close()
