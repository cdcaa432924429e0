"""The released packages for Node, as the lockfile names them, below `target`."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
from pathlib import Path

from ..shared import WORK

HERE = Path(__file__).resolve().parent
#: The files that name the packages, next to this directory.
NAMES = ("package.json", "package-lock.json", ".npmrc")
PACKAGES = WORK / "node"


def install() -> None:
    """Installs the packages of the lockfile, unless they are installed."""
    sources = HERE.parent
    # npm writes this file last: an interrupted installation does not have it.
    done = PACKAGES / "node_modules" / ".package-lock.json"
    if done.exists() and all(same(sources / name, PACKAGES / name) for name in NAMES):
        return
    PACKAGES.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        shutil.copy(sources / name, PACKAGES / name)
    subprocess.run(["npm", "ci", "--silent"], cwd=PACKAGES, check=True)


def same(one: Path, other: Path) -> bool:
    return other.exists() and filecmp.cmp(one, other, shallow=False)


def node() -> str:
    """The Node among the packages, which is recent enough for the clients; otherwise the machine's."""
    pinned = sorted(PACKAGES.glob("node_modules/node-linux-*/bin/node"))
    return str(pinned[0]) if pinned else "node"


def environment(**told: str) -> dict[str, str]:
    """A client's environment: the machine's variables, but only our settings of a server."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "E2B_", "NODE_"))}
    return clean | {"NO_UPDATE_NOTIFIER": "1"} | told


def pointing_at(server) -> dict[str, str]:
    """The variables that point E2B's clients at a server."""
    return environment(
        E2B_API_KEY=server.key, E2B_API_URL=server.url, E2B_SANDBOX_URL=server.url
    )
