"""Helpers of the cases of the web UI and of the documentation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright

from ..shared import WORK

AXE = WORK / "node" / "node_modules" / "axe-core" / "axe.min.js"

#: For every step: the machine of the tests is slow and busy.
PATIENCE_MS = 60_000

SIZES = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 400, "height": 780}}


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's Chromium."""
    found = shutil.which("chromium")
    assert found, "Chromium is missing: scripts/setup test installs it"
    with sync_playwright() as playwright:
        # Everything runs as root in CI, where Chromium's own sandbox does not start.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Watch:
    """Faults of a page: violations of its policy, requests to other hosts, failures of scripts."""

    def __init__(self, page: Page, origin: str) -> None:
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("console", self.console)
        page.on("request", lambda request: self.request(request.url, origin))

    def console(self, message) -> None:
        if "Content Security Policy" in message.text:
            self.faults.append(message.text)

    def request(self, url: str, origin: str) -> None:
        if not url.startswith((f"{origin}/", "blob:")):
            self.faults.append(f"request to {url}")


def findings(page: Page) -> list[str]:
    """Serious findings of axe. The policy refuses scripts in the page; the debugger's are not asked."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def arrive(page: Page, url: str) -> None:
    """Loads the UI until its script has run: a browser on a busy machine can lose a request of the load."""
    page.on("requestfailed", lambda request: print(f"{request.url}: {request.failure}"))
    for _ in range(3):
        page.goto(url)
        try:
            expect(page.locator("#app > .start")).to_have_count(0, timeout=PATIENCE_MS / 2)
            return
        except AssertionError:
            print(f"{url} shows {page.content()[:2000]}")


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible(timeout=PATIENCE_MS)


def visit(page: Page, *parts: str) -> None:
    page.evaluate("path => { location.hash = path }", "#/" + "/".join(parts))
