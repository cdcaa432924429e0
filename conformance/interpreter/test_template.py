"""The built-in template: available to all teams, built on demand."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import httpx
import pytest
from e2b import Sandbox as Plain
from e2b.exceptions import SandboxException
from e2b_code_interpreter import Sandbox

from ..installation import ROOT
from .server import TEMPLATE, build


def ask(server, method: str, path: str, team: str = "default", body=None) -> httpx.Response:
    headers = {"X-API-Key": server.keys[team]}
    return httpx.request(method, server.url + path, headers=headers, json=body, timeout=60)


def test_it_is_a_template_of_the_installation_which_every_team_may_use(server):
    if "guests" not in server.keys:
        server.add_team("guests")
    for team in ("default", "guests"):
        listed = ask(server, "GET", "/templates", team).json()
        mine = [template for template in listed if TEMPLATE in template["names"]]
        assert len(mine) == 1 and mine[0]["public"] and mine[0]["buildStatus"] == "ready"
        assert (mine[0]["cpuCount"], mine[0]["memoryMB"]) == (2, 2048)
    with Sandbox.create(**server.options("guests"), timeout=60) as sandbox:
        assert sandbox.run_code("6 * 7").text == "42"
    # Only an operator changes the template that all teams use.
    again = ask(server, "POST", f"/api/v1/templates/{TEMPLATE}/build", "guests", {})
    assert again.status_code == 403
    taken = ask(server, "POST", "/v3/templates", "guests", {"name": TEMPLATE})
    assert taken.status_code == 400 and "taken" in taken.json()["message"]


def test_a_second_build_is_cached(server):
    built = build(server)
    assert built.returncode == 0 and built.stdout.strip() == TEMPLATE
    assert "CACHED [finalize]" in built.stderr and "Successfully installed" not in built.stderr


def test_mirrors_of_the_machine_are_not_in_it(server):
    with Sandbox.create(**server.options(), timeout=60) as sandbox:
        found = sandbox.run_code("""
import os
[os.path.exists(path) for path in ("/root/.mirrors", "/etc/pip.conf", "/root/.config/pip/pip.conf")]""")
        assert found.results[0].json == [False, False, False]


def test_programs_may_load_the_debugger_that_the_kernel_has_not(server):
    with Sandbox.create(**server.options(), timeout=60) as sandbox:
        said = sandbox.run_code("import sys; before = 'debugpy' in sys.modules; import debugpy; before")
        assert said.error is None and said.text == "False"


def test_a_template_may_begin_with_packages_loaded(server):
    """The example of docs/code-interpreter.md."""
    page = (ROOT / "docs" / "code-interpreter.md").read_text()
    (example,) = re.findall(r"^```python\n(from e2b import Template\n.*?)^```$", page, re.DOTALL | re.MULTILINE)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    built = subprocess.run(
        [sys.executable, "-c", example], env=clean | {"E2B_API_KEY": server.key, "E2B_API_URL": server.url},
        capture_output=True, text=True, check=False, timeout=120,
    )
    assert built.returncode == 0, built.stderr
    with Sandbox.create("analysis", **server.options(), timeout=60) as sandbox:
        code = "import sys; [name in sys.modules for name in ('pandas', 'matplotlib.pyplot')]"
        assert sandbox.run_code(code).results[0].json == [True, True]
        plot = sandbox.run_code("import pandas; pandas.DataFrame({'a': [1, 2]}).a.plot()").results[-1]
        assert plot.png and plot.chart.elements
    assert ask(server, "DELETE", "/templates/analysis").status_code in (200, 204)


def test_a_sandbox_of_base_has_no_interpreter(server):
    with Plain.create("base", **server.options(), timeout=60) as sandbox:
        said = sandbox.commands.run("curl -s -o /dev/null localhost:49999/health || echo none")
        assert said.stdout == "none\n"


def test_the_first_create_begins_the_build_and_says_how_to_watch_it(another):
    server = another("unbuilt")
    server.add_team("guests")
    # The build takes minutes of the machine, so a team without an admin key cannot start it.
    refused = ask(server, "POST", "/v2/sandboxes", "guests", {"templateID": TEMPLATE})
    assert refused.status_code == 403 and "templates.build_on_demand" in refused.json()["message"]
    first = ask(server, "POST", "/v2/sandboxes", body={"templateID": TEMPLATE})
    assert first.status_code == 503 and first.headers["Should-Retry"] == "false"
    said = first.json()["message"]
    assert "is being built" in said and "shoal template build --watch" in said
    build_id = said.split("--watch ")[1].split("`")[0]
    template, number = build_id.split("/")
    path = f"/templates/{template}/builds/{number}"
    # Later requests join the same build. All teams may watch it, but not all may cancel it.
    again = ask(server, "POST", "/v2/sandboxes", "guests", {"templateID": TEMPLATE})
    assert build_id in again.json()["message"]
    assert ask(server, "GET", f"{path}/status", "guests").json()["status"] == "building"
    assert ask(server, "DELETE", path, "guests").status_code == 404
    assert ask(server, "DELETE", path).status_code == 204
    with pytest.raises(SandboxException, match="not found"):
        Plain.create("code-interpreter-v2", **server.options())
