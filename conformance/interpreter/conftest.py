"""A server with the template for `run_code`."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from e2b_code_interpreter import AsyncSandbox, Sandbox

from ..conftest import remove
from ..installation import Installation, program, share_images
from ..sdk.conftest import Sdk, done
from ..shared import WORK, SETTINGS, images, kill_all

TEMPLATE = "code-interpreter-v1"

#: How long the template may take to be built, packages fetched.
BUILD_SECONDS = 900

HERE = Path(__file__).resolve().parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The first case waits for the template: the first of those that are run."""
    first = next((item for item in items if HERE in item.path.parents), None)
    if first is not None:
        first.add_marker(pytest.mark.timeout(BUILD_SECONDS + 120))


class Interpreter(Sdk):
    """One of the two SDKs, with the code interpreter's methods."""

    @property
    def Sandbox(self):
        return AsyncSandbox if self.name == "async" else Sandbox


def daemon_digest() -> str:
    return hashlib.sha256(program().with_name("shoal-envd").read_bytes()).hexdigest()


def build(server: Installation, *words: str) -> subprocess.CompletedProcess:
    """`shoal template build` of the installation's own template."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "E2B_"))}
    return subprocess.run(
        [str(program()), "template", "build", TEMPLATE, *words],
        env=clean | {"SHOAL_URL": server.url, "SHOAL_DATA": str(server.data)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS,
    )


@pytest.fixture(scope="session")
def server():
    """The server, kept between runs: what was built is built once, unless the daemon is another,
    which the template's memory has in it."""
    data = WORK / "interpreter"
    stamp, digest = data / "daemon", daemon_digest()
    if not stamp.exists() or stamp.read_text() != digest:
        remove(data)
    share_images(images(), data)
    installation = Installation(data, settings=[*SETTINGS, "disk.size=5GiB"])
    installation.start()
    try:
        built = build(installation)
        assert built.returncode == 0, built.stderr[-4000:]
        stamp.write_text(digest)
        yield installation
    finally:
        kill_all(installation)
        installation.stop()
    left = installation.all_gone()
    assert left == [], f"the server has left something behind: {left}"
    if os.environ.get("CI"):
        # Nobody runs again here, and what follows needs the room.
        remove(data)


@pytest.fixture(scope="module", params=["sync", "async"])
def sdk(request, server):
    """Each SDK for Python in turn."""
    made = Interpreter(request.param, server)
    yield made
    made.end()


@pytest.fixture(scope="module")
async def sandbox(sdk):
    """A sandbox that the tests of a module share: none of them may harm it."""
    return await sdk.create(timeout=1800)


@pytest.fixture
def run(sandbox):
    """Runs code in the shared sandbox, which has to end well."""

    async def run_code(code: str, **more):
        execution = await done(sandbox.run_code(code, **more))
        assert execution.error is None, execution.error
        return execution

    return run_code
