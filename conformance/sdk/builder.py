"""Builds templates with either SDK."""

from __future__ import annotations

import httpx
from e2b import AsyncTemplate, Template

from .conftest import done


class Builder:
    """Builds with the SDK in turn, and removes what it built."""

    def __init__(self, sdk):
        self.sdk, self.made = sdk, set()
        self.Template = AsyncTemplate if sdk.name == "async" else Template
        self.logs: list[str] = []

    def name(self, name: str) -> str:
        return f"{name}-{self.sdk.name}"

    async def build(self, template, name: str, **more):
        self.logs = []
        self.made.add(self.name(name.split(":")[0]))
        name = ":".join([self.name(name.split(":")[0]), *name.split(":")[1:]])
        options = {"cpu_count": 1, "memory_mb": 256} | self.options | more
        note = lambda entry: self.logs.append(entry.message)
        return await done(self.Template.build(template, name, on_build_logs=note, **options))

    def end(self) -> None:
        """Removes the sandboxes and the templates."""
        self.sdk.end()
        for name in self.made:
            self.api("DELETE", f"/templates/{name}")

    @property
    def options(self) -> dict:
        return {name: value for name, value in self.sdk.server.options().items() if name != "sandbox_url"}

    async def call(self, method: str, *args, **more):
        return await done(getattr(self.Template, method)(*args, **self.options, **more))

    def did(self, what: str) -> bool:
        """Whether a log line reports that a step ran and was not cached."""
        return any(what in line and not line.startswith("CACHED") for line in self.logs)

    def api(self, method: str, path: str, body=None, team: str = "default"):
        server = self.sdk.server
        headers = {"X-API-Key": server.keys[team]}
        return httpx.request(method, server.url + path, json=body, headers=headers, timeout=60)


async def out(sandbox, command: str, **more) -> str:
    return (await done(sandbox.commands.run(command, **more))).stdout
