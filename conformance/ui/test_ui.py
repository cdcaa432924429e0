"""The web UI in Chromium, against a real server with real sandboxes."""

from __future__ import annotations

import json
import uuid
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from .browser import PATIENCE_MS, SIZES, findings, sign_in, visit

#: A picture in base64.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PAGES = ["sandboxes", "templates", "snapshots", "sessions", "keys", "node", "api", "api/createNativeSandbox"]
TABS = ["overview", "terminal", "files", "processes", "logs", "events", "usage", "network", "code"]


def test_a_wrong_key_is_told_and_the_right_one_is_kept_for_the_tab(open_page, shared):
    page = open_page()
    page.get_by_label("API key").fill("e2b_" + "0" * 40)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not know this key", timeout=PATIENCE_MS)
    assert findings(page) == []
    sign_in(page, shared.key)
    page.reload()
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible(timeout=PATIENCE_MS)
    assert page.context.cookies() == []
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    other = open_page()
    expect(other.get_by_label("API key")).to_be_visible()


def test_the_list_shows_what_others_create_and_end(signed, sandbox):
    page = signed()
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    one, name = sandbox()
    row = page.locator(f"[data-sandbox={one.sandbox_id}]")
    expect(row).to_contain_text(name, timeout=PATIENCE_MS)
    expect(row).to_contain_text("running", timeout=PATIENCE_MS)
    page.get_by_label("Filter by name").fill(f"made-by={name}")
    expect(page.locator("[data-sandbox]")).to_have_count(1)
    page.get_by_label("Filter by name").fill("no-such-sandbox")
    expect(page.get_by_text("No sandbox matches the filter.")).to_be_visible()
    page.get_by_role("button", name="Clear the filter").click()
    one.kill()
    expect(row).to_have_count(0, timeout=PATIENCE_MS)


def test_objects_of_a_cluster_are_shown_where_there_are_any(signed, sandbox):
    """One machine has none, so a cluster's answers are simulated."""
    one, _ = sandbox()
    page = signed()
    visit(page, "sandboxes", one.sandbox_id, "overview")
    expect(page.get_by_role("heading", name="Variables")).to_be_visible(timeout=PATIENCE_MS)
    assert page.get_by_role("heading", name="In the cluster").count() == 0
    own = {"apiVersion": "agents.kruise.io/v1alpha1", "namespace": "default"}
    objects = [
        own | {"role": "record", "kind": "Sandbox", "name": "code-x2", "state": "Running"},
        own | {"role": "owner", "kind": "SandboxSet", "name": "code", "state": ""},
        {"role": "node", "apiVersion": "v1", "kind": "Node", "name": "node-7", "state": ""},
        own | {"role": "saved_from", "kind": "Checkpoint", "name": "warmed", "state": "Succeeded"},
    ]
    answer = {"code": "0", "message": "ok", "data": {"objects": objects}}
    page.route("**/api/v1/sandbox/*/objects", lambda route: route.fulfill(json=answer))
    page.reload()
    table = page.get_by_role("region", name="Objects in the cluster")
    expect(table.get_by_role("row")).to_have_count(5, timeout=PATIENCE_MS)
    expect(table.get_by_role("row").nth(4)).to_contain_text("default/warmed")
    expect(table.get_by_role("row").nth(4)).to_contain_text("saved from it")
    expect(table.get_by_role("row").nth(3)).to_contain_text("where it runs")
    assert findings(page) == []


def test_a_terminal_echoes(signed, sandbox):
    one, _ = sandbox()
    page = signed()
    visit(page, "sandboxes", one.sandbox_id, "terminal")
    expect(page.get_by_text("connected", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    # A colour of 24 bits, which xterm.js writes as a style attribute.
    page.keyboard.type("printf '\\033[38;2;255;100;0m%s\\033[0m\\n' $((6 * 7))-echoed\n")
    coloured = page.locator(".xterm-rows span", has_text="42-echoed")
    expect(coloured).to_have_css("color", "rgb(255, 100, 0)", timeout=PATIENCE_MS)


def test_a_file_is_edited(signed, sandbox):
    one, _ = sandbox()
    one.files.write("/home/user/hello.py", "print('before')\n")
    page = signed()
    visit(page, "sandboxes", one.sandbox_id, "files")
    page.get_by_role("button", name="hello.py", exact=False).first.click()
    text = page.get_by_role("textbox", name="hello.py")
    expect(text).to_contain_text("before", timeout=PATIENCE_MS)
    text.click()
    page.keyboard.press("Control+a")
    page.keyboard.type("print('after')")
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved hello.py.")).to_be_visible(timeout=PATIENCE_MS)
    assert one.files.read("/home/user/hello.py") == "print('after')"


def test_a_notebook_is_shown_with_its_outputs_and_can_be_edited(signed, sandbox):
    one, _ = sandbox()
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["forty\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": PIXEL, "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/html": "<table><tr><th>x</th><th>y</th></tr><tr><td>1</td><td>2</td></tr></table>"}},
    ]
    cells = [{"cell_type": "markdown", "source": ["# Study"]}, {"cell_type": "code", "source": "show()", "outputs": outputs}]
    one.files.write("/home/user/study.ipynb", json.dumps({"nbformat": 4, "cells": cells}))
    one.files.write("/home/user/broken.ipynb", "{}")
    page = signed()
    visit(page, "sandboxes", one.sandbox_id, "files")
    page.get_by_role("button", name="study.ipynb", exact=False).first.click()
    shown = page.get_by_role("region", name="Cells of study.ipynb")
    expect(shown).to_contain_text("# Study", timeout=PATIENCE_MS)
    expect(shown).to_contain_text("forty")
    expect(shown.get_by_role("img", name="Result")).to_be_visible()
    expect(shown.get_by_role("columnheader", name="x")).to_be_visible()
    assert findings(page) == []
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_role("textbox", name="study.ipynb")).to_contain_text("nbformat", timeout=PATIENCE_MS)
    page.get_by_role("button", name="broken.ipynb", exact=False).first.click()
    expect(page.get_by_role("alert")).to_contain_text("no notebook", timeout=PATIENCE_MS)


def test_create_and_kill_by_keyboard_alone(signed):
    page = signed()
    press_on(page, "button", "New sandbox")
    name = f"ui-{uuid.uuid4().hex[:8]}"
    page.get_by_role("dialog").locator("input[name=name]").focus()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=name)).to_be_visible(timeout=PATIENCE_MS)
    press_on(page, "button", "Kill")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("cannot be undone")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    press_on(page, "button", "Kill")
    press_on(page.get_by_role("dialog"), "button", "Kill")
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text(name, exact=True)).to_have_count(0, timeout=PATIENCE_MS)


def press_on(within, role: str, name: str) -> None:
    button = within.get_by_role(role, name=name, exact=True)
    expect(button).to_be_enabled(timeout=PATIENCE_MS)
    button.press("Enter")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_every_screen_is_accessible_and_fits(signed, sandbox, size, scheme):
    one, _ = sandbox()
    page = signed(size=size, scheme=scheme)
    screens = [[name] for name in PAGES] + [["sandboxes", one.sandbox_id, tab] for tab in TABS]
    found = {}
    for screen in screens:
        visit(page, *screen)
        heading = page.get_by_role("tab", name=screen[2].capitalize()) if len(screen) > 1 else page.locator("h1")
        expect(heading.first).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text("Loading…")).to_have_count(0, timeout=PATIENCE_MS)
        wide = page.evaluate("document.documentElement.scrollWidth")
        found["/".join(screen)] = findings(page) + ([f"{wide} pixels wide"] if wide > SIZES[size]["width"] else [])
    assert {screen: bad for screen, bad in found.items() if bad} == {}


def test_the_catalogue_is_edited_and_mistakes_are_named(signed):
    page = signed()
    visit(page, "templates")
    catalogue = page.locator("section", has=page.get_by_role("heading", name="Catalogue"))
    dialog, editor = page.get_by_role("dialog"), page.get_by_label("templates.json")

    def write(entries: str) -> None:
        # The button waits for what the server has.
        catalogue.get_by_role("button", name="Edit").click()
        editor.click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(entries)
        dialog.get_by_role("button", name="Apply").click()

    check = page.get_by_role("status", name="Check")
    write('[{"name": "from-ui", "description": "made in the UI", "template": "base"}]')
    expect(catalogue.get_by_text('"from-ui"')).to_be_visible(timeout=PATIENCE_MS)
    write('[{"name": "from-ui", "description": "d"}]')
    expect(dialog.get_by_role("alert")).to_contain_text("entry 0 (\"from-ui\"), `image`", timeout=PATIENCE_MS)
    assert findings(page) == []
    dialog.get_by_role("button", name="Cancel").click()
    write('[{')
    page.keyboard.press("Escape")
    expect(dialog.get_by_role("alert")).to_contain_text("not JSON", timeout=PATIENCE_MS)
    dialog.get_by_role("button", name="Cancel").click()
    catalogue.get_by_role("button", name="Edit").click()
    expect(check).to_contain_text("The server accepts it", timeout=PATIENCE_MS)
    form = dialog.get_by_role("group", name="Entry")
    form.get_by_label("Memory").fill("lots")
    expect(check).to_contain_text("memoryLimit", timeout=PATIENCE_MS)
    expect(editor).to_contain_text('"memoryLimit": "lots"')
    form.get_by_label("Memory").fill("512Mi")
    form.get_by_role("textbox", name="Start command", exact=True).fill("true")
    expect(check).to_contain_text("startCmd", timeout=PATIENCE_MS)
    form.get_by_role("textbox", name="Start command", exact=True).fill("")
    form.get_by_role("button", name="Add").click()
    form.get_by_role("textbox", name="Name", exact=True).fill("second")
    expect(check).to_contain_text("second", timeout=PATIENCE_MS)
    form.get_by_role("button", name="Remove").click()
    assert findings(page) == []
    expect(check).to_contain_text("The server accepts it", timeout=PATIENCE_MS)
    dialog.get_by_role("button", name="Apply").click()
    expect(catalogue.get_by_text('"memoryLimit": "512Mi"')).to_be_visible(timeout=PATIENCE_MS)
    write("[]")
    expect(catalogue.get_by_text('"from-ui"')).to_have_count(0, timeout=PATIENCE_MS)


def test_requests_that_a_change_of_the_network_ends_are_sent_again(signed):
    page = signed()
    ended = []

    def once(route):
        url = urlsplit(route.request.url)
        request = (route.request.method, url.path, url.query)
        if request in ended:
            return route.continue_()
        ended.append(request)
        return route.abort("connectionaborted")

    page.route("**/api/v1/**", once)
    visit(page, "templates")
    catalogue = page.locator("section", has=page.get_by_role("heading", name="Catalogue"))
    catalogue.get_by_role("button", name="Edit").click()
    check = page.get_by_role("status", name="Check")
    expect(check).to_contain_text("The server accepts it", timeout=PATIENCE_MS)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_have_count(0, timeout=PATIENCE_MS)
    path = "/api/v1/config/templates"
    assert {("GET", path, ""), ("POST", path, "dryRun=true"), ("POST", path, "")} <= set(ended)


def test_operations_of_the_api_are_found_and_called(signed, sandbox):
    one, name = sandbox()
    page = signed()
    page.get_by_role("link", name="API", exact=True).click()
    page.get_by_label("Find an operation").fill("get /api/v1/sandbox/{id}")
    page.get_by_role("link", name="GET /api/v1/sandbox/{id}", exact=True).click()
    answer = page.get_by_role("region", name="Answer")
    # The browser asks for the missing id; nothing is sent.
    page.get_by_role("button", name="Send GET").click()
    expect(answer).to_have_count(0)
    page.get_by_label("id path").fill(name)
    page.get_by_text("As a command").click()
    expect(page.get_by_text(f'curl -sS -H "X-API-Key: $E2B_API_KEY" {page.url.split("/ui")[0]}')).to_be_visible()
    page.get_by_role("button", name="Send GET").click()
    expect(answer).to_contain_text(f'"{one.sandbox_id}"', timeout=PATIENCE_MS)
    expect(answer).to_contain_text("200")
    page.get_by_label("id path").fill("no-such-sandbox")
    page.get_by_role("button", name="Send GET").click()
    expect(answer).to_contain_text("404", timeout=PATIENCE_MS)
    visit(page, "api", "createNativeSandbox")
    page.get_by_role("textbox", name="Body").fill('{"template": 5}')
    page.get_by_role("button", name="Send POST").click()
    expect(answer).to_contain_text("400", timeout=PATIENCE_MS)
    # A stream is shown while it arrives, and can be stopped.
    visit(page, "api", "followSandboxes")
    page.get_by_role("button", name="Send GET").click()
    expect(answer).to_contain_text("event: ready", timeout=PATIENCE_MS)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    visit(page, "api", "nothing")
    expect(page.get_by_text("has no operation")).to_be_visible()


def test_the_theme_follows_the_system_and_the_button(signed):
    page = signed(scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate(background) != dark
    page.reload()
    assert page.evaluate(background) != dark
