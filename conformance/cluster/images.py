"""Images for the pods of a test cluster, made of Debian's static busybox and our daemon: no registry is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.oci_archive import Layer, archive

from ..installation import program

BUSYBOX = Path("/bin/busybox")

#: The names under which nodes find the images.
PAUSE, SHELL, RUNTIME = "shoal.invalid/pause:1", "shoal.invalid/busybox:1", "shoal.invalid/runtime:1"
#: Has no programs: pods mount those of the machine.
BASE = "shoal.invalid/base:1"


def write(directory: Path) -> None:
    """Writes an OCI archive of each image into a directory."""
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    archive(directory / "busybox.tar", SHELL, layer(links), configuration("/bin/sh"))
    daemon = program().with_name("shoal-envd")
    if daemon.exists():
        serve = configuration("/shoal-envd", "--runtime-port", "8888")
        # As in the image of `make image`.
        archive(directory / "runtime.tar", RUNTIME, layer(links, {"shoal-envd": daemon}), serve)
    archive(directory / "base.tar", BASE, empty(), {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/"})
    archive(directory / "pause.tar", PAUSE, layer({}), configuration("/bin/busybox", "sleep", "2147483647"))


def layer(links: dict[str, str], programs: dict[str, Path] | None = None) -> Layer:
    """A root file system with busybox, symbolic links, and other static programs."""
    names = ("bin", "dev", "etc", "proc", "sys", "root", "run", "tmp", "var")
    programs = {"bin/busybox": BUSYBOX, **(programs or {})}
    return Layer(
        directories={name: 0o1777 if name == "tmp" else 0o755 for name in names},
        files={
            "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\n", 0o644),
            "etc/group": (b"root:x:0:\n", 0o644),
            # E2B's SDKs run commands with it.
            "bin/bash": (b'#!/bin/sh\nexec /bin/sh "$@"\n', 0o755),
            **{name: (source.read_bytes(), 0o755) for name, source in programs.items()},
        },
        links=links,
    )


def empty() -> Layer:
    """A root file system with E2B's users, and places for the programs of the machine."""
    names = ("bin", "dev", "etc", "etc/alternatives", "home", "home/user", "lib", "lib64", "proc", "root", "run", "sbin", "sys")
    return Layer(
        directories={**dict.fromkeys((*names, "usr", "var"), 0o755), "tmp": 0o1777, "var/tmp": 0o1777},
        files={
            "etc/passwd": (b"root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n", 0o644),
            "etc/group": (b"root:x:0:\nuser:x:1000:\n", 0o644),
        },
    )


def configuration(*command: str) -> dict:
    return {"Cmd": list(command), "Env": ["PATH=/bin"], "WorkingDir": "/"}
