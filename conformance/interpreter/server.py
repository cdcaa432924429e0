"""The server of this suite, with the template `code-interpreter-v1` built.

    python -m conformance.interpreter.server

builds the template ahead of the suite, so that other suites run while packages are fetched. With
the argument `remove` it frees the disk space.
"""

from __future__ import annotations

import functools
import subprocess

from .. import built
from ..built import BUILD_SECONDS, BuiltServer
from ..installation import Installation
from ..shared import WORK

__all__ = ["BUILD_SECONDS", "DATA", "TEMPLATE", "InterpreterServer", "build"]

TEMPLATE = "code-interpreter-v1"

DATA = WORK / "interpreter"

#: A server that has the template.
InterpreterServer = functools.partial(BuiltServer, TEMPLATE, DATA)


def build(server: Installation, *words: str) -> subprocess.CompletedProcess:
    """Runs `shoal template build` for the template."""
    return built.build(server, TEMPLATE, *words)


if __name__ == "__main__":
    built.main(InterpreterServer())
