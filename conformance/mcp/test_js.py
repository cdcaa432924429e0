"""Every case for the TypeScript client, and the official conformance suite, as cases of this run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ..installation import program
from ..js.packages import PACKAGES, install, node, pointing_at
from ..js.test_js import FILE_SECONDS, cases, run

HERE = Path(__file__).resolve().parent
FILE = "mcp.test.js"

#: The scenarios of the official suite for any server. The others call tools, prompts and resources of its own example
#: server, or features that this one does not offer: docs/mcp.md lists them.
SCENARIOS = ["server-initialize", "ping", "tools-list", "resources-list", "server-sse-multiple-streams"]

#: The suite sends no key, so its requests get one here.
WITH_KEY = """
const plain = globalThis.fetch
globalThis.fetch = (url, init = {}) => {
  const headers = new Headers(init.headers)
  headers.set('X-API-Key', process.env.E2B_API_KEY)
  return plain(url, { ...init, headers })
}
"""

pytestmark = pytest.mark.timeout(FILE_SECONDS + 120)


@pytest.fixture(scope="module")
def variables(shared):
    install()
    return pointing_at(shared) | {"SHOAL_BIN": str(program())}


@pytest.fixture(scope="module")
def ended(variables):
    return run(FILE, variables, HERE)


@pytest.mark.parametrize("case", cases(FILE, HERE))
def test_case(ended, case):
    result = ended.ended.get(case)
    assert result is not None, f"it did not run:\n{ended.said}"
    assert result["passed"] and not result["skipped"], result["error"] or ended.said


@pytest.fixture(scope="module")
def inspector(variables) -> Path:
    """The inspector's command line. Its package reads its version from the directory around it, where the inspector
    itself would be."""
    around = PACKAGES / "inspector"
    around.mkdir(exist_ok=True)
    (around / "package.json").write_text('{"name": "inspector", "version": "0.0.0"}')
    package = PACKAGES / "node_modules" / "@modelcontextprotocol" / "inspector-cli"
    shutil.copytree(package, around / "cli", dirs_exist_ok=True)
    return around / "cli" / "build" / "index.js"


def inspect(inspector, variables, target: list[str], method: str, *arguments: str) -> dict:
    """One request of the inspector's command line."""
    command = [node(), str(inspector), *target, "--method", method, *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_inspector_lists_and_calls_tools(shared, inspector, variables, transport):
    over_http = [f"{shared.url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {shared.key}"]
    target = over_http if transport == "http" else [str(program()), "mcp"]
    names = [tool["name"] for tool in inspect(inspector, variables, target, "tools/list")["tools"]]
    assert "run_command" in names and "start_mcp_server" in names
    call = ["--tool-name", "run_command", "--tool-arg", "command=echo $((6 * 7))"]
    assert inspect(inspector, variables, target, "tools/call", *call)["structuredContent"]["stdout"] == "42\n"
    templates = inspect(inspector, variables, target, "resources/templates/list")["resourceTemplates"]
    assert "sandbox://{id}/{+path}" in [template["uriTemplate"] for template in templates]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_official_scenario(shared, variables, scenario, tmp_path):
    preload = tmp_path / "key.mjs"
    preload.write_text(WITH_KEY)
    suite = PACKAGES / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [node(), "--import", str(preload), str(suite), "server", "--url", f"{shared.url}/mcp"]
    command += ["--scenario", scenario, "--output-dir", str(tmp_path / "results")]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout or "Passed" in done.stdout, done.stdout
