"""A client of the API server for tests that send much: JSON over connections that stay open.

`kubectl` costs a process for each request. This client has one connection for each thread that uses it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable

from .control_plane import ControlPlane

CORE = "agents.x-k8s.io"
EXTENSIONS = "extensions.agents.x-k8s.io"


class Refused(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """A client with the administrator's rights, for one namespace."""

    def __init__(self, cluster: ControlPlane, namespace: str = "default") -> None:
        self.namespace = namespace
        self.address, self.port = cluster.address, cluster.port
        directory = cluster.authority.directory
        self.tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        self.tls.load_cert_chain(directory / "admin.crt", directory / "admin.key")
        self.local = threading.local()

    def connect(self, timeout: float = 60) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, self.port, context=self.tls, timeout=timeout)

    def path(self, kind: str, name: str = "", version: str = "v1beta1") -> str:
        """The path of a kind, given by its plural, or of one object of it."""
        if kind == "sandboxes":
            base = f"/apis/{CORE}/{version}"
        elif kind.startswith("sandbox"):
            base = f"/apis/{EXTENSIONS}/{version}"
        elif kind == "networkpolicies":
            base = "/apis/networking.k8s.io/v1"
        else:
            base = "/api/v1"
        return f"{base}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def send(self, method: str, path: str, body: bytes | None, content_type: str) -> tuple[int, bytes]:
        headers = {"Content-Type": content_type} if body is not None else {}
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = self.connect()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self.local.connection = None
            raise

    def request(self, method: str, path: str, body: dict | None = None, content_type="application/json") -> dict:
        """An object of the API server. Raises `Refused` for an error, and `OSError` without an answer."""
        sent = None if body is None else json.dumps(body).encode()
        status, answer = self.send(method, path, sent, content_type)
        if status >= 300:
            raise Refused(status, answer.decode(errors="replace")[:500])
        return json.loads(answer)

    def get(self, path: str) -> dict:
        return self.request("GET", path)

    def find(self, path: str) -> dict | None:
        """The object, if it exists."""
        try:
            return self.get(path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def items(self, kind: str) -> list[dict]:
        """The objects of a kind."""
        return self.get(self.path(kind))["items"]

    def create(self, path: str, body: dict) -> dict:
        return self.request("POST", path, body)

    def patch(self, path: str, change: dict) -> dict:
        return self.request("PATCH", path, change, "application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Deletes an object. It may be gone already."""
        try:
            self.request("DELETE", path, {"propagationPolicy": "Background"})
        except Refused as refused:
            if refused.status != 404:
                raise

    def text(self, path: str) -> str:
        status, answer = self.send("GET", path, None, "")
        if status >= 300:
            raise Refused(status, answer.decode(errors="replace")[:500])
        return answer.decode()


class Watch:
    """Calls `see(type, object, time)` for each change of a kind, in a thread of its own, until it is closed.

    An API server with much to do ends a watch that falls behind: another one begins then, with all objects.
    """

    def __init__(self, api: Api, path: str, see: Callable[[str, dict, float], None]) -> None:
        self.see, self.api, self.path = see, api, path
        self.closed = False
        self.open()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def open(self) -> None:
        self.connection = self.api.connect(timeout=3600)
        self.connection.request("GET", f"{self.path}?watch=1", headers={"Accept": "application/json"})
        self.answer = self.connection.getresponse()
        if self.answer.status != 200:
            raise Refused(self.answer.status, self.answer.read().decode(errors="replace")[:500])
        self.socket = self.connection.sock

    def run(self) -> None:
        while not self.closed:
            try:
                for line in self.answer:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    self.see(event["type"], event["object"], time.monotonic())
            except (OSError, http.client.HTTPException, ValueError):
                # It ended in the middle of an object.
                pass
            self.connection.close()
            while not self.closed:
                try:
                    self.open()
                    break
                except (OSError, http.client.HTTPException, Refused):
                    time.sleep(0.2)

    def close(self) -> None:
        self.closed = True
        # `close` alone does not wake the thread that reads.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.connection.close()
