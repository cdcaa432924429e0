"""One way to say a case for the sync and the async SDK, and for both runtimes."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field

import pytest
from e2b import AsyncSandbox, Sandbox

from ..installation import Installation

RUNTIMES = ("runsc", "runc")

#: The pairs that are run: SDK and runtime meet on the wire only, so each is run once.
#: `SHOAL_TEST_PAIRS=all` runs the whole product.
PAIRS = {("sync", "runsc"), ("async", "runc")}

#: Marks of cases that one of the two SDKs runs: what they use of an SDK is in the cases of both.
REMOTE = ("kernel", "server")


def pytest_collection_modifyitems(config, items):
    """Starts the slowest module first. Leaves out the pairs that are not in `PAIRS`, and repetitions."""
    items.sort(key=lambda item: item.path.name != "test_images.py")
    if os.environ.get("SHOAL_TEST_PAIRS") == "all":
        return
    left_out = [item for item in items if pair(item) not in PAIRS | {None} or is_repeated(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pair(item) -> tuple[str, str] | None:
    """SDK and runtime of a case that has both."""
    values = getattr(item, "callspec", None) and item.callspec.params
    if not values or not {"sdk", "runtime"} <= values.keys():
        return None
    return values["sdk"], values["runtime"]


def is_repeated(item) -> bool:
    """Whether a case is about what SDKs reach over the wire only, and runs with the other SDK."""
    values = getattr(item, "callspec", None) and item.callspec.params
    return bool(values) and values.get("sdk") == "sync" and any(map(item.get_closest_marker, REMOTE))


async def done(value):
    """The value of a call of either SDK."""
    return await value if inspect.isawaitable(value) else value


@dataclass
class Sdk:
    """One of the two SDKs for Python, configured for the server."""

    name: str
    server: Installation
    made: list[tuple[str, str]] = field(default_factory=list)

    @property
    def Sandbox(self):
        return AsyncSandbox if self.name == "async" else Sandbox

    async def create(self, template: str | None = None, runtime: str | None = None, **more):
        """A sandbox that is removed after the module, unless its test kills it."""
        options = self.server.options(more.pop("team", "default")) | more
        if runtime:
            options["metadata"] = {"shoal/runtime": runtime} | options.get("metadata", {})
        sandbox = await done(self.Sandbox.create(template, **options))
        self.made.append((sandbox.sandbox_id, options["api_key"]))
        return sandbox

    async def call(self, name: str, *args, **more):
        """A method of the class: `call("kill", id)`."""
        return await done(getattr(self.Sandbox, name)(*args, **self.server.options(), **more))

    async def listed(self, **more) -> list:
        """All pages of a list."""
        pages = self.Sandbox.list(**self.server.options(), **more)
        found = []
        while pages.has_next:
            found += await done(pages.next_items())
        return found

    def end(self) -> None:
        for sandbox, key in self.made:
            Sandbox.kill(sandbox, **(self.server.options() | {"api_key": key}))


@pytest.fixture(scope="module", params=["sync", "async"])
def sdk(request, shared):
    """Each SDK for Python in turn."""
    made = Sdk(request.param, shared)
    yield made
    made.end()


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request) -> str:
    """Each OCI runtime in turn."""
    return request.param


@pytest.fixture(scope="module")
async def sandbox(sdk, runtime):
    """A sandbox that the tests of a module share. Tests must not harm it."""
    return await sdk.create(runtime=runtime, timeout=900)

