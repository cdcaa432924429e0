"""E2B's command line."""

import os
import subprocess

import pytest
from e2b import Sandbox

from ..shared import WORK

PROGRAM = WORK / "node" / "node_modules" / ".bin" / "e2b"


@pytest.fixture(scope="module")
def e2b(shared):
    """Runs E2B's command line."""
    variables = {
        "E2B_API_KEY": shared.key,
        "E2B_API_URL": shared.url,
        "E2B_SANDBOX_URL": shared.url,
        "NO_UPDATE_NOTIFIER": "1",
        "HOME": str(WORK),
        "PATH": os.environ["PATH"],
    }

    def run(*words, code=0, **more):
        ended = subprocess.run(
            [PROGRAM, *words], env=variables, capture_output=True, text=True, timeout=60, check=False, **more
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    return run


@pytest.fixture(scope="module")
def one(shared):
    made = Sandbox.create(timeout=600, metadata={"suite": "cli"}, **shared.options())
    yield made
    made.kill()


def test_sandboxes_are_listed(e2b, one):
    assert one.sandbox_id in e2b("sandbox", "list")
    assert one.sandbox_id in e2b("sandbox", "list", "--format", "json", "--metadata", "suite=cli")
    assert one.sandbox_id not in e2b("sandbox", "list", "--metadata", "suite=other")


def test_a_sandbox_is_made_in_the_background_and_killed(e2b, shared):
    said = e2b("sandbox", "create", "base", "--detach")
    found = [info.sandbox_id for info in Sandbox.list(**shared.options()).next_items()]
    made = next(identity for identity in found if identity in said)
    assert made in e2b("sandbox", "kill", made)
    assert Sandbox.kill(made, **shared.options()) is False


def test_a_command_is_run_and_its_code_given_back(e2b, one):
    assert "from here" in e2b("sandbox", "exec", one.sandbox_id, "echo", "from here")
    e2b("sandbox", "exec", one.sandbox_id, "exit 7", code=7)


def test_input_is_piped_into_a_command(e2b, one):
    text = "line\n" * 50_000
    assert "50000" in e2b("sandbox", "exec", one.sandbox_id, "wc -l", input=text)


def test_a_command_has_a_user_a_place_and_variables(e2b, one):
    said = e2b("sandbox", "exec", "-u", "root", "-c", "/tmp", "-e", "ONE=1", one.sandbox_id, "id -un; pwd; echo =$ONE=")
    assert "root\n/tmp\n=1=" in said


def test_a_sandbox_is_described(e2b, one):
    said = e2b("sandbox", "info", one.sandbox_id)
    assert one.sandbox_id in said and "base" in said


def test_logs_are_shown(e2b, one):
    e2b("sandbox", "logs", one.sandbox_id)
    e2b("sandbox", "logs", one.sandbox_id, "--format", "json")


def test_metrics_are_shown(e2b, one):
    e2b("sandbox", "metrics", one.sandbox_id)


def test_templates_are_listed(e2b):
    assert "base" in e2b("template", "list")


def test_what_is_unknown_is_told(e2b):
    assert "wasn't found" in e2b("sandbox", "kill", "inothingofthatname000")
    assert "wasn't found" in e2b("sandbox", "info", "inothingofthatname000", code=1)
