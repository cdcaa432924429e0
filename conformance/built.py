"""Servers that have a built-in template, which takes minutes to build.

Their data directories are kept between runs, so that a template is built once. Its memory contains the daemon: another
daemon, or another recipe, needs another build, and room for it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from .installation import Installation, program
from .shared import SETTINGS, SharedServer, remove

#: How long a template may take to build, in seconds. Includes fetching its packages.
BUILD_SECONDS = 900


def build(server: Installation, template: str, *words: str) -> subprocess.CompletedProcess:
    """Runs `shoal template build` for one of the installation's own templates."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "E2B_"))}
    return subprocess.run(
        [str(program()), "template", "build", template, *words],
        env=clean | {"SHOAL_URL": server.url, "SHOAL_DATA": str(server.data)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS,
    )


def daemon_digest() -> str:
    """The sources of a template: the daemon and the recipes."""
    recipes = Path(__file__).parent.parent / "templates"
    made_of = hashlib.sha256(program().with_name("shoal-envd").read_bytes())
    for recipe in sorted(path for path in recipes.rglob("*") if path.is_file()):
        made_of.update(recipe.read_bytes())
    return made_of.hexdigest()


class BuiltServer(SharedServer):
    """A server that has the template."""

    settings = [*SETTINGS, "disk.size=5GiB", "sessions.template=session-v1"]

    def __init__(self, template: str, data: Path) -> None:
        super().__init__()
        self.template, self.kept = template, data

    def data(self) -> Path:
        return self.kept

    def start(self) -> Installation:
        stamp = self.kept / "daemon"
        if self.installation is None and stamp.exists() and stamp.read_text() != daemon_digest():
            remove(self.kept)
        return super().start()

    def prepare(self, installation: Installation) -> None:
        built = build(installation, self.template)
        assert built.returncode == 0, built.stderr[-4000:]
        (self.kept / "build.log").write_text(built.stdout + built.stderr)
        (self.kept / "daemon").write_text(daemon_digest())

    def ahead(self, words: list[str]) -> None:
        """Builds the template, or frees the disk space (`remove`)."""
        if words == ["remove"]:
            remove(self.kept)
            return
        try:
            self.start()
        finally:
            self.stop()


def main(server: BuiltServer) -> None:
    server.ahead(sys.argv[1:])
