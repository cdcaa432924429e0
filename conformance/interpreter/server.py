"""The server of this suite, with the template `code-interpreter-v1` built.

    python -m conformance.interpreter.server

builds the template ahead of the suite, so that other suites run while packages are fetched. With
the argument `remove` it frees the disk space.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from ..installation import Installation, program
from ..shared import SETTINGS, WORK, SharedServer, remove

TEMPLATE = "code-interpreter-v1"

#: How long the template may take to build, in seconds. Includes fetching its packages.
BUILD_SECONDS = 900

DATA = WORK / "interpreter"


def build(server: Installation, *words: str) -> subprocess.CompletedProcess:
    """Runs `shoal template build` for the installation's own template."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "E2B_"))}
    return subprocess.run(
        [str(program()), "template", "build", TEMPLATE, *words],
        env=clean | {"SHOAL_URL": server.url, "SHOAL_DATA": str(server.data)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS,
    )


def daemon_digest() -> str:
    return hashlib.sha256(program().with_name("shoal-envd").read_bytes()).hexdigest()


class InterpreterServer(SharedServer):
    """A server that has the template.

    The data directory is kept between runs, so that the template is built once. The template's
    memory contains the daemon: another daemon needs another build.
    """

    settings = [*SETTINGS, "disk.size=5GiB"]

    def data(self) -> Path:
        return DATA

    def start(self) -> Installation:
        stamp = DATA / "daemon"
        if self.installation is None and stamp.exists() and stamp.read_text() != daemon_digest():
            remove(DATA)
        return super().start()

    def prepare(self, installation: Installation) -> None:
        built = build(installation)
        assert built.returncode == 0, built.stderr[-4000:]
        (DATA / "daemon").write_text(daemon_digest())


if __name__ == "__main__":
    if sys.argv[1:] == ["remove"]:
        remove(DATA)
    else:
        ahead = InterpreterServer()
        try:
            ahead.start()
        finally:
            ahead.stop()
