"""Images for the pods of a test cluster, made of Debian's static busybox: no registry is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.oci_archive import Layer, archive

BUSYBOX = Path("/bin/busybox")

#: The names under which nodes find the images.
PAUSE, SHELL = "shoal.invalid/pause:1", "shoal.invalid/busybox:1"


def write(directory: Path) -> None:
    """Writes an OCI archive of each image into a directory."""
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    archive(directory / "busybox.tar", SHELL, layer(links), configuration("/bin/sh"))
    archive(directory / "pause.tar", PAUSE, layer({}), configuration("/bin/busybox", "sleep", "2147483647"))


def layer(links: dict[str, str]) -> Layer:
    """A root file system with busybox and symbolic links."""
    names = ("bin", "dev", "etc", "proc", "sys", "root", "run", "tmp", "var")
    return Layer(
        directories={name: 0o1777 if name == "tmp" else 0o755 for name in names},
        files={
            "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\n", 0o644),
            "etc/group": (b"root:x:0:\n", 0o644),
            "bin/busybox": (BUSYBOX.read_bytes(), 0o755),
        },
        links=links,
    )


def configuration(*command: str) -> dict:
    return {"Cmd": list(command), "Env": ["PATH=/bin"], "WorkingDir": "/"}
