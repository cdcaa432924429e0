"""The screens of templates, snapshots, sessions and the node."""

from __future__ import annotations

import uuid

from e2b import Sandbox, Template
from playwright.sync_api import expect

from ..hostile.machine import Call
from .browser import PATIENCE_MS, findings, visit


def test_the_log_of_a_build_is_followed_to_its_end(signed, shared):
    name = f"ui-{uuid.uuid4().hex[:8]}"
    plan = Template().from_template("base").run_cmd(f"echo first-$((40 + 2)); sleep 2; echo second-$((40 + 2)) # {name}")
    build = Template.build_in_background(plan, name, cpu_count=1, memory_mb=256, **shared.options())
    try:
        page = signed()
        visit(page, "templates", build.template_id)
        expect(page.get_by_role("heading", name=name)).to_be_visible(timeout=PATIENCE_MS)
        log = page.get_by_role("log")
        expect(log).to_contain_text("second-42", timeout=PATIENCE_MS)
        expect(log).to_contain_text("first-42")
        # Both the build and the template are read again when it ends.
        expect(page.locator("main .bar .state", has_text="ready")).to_have_count(2, timeout=PATIENCE_MS)
        expect(page.get_by_role("region", name="Builds")).to_contain_text("ready")
        assert findings(page) == []
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("heading", name="Templates")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text(name)).to_have_count(0, timeout=PATIENCE_MS)
    finally:
        Call(shared).delete(f"/templates/{build.template_id}")


def test_a_template_is_built_from_a_dockerfile(signed, shared):
    name = f"ui-{uuid.uuid4().hex[:8]}"
    page = signed()
    visit(page, "templates")
    page.get_by_role("button", name="Build…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill(name)
    text = dialog.get_by_role("textbox", name="Dockerfile")
    text.fill("FROM base\nRUM echo\n")
    assert findings(page) == []
    dialog.get_by_role("button", name="Build", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("line 2: RUM is no instruction", timeout=PATIENCE_MS)
    text.fill(f"FROM base\nEXPOSE 80\nRUN echo made-$((40 + 2)) # {name}\n")
    dialog.get_by_role("button", name="Build", exact=True).click()
    expect(page.get_by_role("heading", name=name)).to_be_visible(timeout=PATIENCE_MS)
    try:
        expect(page.get_by_role("log")).to_contain_text("made-42", timeout=PATIENCE_MS)
        expect(page.locator("main .bar .state", has_text="ready")).to_have_count(2, timeout=PATIENCE_MS)
        # A warning stays until it is dismissed.
        warning = page.get_by_role("status").get_by_text("line 2: EXPOSE")
        expect(warning).to_be_visible()
        page.get_by_role("button", name="Dismiss").click()
        expect(warning).to_have_count(0)
    finally:
        Call(shared).delete(f"/templates/{name}")


def test_the_reason_of_a_failed_build_is_shown(signed, shared):
    name = f"ui-{uuid.uuid4().hex[:8]}"
    plan = Template().from_template("base").run_cmd(f"echo broken-$((40 + 2)); exit 3 # {name}")
    build = Template.build_in_background(plan, name, cpu_count=1, memory_mb=256, **shared.options())
    try:
        page = signed()
        visit(page, "templates", build.template_id)
        expect(page.get_by_role("log")).to_contain_text("broken-42", timeout=PATIENCE_MS)
        expect(page.locator("main .bar .state", has_text="error").first).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_role("alert").first).to_contain_text("3")
    finally:
        Call(shared).delete(f"/templates/{build.template_id}")


def test_snapshots_are_below_what_they_began_with_and_are_exported(signed, sandbox, shared, tmp_path):
    first, _ = sandbox()
    taken = first.create_snapshot()
    second, _ = sandbox(template=taken.snapshot_id)
    child = second.create_snapshot()
    try:
        page = signed()
        visit(page, "snapshots")
        table = page.get_by_role("region", name="Snapshots")
        rows = table.locator("tbody tr", has=page.get_by_role("link", name=second.sandbox_id, exact=True))
        expect(rows).to_have_count(2, timeout=PATIENCE_MS)
        expect(rows.nth(1)).to_contain_text("Level 2")
        assert findings(page) == []
        rows.nth(1).get_by_role("button", name="Export…").click()
        file = tmp_path / "child.shoal"
        page.get_by_role("textbox", name="File").fill(str(file))
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Export", exact=True).click()
        # The memory has the token of a sandbox that runs.
        expect(dialog.get_by_role("alert")).to_contain_text("rotate-token", timeout=PATIENCE_MS)
        # The memory of a clone also has the token of the original.
        assert second.kill() and first.kill()
        dialog.get_by_role("button", name="Export", exact=True).click()
        expect(page.get_by_text(f"to {file}")).to_be_visible(timeout=PATIENCE_MS)
        assert file.stat().st_size > 0
        page.get_by_role("button", name="Import…").click()
        page.get_by_role("textbox", name="File").fill(str(tmp_path / "none"))
        dialog.get_by_role("button", name="Import", exact=True).click()
        expect(dialog.get_by_role("alert")).to_be_visible(timeout=PATIENCE_MS)
    finally:
        for snapshot in (child, taken):
            Sandbox.delete_snapshot(snapshot.snapshot_id, **shared.options())


def test_a_session_shows_what_happens_in_it(signed, shared):
    call = Call(shared)
    _, made = call.post("/api/v1/sessions", {})
    session = made["data"]["id"]
    try:
        page = signed()
        visit(page, "sessions", session)
        expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=PATIENCE_MS)
        status, told = call.post(f"/api/v1/sessions/{session}/exec", {"window": "main", "command": "exit 7"})
        assert status == 200, told
        timeline = page.locator(".timeline")
        expect(timeline).to_contain_text("machine started", timeout=PATIENCE_MS)
        expect(timeline).to_contain_text("command: exit 7", timeout=PATIENCE_MS)
        # The session is read again with each event.
        expect(page.locator("dl a[href^='#/sandboxes/']")).to_be_visible(timeout=PATIENCE_MS)
        assert findings(page) == []
    finally:
        call.delete(f"/api/v1/sessions/{session}")
    expect(page.get_by_text("The session is deleted.")).to_be_visible(timeout=PATIENCE_MS)


def test_the_history_of_a_pool_is_drawn(signed, shared):
    name = f"ui-{uuid.uuid4().hex[:8]}"
    before = shared._admin("GET", "/api/v1/config/templates")["templates"]
    image = shared._admin("GET", "/api/v1/templates/base")["image"]
    entry = {"name": name, "image": image, "description": "a pool to look at", "pool": {"size": 1}}
    shared._admin("POST", "/api/v1/config/templates", {"templates": [*before, entry]})
    try:
        page = signed()
        visit(page, "templates")
        row = page.get_by_role("region", name="Pools").get_by_role("row", name=name)
        row.get_by_role("button", name="History").click()
        expect(page.get_by_role("img", name="Ready over time")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_role("img", name="Claims a minute over time")).to_be_visible()
        assert findings(page) == []
    finally:
        shared._admin("POST", "/api/v1/config/templates", {"templates": before})


def test_what_the_machine_lacks_is_shown_with_what_fixes_it(signed, shared):
    key = shared.data / "api-key"
    before = key.stat().st_mode & 0o777
    key.chmod(0o644)
    try:
        page = signed()
        visit(page, "node")
        rows = page.get_by_role("region", name="Checks").get_by_role("row")
        # Failures come first, below the titles.
        expect(rows.nth(1)).to_contain_text("warning", timeout=PATIENCE_MS)
        of_key = rows.filter(has_text="API key")
        expect(of_key).to_contain_text(f"sudo chmod 600 {key}")
        expect(rows.filter(has_text="kernel").first).to_be_visible()
        assert findings(page) == []
        key.chmod(before)
        page.get_by_role("button", name="Read again").click()
        expect(of_key).to_contain_text("good", timeout=PATIENCE_MS)
    finally:
        key.chmod(before)
