"""The server of a whole run, for pytest and for commands:

    python -m conformance.shared COMMAND…

runs a command with the variables that point E2B's clients at the server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .installation import ROOT, Installation, share_images

#: The images, packages and data directories that the next run uses again.
WORK = ROOT / "target" / "conformance"

#: Small enough for any machine, ample for the tests.
SETTINGS = ["disk.size=4GiB", "network.warm_slots=8", "starts=2", "runtime.allowed=any"]


def data_directory() -> Path:
    """Where the shared server keeps its state: `SHOAL_TEST_DATA`, or below `target`."""
    return Path(os.environ.get("SHOAL_TEST_DATA") or WORK / "data")


def images() -> Path:
    """Images that servers beside the shared one are given: `SHOAL_TEST_IMAGES`, or its own."""
    return Path(os.environ.get("SHOAL_TEST_IMAGES") or data_directory() / "images")


class SharedServer:
    """The server of a whole run, started when it is first asked for."""

    settings = SETTINGS

    def __init__(self) -> None:
        self.installation: Installation | None = None

    def data(self) -> Path:
        return data_directory()

    def prepare(self, installation: Installation) -> None:
        """The requirements of a suite."""

    def start(self) -> Installation:
        if self.installation is None:
            share_images(images(), self.data())
            self.installation = Installation(self.data(), settings=self.settings)
            self.installation.start()
            self.prepare(self.installation)
        return self.installation

    def known(self, port: int, keys: dict[str, str]) -> Installation:
        """The same server in another process of the run."""
        installation = Installation(self.data(), settings=self.settings, port=port)
        installation.keys = keys
        return installation

    def stop(self) -> None:
        """Stops it as an operator would. Fails if it left anything behind."""
        if self.installation is None:
            return
        installation, self.installation = self.installation, None
        kill_all(installation)
        installation.stop()
        left = installation.all_gone()
        assert left == [], f"the server left something behind: {left}"


def remove(data: Path) -> None:
    """Takes a data directory away, unless something is mounted in it."""
    if data.exists():
        mounts = Path("/proc/self/mountinfo").read_text()
        assert f" {data}/" not in mounts, f"still mounted below {data}"
        shutil.rmtree(data)


def kill_all(installation: Installation) -> None:
    """Ends every sandbox of every team."""
    from e2b import Sandbox

    for team in installation.keys:
        options = installation.options(team)
        pages = Sandbox.list(**options)
        while pages.has_next:
            for sandbox in pages.next_items():
                Sandbox.kill(sandbox.sandbox_id, **options)


def main(command: list[str]) -> int:
    """Runs a command with a server to talk to; how it ended."""
    server = SharedServer()
    installation = server.start()
    variables = {
        "E2B_API_KEY": installation.key,
        "E2B_API_URL": installation.url,
        "E2B_SANDBOX_URL": installation.url,
    }
    try:
        return subprocess.run(command, env=os.environ | variables, check=False).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
