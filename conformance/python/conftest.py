"""What the cases of the Python SDK stand on: one server, a sandbox for each module."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from e2b import AsyncSandbox, Sandbox

from ..installation import Installation
from .halves import done
from .wire import Wire

HERE = Path(__file__).parent

#: A template whose sandboxes have 64 MiB of disk.
TINY = "tiny"

#: What a case may take; most take less than a second.
SECONDS = 60


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE not in item.path.parents:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
        if os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="sandboxes need root"))


def new_installation(data: Path, *more: str, **changes) -> Installation:
    """An installation that has the images and is not started."""
    data.mkdir(parents=True)
    images = os.environ.get("SHOAL_TEST_IMAGES")
    if images:
        # Nothing ever writes into a layer, so its files can be shared; the lock cannot.
        copied = subprocess.run(["cp", "-al", images, str(data / "images")], capture_output=True)
        if copied.returncode != 0:
            shutil.rmtree(data / "images", ignore_errors=True)
            subprocess.run(["cp", "-a", "--reflink=auto", images, str(data / "images")], check=True)
        (data / "images" / "lock").unlink(missing_ok=True)
    settings = ["disk.size=2GiB", "network.warm_slots=2", *more]
    return Installation(data, settings=settings, **changes)


@pytest.fixture(scope="session")
def scratch():
    directory = Path(tempfile.mkdtemp(prefix="shoal-python-"))
    # Root of a user namespace has to pass through.
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def server(scratch):
    """The server that most cases share."""
    installation = new_installation(scratch / "shared")
    installation.start()
    installation.stop()
    installation.add_team("other")
    installation.add_template(TINY, disk=64)
    installation.start()
    yield installation
    end(installation)


def end(installation: Installation) -> None:
    """Ends what a suite has left running, then the server, and sees that nothing stays."""
    wire = Wire(installation)
    for sandbox in wire.ids():
        wire.delete(f"/sandboxes/{sandbox}")
    installation.stop()
    left = installation.leftovers(server=True)
    installation.remove()
    assert left == [], "the suite has left something behind"


@pytest.fixture(scope="session")
def options(server) -> dict:
    """What the SDK has to be told."""
    return server.options()


@pytest.fixture(scope="session")
def wire(server) -> Wire:
    return Wire(server)


@pytest.fixture(scope="module")
def sandbox(options):
    """The sandbox of a module: no case may harm it."""
    made = Sandbox.create(timeout=900, **options)
    yield made
    made.kill()


@pytest.fixture(scope="module")
async def asandbox(options, sandbox):
    """The same sandbox through the other SDK."""
    return await AsyncSandbox.connect(sandbox.sandbox_id, timeout=900, **options)


@pytest.fixture(params=["sync", "async"])
def flavour(request) -> str:
    """Which half of the SDK a case is about: most are about both, one after the other."""
    return request.param


@pytest.fixture
def sdk(flavour):
    return Sandbox if flavour == "sync" else AsyncSandbox


@pytest.fixture
def box(flavour, sandbox, asandbox):
    """The module's sandbox, through either half."""
    return sandbox if flavour == "sync" else asandbox


@pytest.fixture
async def fresh(sdk, options):
    """A sandbox of one case, which may end it."""
    made = await done(sdk.create(timeout=120, **options))
    yield made
    await done(made.kill())


@pytest.fixture
def directory(request, sandbox) -> str:
    """A directory of one case in the module's sandbox."""
    path = f"/home/user/{request.node.name.translate(str.maketrans('[]/ ', '____'))}"
    sandbox.files.make_dir(path)
    return path
