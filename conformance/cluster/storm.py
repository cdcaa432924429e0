"""Claims, pools and templates for tests that disturb the operator."""

from __future__ import annotations

import contextlib
import http.client
import random
import time

from .api import EXTENSIONS, Api, Refused
from .images import SHELL

#: The members of the pool.
POOL = 4


def extension(kind: str, name: str, spec: dict) -> dict:
    return {"apiVersion": f"{EXTENSIONS}/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def template(name: str, image: str = SHELL, **spec) -> dict:
    """A template for pods of the fake node. The scheduler would wait for volumes, which the test cluster has not."""
    containers = [{"name": "main", "image": image}]
    pod = {"spec": {"containers": containers, "terminationGracePeriodSeconds": 0, "nodeName": "fake-0"}}
    return extension("SandboxTemplate", name, {"podTemplate": pod} | spec)


def pool(name: str, of: str, replicas: int, **spec) -> dict:
    return extension("SandboxWarmPool", name, {"replicas": replicas, "sandboxTemplateRef": {"name": of}} | spec)


def claim(name: str, of: str, **spec) -> dict:
    return extension("SandboxClaim", name, {"warmPoolRef": {"name": of}} | spec)


def volumes() -> list[dict]:
    """A volume claim, of which the test cluster provides the object only."""
    requests = {"storage": "1Mi"}
    return [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}}]


class Users:
    """Users who create and delete claims, in a namespace of their own."""

    def __init__(self, api: Api, seed: int) -> None:
        self.api = api
        self.random = random.Random(seed)
        self.claims: list[str] = []
        self.created = 0

    def begin(self) -> None:
        """Creates what claims need. Each sandbox has a service and a volume claim, so that both can be orphaned."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.api.namespace}}
        self.insist(lambda: self.api.create("/api/v1/namespaces", namespace))
        spec = {"service": True, "volumeClaimTemplates": volumes()}
        self.insist(lambda: self.api.create(self.api.path("sandboxtemplates"), template("storm", **spec)))
        self.insist(lambda: self.api.create(self.api.path("sandboxwarmpools"), pool("storm", "storm", POOL)))

    def insist(self, write) -> None:
        """Repeats a write until the API server takes it. It may be down."""
        end = time.monotonic() + 60
        while True:
            try:
                write()
                return
            except Refused as refused:
                if refused.status == 409:
                    return
                if refused.status < 429 or time.monotonic() > end:
                    raise
            except (OSError, http.client.HTTPException):
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def claim(self) -> None:
        name = f"claim-{self.created}"
        self.created += 1
        self.insist(lambda: self.api.create(self.api.path("sandboxclaims"), claim(name, "storm")))
        self.claims.append(name)

    def release(self) -> None:
        name = self.claims.pop(self.random.randrange(len(self.claims)))
        self.insist(lambda: self.api.delete(self.api.path("sandboxclaims", name)))

    def churn(self, seconds: float) -> None:
        """Creates and deletes claims for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if len(self.claims) > 8 or (self.claims and self.random.random() < 0.35):
                self.release()
            else:
                self.claim()
            time.sleep(self.random.uniform(0, 0.3))

    def end(self) -> None:
        """Deletes everything."""
        with contextlib.suppress(Refused):
            self.api.delete(self.api.path("sandboxwarmpools", "storm"))
        for name in self.claims:
            self.api.delete(self.api.path("sandboxclaims", name))
        self.api.delete(f"/api/v1/namespaces/{self.api.namespace}")
