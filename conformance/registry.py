"""A real registry on loopback, with an image built from the package mirror.

`python -m conformance.registry` makes its images, for suites that run side by side.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import tarfile
import uuid
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from .installation import wait_until
from .shared import WORK

#: The distribution of the image, according to the machine's own apt configuration.
SUITE = "bookworm"

#: The account of a registry with authentication: password `sesame`.
ACCOUNT = ("alice", "sesame")
HTPASSWD = "alice:$2y$04$abcdefghijklmnopqrstuuinwY/tkBVrn3xrxQI/TgnMHhkvl85RW\n"

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


#: The packages that templates need: a build over an image with them installs nothing.
PROGRAMS = (
    "bash", "ca-certificates", "curl", "git", "iproute2", "jq", "less", "openssh-server", "procps", "sudo",
)


def bare_debian() -> Path:
    """The layer of a Debian with little more than a package manager, built once."""
    return bootstrapped("bare")


def small_debian() -> Path:
    """The layer of a Debian with the programs of every template, built once."""
    return bootstrapped("small", f"--include={','.join(PROGRAMS)}")


def bootstrapped(name: str, *options: str) -> Path:
    layer = WORK / f"{SUITE}-{name}.tar.gz"
    if not layer.exists():
        plain, half = WORK / f"{SUITE}-{name}.tar", layer.with_suffix(".part")
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=required", "--format=tar", *options, SUITE, str(plain)],
            check=True,
        )
        with plain.open("rb") as source, gzip.open(half, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        plain.unlink()
        half.rename(layer)
    return layer


def layer_of(files: dict[str, str]) -> bytes:
    """One layer with these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def described(data: bytes, media_type: str) -> dict:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


@dataclass
class Certificate:
    """A server certificate, its key, and the certificate of its CA, in PEM."""

    authority: Path
    shown: Path
    key: Path


@dataclass
class Registry:
    """Debian's `docker-registry`, with or without an account, over HTTP or TLS."""

    directory: Path
    guarded: bool = False
    host: str = "127.0.0.1"
    tls: Certificate | None = None
    address: str = ""
    process: subprocess.Popen | None = field(default=None, repr=False)
    #: The received requests, soon after each: `GET /v2/…`.
    asked: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "htpasswd").write_text(HTPASSWD)
        auth = f"auth:\n  htpasswd:\n    realm: shoal\n    path: {self.directory}/htpasswd\n"
        config = self.directory / "config.yml"
        config.write_text(
            f"version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {self.directory}\n"
            f"http:\n  addr: {self.host}:0\n{self._tls()}{auth if self.guarded else ''}"
        )
        self.process = subprocess.Popen(
            ["docker-registry", "serve", str(config)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for line in self.process.stderr:
            if found := re.search(r"listening on ([0-9.:]+)", line):
                self.address = found.group(1)
                break
        assert self.address, "the registry did not start"
        # The pipe must be drained, or the registry would block.
        Thread(target=self.process.stderr.read, daemon=True).start()
        Thread(target=self._listen, daemon=True).start()

    def _tls(self) -> str:
        if self.tls is None:
            return ""
        return f"  tls:\n    certificate: {self.tls.shown}\n    key: {self.tls.key}\n"

    def _connect(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(self.address, timeout=60)
        context = ssl.create_default_context(cafile=str(self.tls.authority))
        return http.client.HTTPSConnection(self.address, timeout=60, context=context)

    def _listen(self) -> None:
        for line in self.process.stdout:
            if found := re.search(r'"(GET /v2/\S+) HTTP', line):
                self.asked.append(found.group(1))

    def heard(self) -> list[str]:
        """The requests received until now. It writes down each after its answer: one of ours comes last."""
        mark = f"/v2/?mark={uuid.uuid4()}"
        self.request("GET", mark)
        wait_until(lambda: f"GET {mark}" in self.asked, 60, "what the registry was asked")
        return [asked for asked in self.asked if "?mark=" not in asked]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def request(self, method: str, path: str, body=b"", kind: str = "") -> tuple[int, dict]:
        connection = self._connect()
        headers = {"Content-Type": kind} if kind else {}
        if self.guarded:
            headers["Authorization"] = "Basic " + b64encode(":".join(ACCOUNT).encode()).decode()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status, dict(answer.getheaders())
        finally:
            connection.close()

    def blob(self, repository: str, data: bytes, media_type: str) -> dict:
        """Pushes a blob, and returns its descriptor for a manifest."""
        about = described(data, media_type)
        status, headers = self.request("POST", f"/v2/{repository}/blobs/uploads/")
        assert status == 202
        place = headers["Location"].split(self.address, 1)[-1]
        joint = "&" if "?" in place else "?"
        status, _ = self.request("PUT", f"{place}{joint}digest={about['digest']}", data, "application/octet-stream")
        assert status == 201
        return about

    def add(self, reference: str, files: dict[str, str], architecture: str = "", **config) -> str:
        """Pushes an image `repository:tag` with only these files; returns its name."""
        repository, _, tag = reference.partition(":")
        return self.push(repository, tag, [layer_of(files)], architecture, **config)

    def push(self, repository: str, tag: str, blobs: list[bytes], architecture: str = "", **config) -> str:
        """Pushes an image of compressed layers; returns its name."""
        architecture = architecture or {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
        plain = [f"sha256:{hashlib.sha256(gzip.decompress(blob)).hexdigest()}" for blob in blobs]
        about = {
            "architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": plain},
        }
        manifest = {
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": self.blob(repository, json.dumps(about).encode(), CONFIG),
            "layers": [self.blob(repository, blob, LAYER) for blob in blobs],
        }
        path = f"/v2/{repository}/manifests/{tag}"
        assert self.request("PUT", path, json.dumps(manifest).encode(), MANIFEST)[0] == 201
        return f"{self.address}/{repository}:{tag}"


if __name__ == "__main__":
    # Once, before suites that run side by side ask for it.
    small_debian()
    bare_debian()
