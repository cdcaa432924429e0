"""Fixtures of the attacker suite: its own installation, two tenants, small sandboxes."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import Sandbox

from ..installation import Installation, mount_points, share_images
from ..shared import images
from .fake_internet import RESOLVER, FakeInternet
from .machine import Call

#: A template whose sandboxes have few resources, which are quickly exhausted.
SMALL = "small"

#: Far below what a machine has, far above what a sandbox needs to answer.
LIMITS = {"memory": 256, "disk": 128, "pids": 256, "cpu": 1000}
WORDS = {"memory": "memoryMB", "disk": "diskSizeMB", "pids": "pids", "cpu": "cpuMilli"}

RUNTIMES = ("runsc", "runc")

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Skips without root, because sandboxes need it."""
    for item in items:
        if item.get_closest_marker("timeout") is None and item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(600))
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="sandboxes need root"))


def new_installation(data: Path, **changes) -> Installation:
    """An installation with images that is not started."""
    data.mkdir(parents=True)
    share_images(images(), data)
    settings = ["disk.size=2GiB", "network.warm_slots=4", "runtime.allowed=any"]
    return Installation(data, settings=settings + changes.pop("settings", []), **changes)


def furnish(installation: Installation) -> None:
    """Creates the second tenant and the small template in a new installation."""
    installation.start()
    installation.add_team("other")
    installation.add_template(SMALL, **{WORDS[name]: limit for name, limit in LIMITS.items()})


@contextmanager
def furnished(scratch: Path, name: str, *settings: str, **changes):
    """A separate installation for one test, which may stop and start it; removed afterwards."""
    installation = new_installation(scratch / name, settings=list(settings), **changes)
    furnish(installation)
    yield installation
    if installation.process is None:
        installation.start()
    for sandbox in Call(installation).ids():
        Call(installation).delete(f"/sandboxes/{sandbox}")
    installation.stop()
    if installation.all_gone():
        # Some tests take away what a clearing needs. Then the next start clears.
        installation.start()
        installation.stop()
    left = installation.all_gone()
    installation.remove()
    assert left == [], f"a server has left something behind: {left}"


@pytest.fixture(scope="session")
def scratch():
    # On the file system of the images, which are shared by hard links.
    beside = images().parent.parent
    beside.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="hostile-", dir=beside))
    # It stays closed to others: root of a user namespace does not traverse it.
    yield directory
    if any(point.startswith(f"{directory}/") for point in mount_points()):
        print(f"{directory} stays: something is mounted below")
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def internet():
    """A network that looks like the internet and is not."""
    with FakeInternet() as fake:
        yield fake


@pytest.fixture(scope="session")
def server(scratch):
    """The server that all tests share, except those that stop it.

    It listens on every address, as one that is hardened least would, and asks a name server at a
    private address, as those of most networks are.
    """
    installation = new_installation(
        scratch / "shared", settings=[f"network.dns={RESOLVER}"], listen="0.0.0.0"
    )
    furnish(installation)
    yield installation
    for sandbox in Call(installation).ids():
        Call(installation).delete(f"/sandboxes/{sandbox}")
    installation.stop()
    left = installation.all_gone()
    installation.remove()
    assert left == [], "the suite has left something behind"


@pytest.fixture(scope="session", params=RUNTIMES)
def runtime(request) -> str:
    return request.param


def create(server: Installation, runtime: str | None = None, template: str = SMALL, **more):
    """Creates a sandbox through the SDK for `team`."""
    options = server.options(more.pop("team", "default"))
    metadata = {"shoal/runtime": runtime} if runtime else {}
    return Sandbox.create(template, metadata=metadata, **more, **options)


@pytest.fixture(scope="module")
def sandbox(server, runtime):
    """A sandbox that the tests of a module share. Tests must not harm it."""
    made = create(server, runtime, timeout=900)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def bystander(server):
    """Another tenant's sandbox, which must not be affected."""
    made = create(server, "runc", team="other", timeout=900)
    made.files.write("secret.txt", "bystander")
    yield made
    made.kill()


@pytest.fixture
def fresh(server, runtime):
    """A sandbox of one test, which may harm it."""
    made = create(server, runtime)
    yield made
    made.kill()
