"""Every case for the JavaScript SDK, as a case of this run.

A file of cases is run once, by Node's own runner, when the first of its cases is asked for.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..shared import ROOT
from .packages import HERE, PACKAGES, environment, install, node, pointing_at

#: How long a file of cases may take, in seconds. Node's runner has one limit for cases and files.
FILE_SECONDS = 600

#: The generated client of sessions, which cases import from `shoal-sessions`.
CLIENT = ROOT / "clients" / "typescript" / "src"

FILES = sorted(path.name for path in HERE.glob("*.test.js"))
DOMAIN = "domain.test.js"

pytestmark = pytest.mark.timeout(FILE_SECONDS + 120)


def cases(file: str, directory=HERE) -> list[str]:
    """The names of the cases in a file, as they are written there."""
    source = (directory / file).read_text()
    names = re.findall(r"^test\('(.+)',", source, re.MULTILINE)
    assert len(names) == len(re.findall(r"^\s*(?:test|it|describe)\b[.(]", source, re.MULTILINE)), file
    assert len(names) == len(set(names)), f"{file}: two cases have the same name"
    return names


@dataclass
class Run:
    """The results of a file's cases, and the output."""

    ended: dict[str, dict]
    said: str


def put(source: Path, target: Path) -> None:
    """Copies a file as a whole: another suite may read it."""
    if target.exists() and filecmp.cmp(source, target, shallow=False):
        return
    whole = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy(source, whole)
    whole.replace(target)


def run(file: str, variables: dict[str, str], directory=HERE) -> Run:
    """Runs a file of cases in `directory`, with the files next to this one."""
    # The cases import packages, which Node looks up in this directory and its parents.
    place = PACKAGES / "js"
    place.mkdir(exist_ok=True)
    for path in (*HERE.iterdir(), directory / file):
        if path.suffix in (".js", ".py"):
            put(path, place / path.name)
    client = place / "shoal-sessions"
    client.mkdir(exist_ok=True)
    for path in CLIENT.iterdir():
        put(path, client / path.name)
    command = [node(), "--test", f"--test-timeout={(FILE_SECONDS - 10) * 1000}"]
    command += ["--test-reporter=./js/reporter.js", "--test-reporter-destination=stdout", f"js/{file}"]
    try:
        done = subprocess.run(
            command, cwd=PACKAGES, env=variables, capture_output=True, text=True, timeout=FILE_SECONDS
        )
        out, said = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        out, said = ((part or b"").decode(errors="replace") for part in (late.stdout, late.stderr))
        said += f"\n{file}: not within {FILE_SECONDS} s"
    results = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return Run({result["name"]: result for result in results}, out + said)


@pytest.fixture(scope="module")
def packages():
    install()


@pytest.fixture(scope="module")
def runs(packages, request):
    """The run of each file, started on demand."""
    made: dict[str, Run] = {}

    def of(file: str) -> Run:
        if file not in made:
            start = with_domain if file == DOMAIN else with_addresses
            made[file] = run(file, start(request))
        return made[file]

    return of


def with_addresses(request) -> dict[str, str]:
    return pointing_at(request.getfixturevalue("shared"))


def with_domain(request) -> dict[str, str]:
    """A server with a domain and TLS; the client knows only its domain."""
    another = request.getfixturevalue("another")
    server = another("domain", ["domain=e2b.localhost", "tls=self-signed"], tls=True)
    return environment(
        E2B_API_KEY=server.key,
        E2B_DOMAIN=f"e2b.localhost:{server.port}",
        NODE_EXTRA_CA_CERTS=str(server.data / "tls" / "ca.pem"),
    )


@pytest.mark.parametrize(("file", "case"), [(file, case) for file in FILES for case in cases(file)])
def test_case(runs, file, case):
    done = runs(file)
    result = done.ended.get(case)
    assert result is not None, f"it did not run:\n{done.said}"
    assert not result["skipped"], "it was skipped"
    assert result["passed"], result["error"] or done.said


@pytest.mark.parametrize("file", FILES)
def test_all_cases_ran(runs, file):
    done = runs(file)
    assert sorted(done.ended) == sorted(cases(file)), done.said
