"""What the cases of the web UI and of the documentation ask of a page."""

from __future__ import annotations

from playwright.sync_api import Page

from ..shared import WORK

AXE = WORK / "node" / "node_modules" / "axe-core" / "axe.min.js"

#: For every step: the machine of the tests is slow and busy.
PATIENCE_MS = 60_000

SIZES = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 400, "height": 780}}


class Watch:
    """What a page must not do: violate its policy, ask another host, fail in a script."""

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
