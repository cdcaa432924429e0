"""Pages of the web UI, signed in or not, and sandboxes to look at."""

from __future__ import annotations

import uuid

import pytest
from playwright.sync_api import Page

from .browser import PATIENCE_MS, SIZES, Watch, arrive, sign_in


@pytest.fixture
def open_page(chromium, shared):
    """Opens the UI in a tab of its own; at the end, nothing forbidden has happened in it."""
    contexts, watches = [], []

    def start(size: str = "wide", scheme: str = "light") -> Page:
        context = chromium.new_context(viewport=SIZES[size], color_scheme=scheme)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        watches.append(Watch(page, shared.url))
        arrive(page, f"{shared.url}/ui/")
        return page

    yield start
    for context in contexts:
        context.close()
    assert [fault for watch in watches for fault in watch.faults] == []


@pytest.fixture
def signed(open_page, shared):
    def start(**how) -> Page:
        page = open_page(**how)
        sign_in(page, shared.key)
        return page

    return start


@pytest.fixture
def sandbox(shared):
    """Creates sandboxes over the API, and ends them."""
    from e2b import Sandbox

    made = []

    def create(**more):
        name = f"ui-{uuid.uuid4().hex[:8]}"
        one = Sandbox.create(metadata={"shoal/name": name, "made-by": name}, timeout=600, **more, **shared.options())
        made.append(one)
        return one, name

    yield create
    for one in made:
        one.kill()
