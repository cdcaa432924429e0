"""Fixtures of every suite: one server that all tests share, and others on demand.

The server's data directory is kept between runs, so that the image `base` is made once. Workers
of pytest-xdist share the server of the process that started them.
"""

from __future__ import annotations

import os

import pytest

from .installation import Installation, share_images
from .shared import SharedServer, data_directory, images, kill_all, remove

#: The servers of a run by name. A suite may add its own.
SERVERS = {"shared": SharedServer()}


def pytest_configure(config):
    if os.geteuid() != 0 and "CI" in os.environ:
        raise pytest.UsageError("sandboxes need root: run the conformance tests as root")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tells a worker of pytest-xdist where the servers are."""
    for name, server in SERVERS.items():
        installation = server.start()
        node.workerinput[name] = {"port": installation.port, "keys": installation.keys}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        return
    for server in SERVERS.values():
        try:
            server.stop()
        except AssertionError as mistake:
            session.config.get_terminal_writer().line(f"\n{mistake}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def running(request, name: str) -> Installation:
    """A server of the run: this process's, or the one of the process that started the workers."""
    told = getattr(request.config, "workerinput", {}).get(name)
    return SERVERS[name].known(**told) if told else SERVERS[name].start()


@pytest.fixture(scope="session")
def shared(request) -> Installation:
    """The server that tests share. None of them may end it, or count its sandboxes."""
    return running(request, "shared")


@pytest.fixture(scope="module")
def another(request):
    """Starts servers of a module's own: `another("name", ["limits.sandboxes=2"])`.

    They have the images of the shared server, and are gone with the module: their end is checked
    as that of the shared one.
    """
    started = []

    def start(name: str, settings=(), **more) -> Installation:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        data = data_directory().parent / f"other-{worker}-{name}"
        remove(data)
        share_images(images(), data)
        installation = Installation(
            data, settings=["disk.size=1GiB", "network.warm_slots=2", *settings], **more
        )
        started.append(installation)
        installation.start()
        return installation

    yield start
    for installation in started:
        end(installation)


def end(installation: Installation) -> None:
    if installation.process is not None:
        installation.stop()
    if installation.leftovers():
        # Sandboxes outlive their server, and so do those that it was ending: the next server ends them.
        installation.start()
        if not installation.tls:
            kill_all(installation)
        installation.stop()
    left = installation.all_gone()
    remove(installation.data)
    assert left == [], f"a server has left something behind: {left}"


@pytest.fixture(scope="module")
def chromium():
    """The machine's Chromium."""
    # Few suites need it, and its import takes time.
    from .ui import browser

    with browser.chromium() as started:
        yield started
