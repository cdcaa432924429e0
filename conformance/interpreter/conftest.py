"""A server with the template for `run_code`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from e2b_code_interpreter import AsyncSandbox, Sandbox

from ..conftest import SERVERS, running
from ..sdk.conftest import Sdk, done, is_repeated
from .server import BUILD_SECONDS, InterpreterServer

SERVERS["interpreter"] = InterpreterServer()

HERE = Path(__file__).resolve().parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leaves out what an SDK does not change. The first case waits for the template, so it starts first."""
    if os.environ.get("SHOAL_TEST_PAIRS") != "all":
        left_out = [item for item in items if is_repeated(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    first = next((item for item in items if HERE in item.path.parents), None)
    if first is not None:
        first.add_marker(pytest.mark.timeout(BUILD_SECONDS + 120))


class Interpreter(Sdk):
    """One of the two SDKs, with the code interpreter's methods."""

    @property
    def Sandbox(self):
        return AsyncSandbox if self.name == "async" else Sandbox


@pytest.fixture(scope="session")
def server(request):
    """A server with the template."""
    return running(request, "interpreter")


@pytest.fixture(scope="module", params=["sync", "async"])
def sdk(request, server):
    """Each SDK for Python in turn."""
    made = Interpreter(request.param, server)
    yield made
    made.end()


@pytest.fixture(scope="module")
async def sandbox(sdk):
    """A sandbox that the tests of a module share. Tests must not harm it."""
    return await sdk.create(timeout=1800)


@pytest.fixture
def run(sandbox):
    """Runs code in the shared sandbox, which must succeed."""

    async def run_code(code: str, **more):
        execution = await done(sandbox.run_code(code, **more))
        assert execution.error is None, execution.error
        return execution

    return run_code
