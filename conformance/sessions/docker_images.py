"""Images for Docker in machines of sessions, made of programs of this machine: no registry is needed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

#: One program with many names.
BUSYBOX = ("cat", "echo", "env", "grep", "httpd", "id", "ls", "mkdir", "ps", "pwd", "sh", "sleep", "test", "touch")


def layer(bash: bool) -> bytes:
    """A root with busybox, and with bash and its libraries if asked for."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", dereference=True) as archive:
        archive.add("/bin/busybox", "usr/bin/busybox")
        links = {f"usr/bin/{name}": "busybox" for name in BUSYBOX} | {"bin": "usr/bin"}
        for name, target in links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        if bash:
            libraries = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
            for path in ("/bin/bash", *re.findall(r"(/\S+) \(", libraries)):
                archive.add(path, path.removeprefix("/").replace("bin/bash", "usr/bin/bash"))
    return out.getvalue()


def save(to: Path, name: str, bash: bool = True) -> None:
    """Writes an image as `docker save` does."""
    root = layer(bash)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = json.dumps({
        "architecture": architecture, "os": "linux", "config": {"Env": ["PATH=/usr/bin", "OF_IMAGE=yes"], "Cmd": ["echo", "ran"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(root).hexdigest()}"]},
    }).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(to, "w") as archive:
        for member, contents in (("manifest.json", manifest), ("config.json", config), ("layer.tar", root)):
            entry = tarfile.TarInfo(member)
            entry.size = len(contents)
            archive.addfile(entry, io.BytesIO(contents))
