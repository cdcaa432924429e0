"""The cases of the released SDKs against a server that parks sandboxes after a second. A plugin of pytest:

    conformance/run -p conformance.parked conformance/sdk/test_commands.py conformance/sdk/test_files.py

Before each case, idle sandboxes of the shared server get a moment to be parked, so that a case which meets a running
sandbox otherwise meets a parked one here. Cases that measure memory or time, or count what the driver does, are not
for this.
"""

from __future__ import annotations

import time

import pytest

from .shared import SETTINGS, SharedServer
from .conftest import SERVERS

#: A sandbox is parked as soon as it is idle for a second, however often it is woken.
PARKING = ["parking.after=1s", "parking.backoff=1", "parking.disk_room=64MiB"]

#: How long idle sandboxes get, in seconds: some are not idle, and the case begins all the same.
MOMENT = 3


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        SharedServer.settings = [*SETTINGS, *PARKING]


@pytest.fixture(autouse=True)
def idle_sandboxes_are_parked(request):
    """Waits until every sandbox is parked, for a moment at most."""
    server = SERVERS["shared"].installation
    if server is None or server.process is None:
        return
    from .hostile.machine import Call

    call, end = Call(server), time.monotonic() + MOMENT
    while time.monotonic() < end:
        status, told = call.get("/api/v1/sandbox")
        if status != 200 or all(sandbox["parked"] for sandbox in told["data"]):
            return
        time.sleep(0.1)
