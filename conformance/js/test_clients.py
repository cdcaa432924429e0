"""The generated clients of sessions: they are what the OpenAPI document says, and their types hold."""

from __future__ import annotations

import subprocess
import sys

from ..shared import ROOT, WORK
from .packages import PACKAGES, install, node

CLIENTS = ROOT / "clients"


def check(command: list, **more) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_clients_are_those_of_the_document():
    check([sys.executable, ROOT / "scripts" / "clients.py", "--check"])


def test_the_types_in_python_hold():
    cache = f"--cache-dir={WORK / 'mypy'}"
    check([sys.executable, "-m", "mypy", "--strict", cache, "shoal_sessions"], cwd=CLIENTS / "python")


def test_the_types_in_typescript_hold():
    install()
    compiler = PACKAGES / "node_modules" / "typescript" / "bin" / "tsc"
    check([node(), compiler, "-p", CLIENTS / "typescript", "--noEmit"])
