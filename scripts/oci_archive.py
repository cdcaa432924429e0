"""OCI archives of images with one layer: what `ctr images import`, podman and skopeo load.

    python3 scripts/oci_archive.py PROGRAM FILE [NAME:TAG]

packs `shoal` as an image, named `shoal.invalid/shoal` and its version unless NAME:TAG is given. Equal input
makes equal bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

#: Go's names of this machine's architecture.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

#: The user of the image, without any right.
USER = 65532

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass
class Layer:
    """A root file system: directories, files and symbolic links by path, each without a leading slash."""

    directories: dict[str, int] = field(default_factory=dict)
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def tar(self) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, mode in self.directories.items():
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                tar.addfile(entry)
            for name, (data, mode) in self.files.items():
                add(tar, name, data, mode)
            for name, target in self.links.items():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return packed.getvalue()


def archive(path: Path, name: str, layer: Layer, config: dict) -> None:
    """Writes the archive of an image. `config` is the part of the image's configuration that runtimes read."""
    unpacked = layer.tar()
    packed = gzip.compress(unpacked, compresslevel=3, mtime=0)
    configuration = encoded({
        "architecture": ARCHITECTURES[platform.machine()], "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(unpacked)]},
    })
    manifest = encoded({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": described(CONFIG, configuration), "layers": [described(LAYER, packed)],
    })
    known = described(MANIFEST, manifest)
    known["annotations"] = {
        # containerd takes the whole name; others take the tag.
        "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1],
    }
    with tarfile.open(path, "w") as tar:
        add(tar, "oci-layout", encoded({"imageLayoutVersion": "1.0.0"}))
        add(tar, "index.json", encoded({"schemaVersion": 2, "manifests": [known]}))
        for blob in (packed, configuration, manifest):
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


def libraries(program: Path) -> list[Path]:
    """The loader of a program and its libraries on this machine; none if it is static."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True)
    if listed.returncode != 0 and "not a dynamic executable" in listed.stdout + listed.stderr:
        return []
    assert listed.returncode == 0 and "not found" not in listed.stdout, f"ldd {program}: {listed.stdout}{listed.stderr}"
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listed.stdout)]


def parents(names: list[str]) -> dict[str, int]:
    """The directories of files, those above first."""
    found = {str(above) for name in names for above in Path(name).parents if above != Path(".")}
    return {name: 0o755 for name in sorted(found)}


def write_shoal(program: Path, path: Path, name: str = "") -> str:
    """Writes the image of `shoal` for a user without rights: the program, the libraries that it needs, and the
    static programs beside it. Its name."""
    if not name:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        name = f"shoal.invalid/shoal:{version.split()[1]}"
    files = {
        "etc/passwd": (f"shoal:x:{USER}:{USER}::/:/sbin/nologin\n".encode(), 0o644),
        "etc/group": (f"shoal:x:{USER}:\n".encode(), 0o644),
        "usr/bin/shoal": (program.read_bytes(), 0o755),
    }
    # For pods whose image does not have the daemon, and for nodes. Both are static.
    for beside in map(program.with_name, ("shoal-envd", "shoal-runsc")):
        if beside.exists():
            files[beside.name] = (beside.read_bytes(), 0o755)
    for library in libraries(program):
        files[str(library).lstrip("/")] = (library.read_bytes(), 0o755)
    layer = Layer(directories={**parents(list(files)), "tmp": 0o1777}, files=files)
    path.parent.mkdir(parents=True, exist_ok=True)
    archive(path, name, layer, {
        "Entrypoint": ["/usr/bin/shoal"], "Env": ["PATH=/usr/bin"], "User": f"{USER}:{USER}", "WorkingDir": "/",
        "Labels": {"org.opencontainers.image.title": "shoal", "org.opencontainers.image.licenses": "Apache-2.0"},
    })
    return name


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    print("image:", write_shoal(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]), "in", sys.argv[2])
