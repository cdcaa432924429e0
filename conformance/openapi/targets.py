"""Targets of generated requests, so that they get further than "not found"."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import httpx

from ..installation import Installation

#: A registry without a server: test traffic stays on the machine.
NO_IMAGE = "127.0.0.1:1/none"


@dataclass
class Targets:
    """A sandbox and a template of the tenant, made anew when a request has ended them."""

    server: Installation
    #: The key of the tenant, who is no admin.
    key: str
    http: httpx.Client = field(init=False)
    sandbox_id: str | None = None
    build: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        self.http = httpx.Client(
            base_url=self.server.url, headers={"X-API-Key": self.key}, timeout=90
        )

    def sandbox(self) -> str:
        """A sandbox that runs."""
        shown = self.http.get(f"/api/v1/sandbox/{self.sandbox_id}") if self.sandbox_id else None
        if shown is not None and shown.status_code == 200:
            if shown.json()["data"]["status"] == "running":
                return self.sandbox_id
            self.http.delete(f"/sandboxes/{self.sandbox_id}")
        # Generated requests may have filled the team's share.
        self.end_sandboxes()
        made = self.http.post("/v2/sandboxes", json={"templateID": "base", "timeout": 600})
        assert made.status_code == 201, made.text
        self.sandbox_id = made.json()["sandboxID"]
        return self.sandbox_id

    def announced(self) -> tuple[str, str]:
        """A template that is announced, and its build, which waits for its steps."""
        if self.build is None:
            made = self.http.post("/v3/templates", json={"name": "openapi-target"})
            assert made.status_code == 202, made.text
            self.build = (made.json()["templateID"], made.json()["buildID"])
        return self.build

    def end_sandboxes(self) -> None:
        """Ends the tenant's sandboxes, paused ones too."""
        deadline = time.monotonic() + 240
        while listed := self.http.get("/v2/sandboxes").json():
            for sandbox in listed:
                self.http.delete(f"/sandboxes/{sandbox['sandboxID']}")
            assert time.monotonic() < deadline, listed
        self.sandbox_id = None


def aim(case, targets: Targets) -> None:
    """Puts what exists in the place of generated names."""
    path, names = case.operation.path, case.path_parameters
    if not isinstance(names, dict):
        return
    if "build" in names:
        names["id"], names["build"] = targets.announced()
    elif "id" in names and ("/sandboxes/" in path or "sandbox/" in path) and "/pool/" not in path:
        names["id"] = targets.sandbox()
    elif "id" in names and "/templates/" in path:
        names["id"] = targets.announced()[0]


def keep_inside(value):
    """A body that names no registry of the world."""
    if isinstance(value, list):
        return [keep_inside(item) for item in value]
    if not isinstance(value, dict):
        return value
    images = ("fromImage", "image")
    return {
        name: NO_IMAGE if name in images and isinstance(item, str) and item else keep_inside(item)
        for name, item in value.items()
    }
