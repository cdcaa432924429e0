"""Images for the pods of a test cluster, made of Debian's static busybox: no registry is needed."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

BUSYBOX = Path("/bin/busybox")

#: The names under which nodes find the images.
PAUSE, SHELL = "shoal.invalid/pause:1", "shoal.invalid/busybox:1"


def write(directory: Path) -> None:
    """Writes an OCI archive of each image into a directory."""
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    archive(directory / "busybox.tar", SHELL, ["/bin/sh"], links)
    archive(directory / "pause.tar", PAUSE, ["/bin/busybox", "sleep", "2147483647"], {})


def layer(links: dict[str, str]) -> bytes:
    """A root file system with busybox and symbolic links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "sys", "root", "run", "tmp", "var"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        add(tar, "etc/group", b"root:x:0:\n")
        add(tar, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return packed.getvalue()


def archive(path: Path, name: str, command: list[str], links: dict[str, str]) -> None:
    """An OCI archive of an image with one layer."""
    content = layer(links)
    config = encoded({
        "architecture": "amd64", "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(content)]},
    })
    manifest = encoded({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", config),
        "layers": [described("application/vnd.oci.image.layer.v1.tar", content)],
    })
    known = described("application/vnd.oci.image.manifest.v1+json", manifest)
    known["annotations"] = {
        "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1],
    }
    with tarfile.open(path, "w") as tar:
        add(tar, "oci-layout", encoded({"imageLayoutVersion": "1.0.0"}))
        add(tar, "index.json", encoded({"schemaVersion": 2, "manifests": [known]}))
        for blob in (content, config, manifest):
            add(tar, f"blobs/sha256/{digest(blob).removeprefix('sha256:')}", blob)


def add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def encoded(value) -> bytes:
    return json.dumps(value).encode()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def described(media_type: str, data: bytes) -> dict:
    return {"mediaType": media_type, "digest": digest(data), "size": len(data)}
