"""The programs of `examples/`, as their readers run them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from .. import examples
from ..js.packages import pointing_at
from ..shared import ROOT

#: The programs that need a template which `conformance/interpreter` builds.
INTERPRETER = {"analysis.py"}


def test_every_program_is_run():
    assert examples.programs() == set(examples.OUTPUT)
    readme = (examples.EXAMPLES / "README.md").read_text()
    assert all(f"({name})" in readme for name in examples.OUTPUT)


def test_tutorials_quote_the_programs_that_are_run():
    pages = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    assert pages
    for page in pages:
        text = page.read_text()
        (name,) = set(re.findall(r"\]\(\.\./\.\./examples/(.+?)\)", text))
        program = (examples.EXAMPLES / name).read_text()
        quoted = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert quoted
        for block in quoted:
            assert block in program, f"{page.name} is not what {name} says:\n{block}"


@pytest.mark.parametrize("name", sorted(set(examples.OUTPUT) - INTERPRETER))
def test_a_program(name, shared, tmp_path):
    examples.check(name, shared, tmp_path)


def test_the_first_program_of_the_readme(shared, tmp_path):
    (program,) = re.findall(r"<<'PY'\n(.*?)^PY$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", program], env=pointing_at(shared), cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:5] == ["user", "/home/user", "", "hello"], done.stdout
