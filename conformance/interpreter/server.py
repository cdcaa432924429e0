"""The server of this suite, with the template `code-interpreter-v1` built.

    python -m conformance.interpreter.server

builds the template ahead of the suite, so that other suites run while packages are fetched.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ..conftest import remove
from ..installation import Installation, program, share_images
from ..shared import SETTINGS, WORK, images, kill_all

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


@contextmanager
def running() -> Iterator[Installation]:
    """A server that has the template. Fails if the server leaves anything behind.

    The data directory is kept between runs, so that the template is built once. The template's
    memory contains the daemon: another daemon needs another build.
    """
    stamp, digest = DATA / "daemon", daemon_digest()
    if not stamp.exists() or stamp.read_text() != digest:
        remove(DATA)
    share_images(images(), DATA)
    installation = Installation(DATA, settings=[*SETTINGS, "disk.size=5GiB"])
    installation.start()
    try:
        built = build(installation)
        assert built.returncode == 0, built.stderr[-4000:]
        stamp.write_text(digest)
        yield installation
    finally:
        kill_all(installation)
        installation.stop()
    left = installation.all_gone()
    assert left == [], f"the server left something behind: {left}"


if __name__ == "__main__":
    with running():
        pass
