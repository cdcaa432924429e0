"""Measures the web UI in Chromium, and the MCP server beside the API:

    python -m conformance.ui.bench [--sandboxes N] [--rounds N] [--output FILE]

One server of its own with real sandboxes serves all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from playwright.sync_api import Page

from ..installation import ROOT, Installation, program, share_images, wait_until
from ..mcp.clients import VERSION, Raw, call
from ..shared import images, kill_all
from ..targets import table, timed
from .browser import SIZES, arrive, chromium, sign_in

#: How many sandboxes are created at once.
AT_ONCE = 4
#: Notes when the first row is painted, and when the row of the sandbox in `window.awaited` is.
OBSERVER = """
const painted = done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.timeOrigin + performance.now())));
new MutationObserver(() => {
  if (!window.first && document.querySelector('[data-sandbox]')) { window.first = -1; painted(at => { window.first = at; }); }
  const named = window.awaited && [...document.querySelectorAll('[data-sandbox]')].find(row => row.textContent.includes(window.awaited));
  if (named) { window.awaited = ''; painted(at => { window.seen = at; }); }
}).observe(document, {childList: true, subtree: true});
"""

#: Scrolls through the list, and returns how long each frame took, in milliseconds.
SCROLL = """
() => new Promise(done => {
  const [box, frames] = [document.querySelector('.rows .scroll'), []];
  let last = performance.now();
  const step = () => {
    frames.push(performance.now() - last);
    last = performance.now();
    box.scrollTop += 200;
    frames.length < 150 ? requestAnimationFrame(step) : done(frames);
  };
  requestAnimationFrame(step);
})
"""

#: By figure: its meaning, what it is compared with, and the target: a ratio, or a value.
FIGURES = {
    "paint": ("navigation → first rows painted, ms", "", "300"),
    "event": ("create sent → row painted, ms", "create sent → answer", "+ 200"),
    "scroll": ("frame while the list scrolls, 95th percentile, ms", "", "34"),
    "command": ("MCP `run_command`, ms", "the API's `process.Process/Start`", "1.2 ×"),
    "bundle": ("all scripts and styles, Brotli, kB", "", "400"),
    "binary": ("stripped program, MB", "the UI and the documentation in it", ""),
}

FRAME = """\
# Benchmarks of the web UI and of MCP

`make bench-ui` writes this page. One server has the sandboxes, and a headless Chromium shows their list; both share the processors of
this machine. Figures are medians of the rounds.

| figure | definition |
|---|---|
| first rows | from the start of the navigation, with a warm cache and a key in the tab, until the first rows of the list are painted |
| row | from sending a create until the row of the new sandbox is painted; beside it, until the create is answered. Their difference is what the event and the screen take |
| frame | the time between two frames, while the list scrolls by 200 pixels with each; two frames of a usual display are 34 ms |
| command | `true` in a login shell, by `tools/call` of `run_command`, and by the request that the SDK sends; both by the same HTTP client on an open connection, in turns |
| program | without symbols; the UI and the documentation are embedded, compressed twice |
"""


class Bench:
    """The server and its measurements."""

    def __init__(self, server: Installation) -> None:
        self.server = server
        self.api = httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}, timeout=120)
        self.found: dict[str, list[tuple[float, float]]] = {}

    def add(self, figure: str, ours: float, beside: float = 0.0) -> None:
        print(f"bench: {figure}: {ours:.1f}, beside it {beside:.1f}", flush=True)
        self.found.setdefault(figure, []).append((ours, beside))

    def create(self, name: str) -> dict:
        body = {"templateID": "base", "timeout": 3600, "memory": 128, "metadata": {"shoal/runtime": "runc", "shoal/name": name}}
        made = self.api.post("/v2/sandboxes", json=body)
        made.raise_for_status()
        return made.json()

    def paint(self, page: Page) -> None:
        page.reload()
        first = self.awaited(page, "first")
        self.add("paint", first - page.evaluate("performance.timeOrigin"))

    def event(self, page: Page, name: str) -> None:
        page.evaluate("name => { window.seen = 0; window.awaited = name }", name)
        begun = time.time() * 1000
        made = self.create(name)
        answered = time.time() * 1000
        seen = self.awaited(page, "seen")
        self.add("event", seen - begun, answered - begun)
        self.api.delete(f"/sandboxes/{made['sandboxID']}").raise_for_status()

    def scroll(self, page: Page) -> None:
        self.add("scroll", statistics.quantiles(page.evaluate(SCROLL), n=20)[-1])

    def awaited(self, page: Page, variable: str) -> float:
        """A time that the page notes, in milliseconds since 1970."""
        # `wait_for_function` would evaluate a string in the page, which its policy refuses.
        return wait_until(lambda: page.evaluate(f"Math.max(window.{variable} ?? 0, 0)"), 60, f"the page's {variable}")

    def commands(self, rounds: int) -> None:
        """The same command by MCP and by the API, in turns."""
        mcp = Raw(self.server, self.server.key)
        session = mcp.open()
        with httpx.Client(timeout=60) as http:
            headers = mcp.headers | {"Mcp-Session-Id": session, "Mcp-Protocol-Version": VERSION}
            made = self.create("bench-command")
            run = call("run_command", command="true", sandbox=made["sandboxID"])
            by_mcp = lambda: answered(http.post(mcp.url, json=run, headers=headers), b'"exit_code":0')
            by_mcp()
            by_api = lambda: answered(http.post(**self.start_request(made)), b'"end"')
            by_api()
            for _ in range(rounds):
                self.add("command", timed(by_mcp), timed(by_api))
        mcp.send(method="DELETE", session=session)

    def start_request(self, made: dict) -> dict:
        """The request by which the SDK runs `true`."""
        message = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"]}, "stdin": False}).encode()
        headers = {
            "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "X-Access-Token": made["envdAccessToken"],
            "E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983",
        }
        content = struct.pack(">BI", 0, len(message)) + message
        return {"url": f"{self.server.url}/process.Process/Start", "content": content, "headers": headers}

    def sizes(self) -> None:
        dist = ROOT / "web" / "dist"
        bundle = sum(file.stat().st_size for file in dist.glob("assets/*.br"))
        self.add("bundle", bundle / 1000)
        embedded = sum(file.stat().st_size for file in dist.rglob("*") if file.suffix in (".br", ".gz"))
        with tempfile.TemporaryDirectory() as scratch:
            stripped = Path(scratch) / "shoal"
            subprocess.run(["strip", "-o", stripped, program()], check=True)
            self.add("binary", stripped.stat().st_size / 1e6, embedded / 1e6)


def answered(answer: httpx.Response, part: bytes) -> None:
    assert answer.status_code == 200 and part in answer.content.replace(b" ", b""), answer.text


def measure(bench: Bench, sandboxes: int, rounds: int) -> None:
    bench.sizes()
    bench.commands(10 * rounds)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(bench.create, (f"bench-{number}" for number in range(sandboxes))))
    with chromium() as browser:
        page = browser.new_context(viewport=SIZES["wide"]).new_page()
        page.add_init_script(OBSERVER)
        arrive(page, f"{bench.server.url}/ui/")
        sign_in(page, bench.server.key)
        bench.awaited(page, "first")
        for number in range(rounds):
            bench.paint(page)
            page.get_by_text("Live", exact=True).wait_for()
            bench.event(page, f"bench-seen-{number}-end")
            bench.scroll(page)


def text(found: dict[str, list[tuple[float, float]]], sandboxes: int, rounds: int) -> str:
    return f"{FRAME}\n{table(FIGURES, found, f'{sandboxes:,} sandboxes, {rounds} rounds', digits=1)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance.ui.bench")
    parser.add_argument("--sandboxes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="file for the report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        limit = f"limits.sandboxes={options.sandboxes + 10}"
        team = f"limits.sandboxes_per_team={options.sandboxes + 10}"
        server = Installation(Path(scratch) / "data", settings=["disk.size=8GiB", "runtime.allowed=any", limit, team])
        share_images(images(), server.data)
        server.start()
        try:
            bench = Bench(server)
            measure(bench, options.sandboxes, options.rounds)
        finally:
            kill_all(server)
            server.stop()
    report = text(bench.found, options.sandboxes, options.rounds)
    if options.output:
        options.output.write_text(report)
    print(report)


if __name__ == "__main__":
    main()
