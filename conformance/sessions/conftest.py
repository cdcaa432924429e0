"""A server with the template of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..built import BUILD_SECONDS
from ..conftest import SERVERS, running
from ..sdk.test_native import Native
from .server import TemplateServer

SERVERS["sessions"] = TemplateServer()

HERE = Path(__file__).resolve().parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The first case waits for the template."""
    first = next((item for item in items if HERE in item.path.parents), None)
    if first is not None:
        first.add_marker(pytest.mark.timeout(BUILD_SECONDS + 120))


@pytest.fixture(scope="session")
def server(request):
    """A server with the template."""
    return running(request, "sessions")


@pytest.fixture(scope="module")
def native(server):
    return Native(server)


@pytest.fixture(scope="module")
def session(native):
    """A session that the tests of a module share. Tests must not harm its machine."""
    made = native("POST", "/sessions", 201, json={})["id"]
    yield made
    native("DELETE", f"/sessions/{made}")


@pytest.fixture
def own(native):
    """A session of a test's own."""
    made = native("POST", "/sessions", 201, json={})["id"]
    yield made
    native("DELETE", f"/sessions/{made}")
