"""Metrics, the server's log, and a sandbox's log, for operators and users."""

from __future__ import annotations

import json
import re
from datetime import datetime

import httpx
import pytest
from e2b import Sandbox

from ..installation import free_port, wait_until


@pytest.fixture(scope="module")
def watched(another):
    """A server with metrics, and a log for programs."""
    port = free_port()
    settings = [f"metrics.listen=127.0.0.1:{port}", "log.format=json", "log.level=info,shoal_engine=debug"]
    server = another("watched", settings)
    server.metrics = f"http://127.0.0.1:{port}"
    return server


def figures(server) -> dict[str, float]:
    """Every metric, by its name and sorted labels."""
    answer = httpx.get(f"{server.metrics}/metrics", timeout=30)
    assert answer.status_code == 200
    found = {}
    for line in answer.text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            bare, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})?", name).groups()
            found[bare, *sorted((labels or "").split(","))] = float(value)
    return found


def test_figures_say_what_ran(watched):
    running = {
        runtime: ("shoal_sandboxes", f'runtime="{runtime}"', 'state="running"') for runtime in ("runsc", "runc")
    }
    assert {figures(watched)[name] for name in running.values()} == {0}
    with Sandbox.create(timeout=60, metadata={"shoal/runtime": "runc"}, **watched.options()) as made:
        seen = figures(watched)
        assert (seen[running["runc"]], seen[running["runsc"]]) == (1, 0)
        started = [name for name in seen if name[0] == "shoal_sandbox_starts_total"]
        assert any('runtime="runc"' in name and 'isolation="namespaces"' in name for name in started), started
        passed = ("shoal_gateway_requests_total", 'runtime="runc"', 'status="2xx"')
        before = seen.get(passed, 0)
        made.commands.run("true")
        assert figures(watched)[passed] > before
    ended = ("shoal_sandbox_kills_total", 'reason="Requested"', 'runtime="runc"')
    wait_until(lambda: figures(watched).get(ended), 60, f"{ended} in {list(figures(watched))}")
    assert figures(watched)[running["runc"]] == 0
    # That port serves only metrics, and the API's port has none.
    assert httpx.get(f"{watched.metrics}/sandboxes", timeout=60).status_code == 404
    assert httpx.get(f"{watched.url}/metrics", headers={"X-API-Key": watched.key}, timeout=60).status_code == 404


def test_the_log_is_a_line_of_json_for_each_event(watched):
    # Other output is for the person who started the server.
    # The last line may be on its way.
    lines = (watched.data / "server.log").read_text().split("\n")[:-1]
    events = [json.loads(line) for line in lines if not line.startswith(("export ", "# "))]
    assert all({"timestamp", "level", "fields"} <= set(event) for event in events)
    serving = next(event for event in events if event["fields"].get("message") == "serving")
    assert serving["level"] == "INFO"
    # The default resources of sandboxes.
    assert serving["fields"]["isolation"] == "userspace_kernel"


@pytest.fixture(scope="module")
def written(shared):
    """A sandbox that printed three words, and how to query its log."""
    with Sandbox.create(timeout=300, **shared.options()) as made:
        with httpx.Client(base_url=shared.url, headers={"X-API-Key": shared.key}, timeout=30) as client:
            def logs(**query) -> list[dict]:
                answer = client.get(f"/v2/sandboxes/{made.sandbox_id}/logs", params=query)
                assert answer.status_code == 200, answer.text
                return answer.json()["logs"]

            for word in ("alpha", "beta", "gamma"):
                made.commands.run(f"echo said-{word}")
                wait_until(lambda: said(logs(search=f"said-{word}")), 60, word)
            yield logs


def said(entries: list[dict]) -> list[str]:
    """The printed lines, among other entries."""
    lines = (entry["fields"].get("line", "") for entry in entries)
    return [line for line in lines if line.startswith("said-")]


def test_a_sandboxs_log_is_read_from_either_end(written):
    words = ["said-alpha", "said-beta", "said-gamma"]
    assert said(written(direction="forward")) == words
    # The default direction is backward: newest first.
    assert said(written()) == said(written(direction="backward")) == words[::-1]
    for direction in ("forward", "backward"):
        # Compare times, not texts: a fraction is as short as possible.
        times = [
            datetime.fromisoformat(entry["timestamp"]) for entry in written(direction=direction)
        ]
        assert times == sorted(times, reverse=direction == "backward")
    assert len(written(limit=1)) == 1


def test_a_sandboxs_log_is_searched_by_text_and_level(written):
    assert said(written(search="said-beta")) == ["said-beta"]
    assert written(search="said-nothing") == []
    found = written(search="said-beta")
    assert {entry["level"] for entry in found} == {"info"} and "fields" in found[0]
    # A level includes those above it.
    assert said(written(level="info", direction="forward")) == ["said-alpha", "said-beta", "said-gamma"]
    assert said(written(level="error")) == []
