"""What every suite stands on: one server that all tests share, and others on demand.

The server's data directory is kept between runs, so that the image `base` is made once. Workers
of pytest-xdist share the server of the process that started them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from .installation import Installation, share_images
from .shared import SETTINGS, SharedServer, data_directory, images, kill_all

SHARED = SharedServer()


def pytest_configure(config):
    if os.geteuid() != 0 and "CI" in os.environ:
        raise pytest.UsageError("sandboxes need root: run the conformance tests as root")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tells a worker of pytest-xdist where the shared server is."""
    server = SHARED.start()
    node.workerinput["server"] = {"port": server.port, "pid": server.process.pid, "keys": server.keys}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        return
    try:
        SHARED.stop()
    except AssertionError as mistake:
        session.config.get_terminal_writer().line(f"\n{mistake}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def shared(request) -> Installation:
    """The server that tests share. None of them may end it, or count its sandboxes."""
    told = getattr(request.config, "workerinput", {}).get("server")
    if told is None:
        return SHARED.start()
    installation = Installation(data_directory(), settings=SETTINGS, port=told["port"])
    installation.keys = told["keys"]
    return installation


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
        # Sandboxes outlive their server, and so does what is left of one that was being ended: the
        # next server ends it.
        installation.start()
        if not installation.tls:
            kill_all(installation)
        installation.stop()
    left = installation.all_gone()
    remove(installation.data)
    assert left == [], f"a server has left something behind: {left}"


def remove(data: Path) -> None:
    """Takes a data directory away, unless something is mounted in it."""
    if data.exists():
        mounts = Path("/proc/self/mountinfo").read_text()
        assert f" {data}/" not in mounts, f"still mounted below {data}"
        shutil.rmtree(data)
