"""The alert rules and the dashboard, in a real Prometheus that scrapes a real server."""

from __future__ import annotations

import json
import re
import subprocess

import httpx
import pytest
from e2b import Sandbox

from ..installation import free_port, wait_until
from ..shared import ROOT

RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "shoal.json"

#: Series of a server that has started, used, saved and ended a sandbox.
FILLED = {
    "Sandboxes by state", "Starts and failed starts", "Phases of a start, 95 %", "Ends by reason", "Pauses and snapshots",
    "Frozen for a pause or snapshot, 95 %", "Requests into sandboxes", "Memory of parked sandboxes on disk",
}


def expressions() -> list[tuple[str, str]]:
    """The title of a panel, and what it asks."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            asked = target["expr"].replace("$job", "shoal").replace("$__rate_interval", "1m")
            assert "$" not in asked, asked
            found.append((panel["title"], asked))
    return found


@pytest.fixture(scope="module")
def prometheus(another, tmp_path_factory):
    """Asks one that scrapes a server each second."""
    metrics, port = free_port(), free_port()
    server = another("monitored", [f"metrics.listen=127.0.0.1:{metrics}"])
    directory = tmp_path_factory.mktemp("prometheus")
    (directory / "prometheus.yaml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "shoal", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}],
    }))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={directory}/prometheus.yaml", f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )

    def ask(path: str, **query: str):
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/{path}", params=query, timeout=30)
        except httpx.TransportError:
            return None
        # It starts with 503.
        return answer.json()["data"] if answer.status_code != 503 else None

    def series(asked: str) -> list:
        found = ask("query", query=asked)
        return found["result"] if found else []

    ask.series = series
    wait_until(lambda: [one for one in series('up{job="shoal"}') if one["value"][1] == "1"], 60, (directory / "log").read_text())
    with Sandbox.create(timeout=120, **server.options()) as sandbox:
        sandbox.commands.run("true")
        sandbox.pause()
        sandbox.connect()
    yield ask
    process.terminate()
    process.wait(60)


def test_the_rules_are_right():
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True)
    done = subprocess.run(
        ["promtool", "test", "rules", RULES.with_name("alerts_test.yaml")], capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_quiet_about_a_healthy_server(prometheus):
    def evaluated():
        found = [rule for group in prometheus("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] == "ok" for rule in found) else None

    rules = wait_until(evaluated, 60, "an evaluation of each rule")
    assert len(rules) == 7 and all(rule["state"] == "inactive" for rule in rules), rules


@pytest.mark.parametrize("title", sorted(FILLED))
def test_a_panel_shows_what_happened(prometheus, title):
    asked = [asked for panel, asked in expressions() if panel == title]
    assert asked
    wait_until(lambda: any(prometheus.series(one) for one in asked), 60, f"{title}: {asked}")


def test_every_expression_is_understood_and_its_metrics_are_documented(prometheus):
    documented = set(re.findall(r"`(shoal_\w+)`", (ROOT / "docs" / "operations.md").read_text()))
    for title, asked in expressions():
        assert prometheus("query", query=asked)["resultType"] == "vector", title
    named = set(re.findall(r"shoal_\w+", DASHBOARD.read_text() + RULES.read_text()))
    assert {re.sub("_bucket$", "", name) for name in named} <= documented
