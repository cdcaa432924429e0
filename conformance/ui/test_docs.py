"""The documentation that the server has, in Chromium."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import httpx
import pytest
from playwright.sync_api import expect

from ..installation import ROOT
from . import bench
from .browser import PATIENCE_MS, SIZES, Watch, findings

#: One of each kind: the start, code in several languages, wide tables, the generated ones.
PAGES = ["", "tutorials/agent.html", "pools.html", "settings.html", "commands.html", "resources.html", "architecture.html"]


@pytest.fixture
def open_docs(chromium, shared):
    """Opens a page of the documentation; at the end, nothing forbidden has happened in it."""
    contexts, watches = [], []

    def start(name: str = "", size: str = "wide", scheme: str = "light"):
        context = chromium.new_context(viewport=SIZES[size], color_scheme=scheme)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        watches.append(Watch(page, shared.url))
        page.goto(f"{shared.url}/docs/{name}")
        return page

    yield start
    for context in contexts:
        context.close()
    assert [fault for watch in watches for fault in watch.faults] == []


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_pages_are_accessible_in_both_themes_and_sizes(open_docs, shared, size, scheme):
    page = open_docs(size=size, scheme=scheme)
    for name in PAGES:
        page.goto(f"{shared.url}/docs/{name}")
        expect(page.locator("main h1")).to_be_visible()
        assert findings(page) == [], name
        # Wide tables and code scroll in themselves.
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name


def test_a_word_is_found_and_leads_to_its_page(open_docs):
    page = open_docs()
    page.get_by_role("button", name="Search").first.click()
    page.get_by_role("searchbox").fill("limits.free_memory")
    result = page.locator("a.result").first
    expect(result).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile("/docs/$"))
    expect(page.locator("main")).to_contain_text("limits.free_memory")


def test_no_link_leads_nowhere(shared):
    start = f"{shared.url}/docs/"
    seen, left = set(), [start]
    with httpx.Client(timeout=60) as client:
        while left:
            url = left.pop()
            answer = client.get(url)
            assert answer.status_code == 200, url
            if not answer.headers["Content-Type"].startswith("text/html"):
                continue
            for href in re.findall(r'(?:href|src)="([^"]*)"', answer.text):
                target = urljoin(url, href).split("#")[0]
                if target.startswith(shared.url) and target not in seen:
                    seen.add(target)
                    left.append(target)
    names = {url.removeprefix(start) for url in seen}
    assert {"api.html", "commands.html", "settings.html", "files/examples/agent.py.txt"} <= names


def test_the_page_of_benchmarks_says_how_its_figures_are_measured():
    page = (ROOT / "docs" / "ui-benchmarks.md").read_text()
    assert page.startswith(bench.FRAME), "run `make bench-ui`, or copy the frame"
