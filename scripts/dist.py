"""Packages of a build: what people install.

    python3 scripts/dist.py PROGRAMS OUT

takes `shoal`, `shoal-envd` and `shoal-runsc` from the directory PROGRAMS, and writes into OUT:

    shoal-VERSION-x86_64-linux.tar.gz   programs, `install.sh`, unit of systemd, completions, manual pages, documents
    shoal_VERSION_amd64.deb             the same for Debian and Ubuntu; needs dpkg-deb
    shoal-VERSION-image.tar             image of the operator and the server in a cluster, as an OCI archive
    shoal-VERSION.tgz                   Helm chart
    shoal-VERSION.cdx.json              bill of materials: every crate of Cargo.lock, as CycloneDX
    SHA256SUMS                          digests of them

Equal programs make equal bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from scripts import oci_archive

ROOT = Path(__file__).resolve().parent.parent

#: The programs. The last two are for machines inside, and are found beside the first.
PROGRAMS = ("shoal", "shoal-envd", "shoal-runsc")

#: Documents for users without a network.
DOCUMENTS = ("README.md", "SECURITY.md", "COMPATIBILITY.md", "CHANGELOG.md", "LICENSE")

#: Where each shell looks for completions, below a prefix.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/shoal",
    "zsh": "share/zsh/vendor-completions/_shoal",
    "fish": "share/fish/vendor_completions.d/shoal.fish",
}

#: The program's place in the unit.
IN_UNIT = "/usr/local/bin/shoal"

#: Time stamps of packages: those of the sources would differ between checkouts.
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

CONTROL = """\
Package: shoal
Version: {version}
Architecture: {architecture}
Maintainer: Shoal <shoal@shoal.invalid>
Installed-Size: {kilobytes}
Depends: libc6 (>= {libc}), libgcc-s1
Recommends: nftables, btrfs-progs, mmdebstrap, mount, runc
Section: admin
Priority: optional
Description: sandboxes for AI agents
 Isolated, disposable Linux computers that start in milliseconds, are driven by
 the SDKs that agents use, and keep their memory across a pause.
 .
 Nothing starts by itself: "systemctl enable --now shoal" starts the server.
"""

#: A file: its contents and its mode.
Files = dict[str, tuple[bytes, int]]


def says(program: Path, *words: str) -> bytes:
    return subprocess.run([program, *words], stdout=subprocess.PIPE, check=True).stdout


def version_of(program: Path) -> str:
    return says(program, "--version").decode().split()[1]


def programs(directory: Path, below: str) -> Files:
    missing = [name for name in PROGRAMS if not (directory / name).is_file()]
    if missing:
        sys.exit(f"{directory} has no {' and no '.join(missing)}: run `make build`")
    return {f"{below}/{name}": ((directory / name).read_bytes(), 0o755) for name in PROGRAMS}


def completions(program: Path) -> Files:
    return {path: (says(program, "completions", shell), 0o644) for shell, path in COMPLETIONS.items()}


def manual(program: Path) -> Files:
    with tempfile.TemporaryDirectory() as pages:
        says(program, "man", pages)
        # As in packages of Debian.
        return {
            f"share/man/man1/{page.name}.gz": (gzip.compress(page.read_bytes(), mtime=EPOCH), 0o644)
            for page in sorted(Path(pages).iterdir())
        }


def shared(program: Path) -> Files:
    """The files below `share` of a prefix."""
    return completions(program) | manual(program)


def unit(program: str) -> tuple[bytes, int]:
    """The unit for a program elsewhere, without the comment about how to install it by hand."""
    text = (ROOT / "packaging" / "shoal.service").read_text()
    assert f"ExecStart={IN_UNIT} " in text
    return text[text.index("[Unit]"):].replace(f"ExecStart={IN_UNIT} ", f"ExecStart={program} ").encode(), 0o644


def documents(below: str) -> Files:
    return {f"{below}/{name}": ((ROOT / name).read_bytes(), 0o644) for name in DOCUMENTS}


def tar(files: Files) -> bytes:
    """An archive whose bytes follow from the files alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, (data, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, EPOCH
            archive.addfile(entry, io.BytesIO(data))
    level = int(os.environ.get("SHOAL_DIST_LEVEL", "9"))
    return gzip.compress(packed.getvalue(), compresslevel=level, mtime=EPOCH)


def tarball(directory: Path, version: str, out: Path) -> Path:
    root = f"shoal-{version}"
    # The unit is the one to install by hand: its first lines say how.
    files = programs(directory, "bin") | documents("share/doc/shoal") | shared(directory / "shoal")
    files["shoal.service"] = ((ROOT / "packaging" / "shoal.service").read_bytes(), 0o644)
    files["install.sh"] = ((ROOT / "packaging" / "install.sh").read_bytes(), 0o755)
    path = out / f"{root}-{platform.machine()}-linux.tar.gz"
    path.write_bytes(tar({f"{root}/{name}": file for name, file in files.items()}))
    return path


def newest_libc(program: bytes) -> str:
    """The oldest C library that has all symbols which the program asks for."""
    asked = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", program)}
    if b"GLIBC_ABI_DT_RELR" in program:
        asked.add((2, 36))
    return "{}.{}".format(*max(asked, default=(2, 31)))


def package(directory: Path, version: str, out: Path) -> Path | None:
    if shutil.which("dpkg-deb") is None:
        print("dist: skipped: the package for Debian needs dpkg-deb", file=sys.stderr)
        return None
    files = programs(directory, "usr/lib/shoal") | documents("usr/share/doc/shoal")
    files |= {f"usr/{path}": file for path, file in shared(directory / "shoal").items()}
    files["usr/lib/systemd/system/shoal.service"] = unit("/usr/bin/shoal")
    architecture = oci_archive.ARCHITECTURES[platform.machine()]
    control = CONTROL.format(
        version=version, architecture=architecture, libc=newest_libc(files["usr/lib/shoal/shoal"][0]),
        kilobytes=sum(len(data) for data, _ in files.values()) >> 10,
    )
    path = out / f"shoal_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary, "root")
        for name, (data, mode) in (files | {"DEBIAN/control": (control.encode(), 0o644)}).items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(mode)
        (root / "usr/bin").mkdir()
        # It finds the other programs where the link leads.
        (root / "usr/bin/shoal").symlink_to("../lib/shoal/shoal")
        for directory, _, _ in os.walk(root):
            os.chmod(directory, 0o755)
        level = os.environ.get("SHOAL_DIST_LEVEL", "9")
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", f"-z{level}", "--build", root, path]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return path


def chart(version: str, out: Path) -> Path:
    source = ROOT / "deploy" / "helm"
    files = {
        str(path.relative_to(source)): (path.read_bytes(), 0o644)
        for path in (source / "shoal").rglob("*") if path.is_file()
    }
    path = out / f"shoal-{version}.tgz"
    path.write_bytes(tar(files))
    return path


def component(package: dict) -> dict:
    name, version = package["name"], package["version"]
    found = {"type": "library", "name": name, "version": version, "purl": f"pkg:cargo/{name}@{urllib.parse.quote(version)}"}
    if "checksum" in package:
        found["hashes"] = [{"alg": "SHA-256", "content": package["checksum"]}]
    return found


def materials(version: str, out: Path) -> Path:
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    listed = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "name": "shoal", "version": version}},
        # Those without a source are our own crates.
        "components": [component(package) for package in packages if "source" in package],
    }
    path = out / f"shoal-{version}.cdx.json"
    path.write_text(json.dumps(listed, indent=1) + "\n")
    return path


def main(directory: Path, out: Path) -> None:
    # Refuses an incomplete archive.
    programs(directory, "bin")
    out.mkdir(parents=True, exist_ok=True)
    version = version_of(directory / "shoal")
    image = out / f"shoal-{version}-image.tar"
    oci_archive.write_shoal(directory / "shoal", image)
    made = [
        tarball(directory, version, out), package(directory, version, out), image, chart(version, out), materials(version, out),
    ]
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(filter(None, made))
    )
    (out / "SHA256SUMS").write_text(sums)
    for path in filter(None, made):
        print(path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
