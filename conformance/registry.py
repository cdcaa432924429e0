"""A registry of images on loopback, as far as a pull asks: what is in it is made up here."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def layer_of(files: dict[str, str]) -> bytes:
    """One layer with these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


class Registry:
    """Serves images of one layer, and remembers which of them were asked for."""

    def __init__(self) -> None:
        #: By `repository:tag`.
        self.manifests: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        #: Repositories that are shown to nobody.
        self.private: set[str] = set()
        #: Every manifest that was asked for.
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, reference: str, files: dict[str, str], architecture: str | None = None, **config) -> None:
        """An image, `repository:tag`, with these files."""
        layer = layer_of(files)
        own = {"aarch64": "arm64"}.get(platform.machine(), "amd64")
        document = json.dumps({
            "architecture": architecture or own, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }).encode()
        described = [
            {"mediaType": kind, "digest": digest(data), "size": len(data)}
            for kind, data in ((CONFIG, document), (LAYER, layer))
        ]
        self.blobs |= {digest(data): data for data in (document, layer)}
        self.manifests[reference] = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:],
        }).encode()

    def answer(self, call: BaseHTTPRequestHandler) -> None:
        _, _, rest = call.path.partition("/v2/")
        repository, kind, name = (rest.rsplit("/", 2) + ["", ""])[:3]
        if repository in self.private:
            return self.send(call, 401, b"", "application/json")
        if kind == "manifests":
            self.asked.append(f"{repository}:{name}")
            by_digest = {digest(data): data for data in self.manifests.values()}
            found = self.manifests.get(f"{repository}:{name}") or by_digest.get(name)
            return self.send(call, 200 if found else 404, found or b"", MANIFEST)
        if kind == "blobs":
            found = self.blobs.get(name)
            return self.send(call, 200 if found else 404, found or b"", "application/octet-stream")
        return self.send(call, 200, b"{}", "application/json")

    @staticmethod
    def send(call: BaseHTTPRequestHandler, status: int, body: bytes, kind: str) -> None:
        call.send_response(status)
        call.send_header("Content-Type", kind)
        call.send_header("Content-Length", str(len(body)))
        if kind == MANIFEST and body:
            call.send_header("Docker-Content-Digest", digest(body))
        call.end_headers()
        if call.command != "HEAD":
            call.wfile.write(body)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
