"""Sandboxes that are parked while they are idle: saved with their memory and ended. Their clients do not notice.

`conformance/parked.py` runs the cases of all other files in this way.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest
from e2b import CommandExitException, Sandbox
from e2b.exceptions import RateLimitException, SandboxException

from ..hostile.machine import Call
from ..installation import Installation, wait_until
from ..parked import PARKING

#: Time for a park, on a busy machine.
SOON = 60

#: How many wake at once. `SHOAL_TEST_STORM=200` needs 24 GiB of memory.
MANY = int(os.environ.get("SHOAL_TEST_STORM", "6"))


@dataclass
class Parking:
    """A server that parks sandboxes after a second."""

    server: Installation

    def create(self, **more) -> Sandbox:
        return Sandbox.create(**(self.server.options() | {"timeout": 900} | more))

    def native(self, sandbox: Sandbox) -> dict:
        status, told = Call(self.server).get(f"/api/v1/sandbox/{sandbox.sandbox_id}")
        assert status == 200, told
        return told["data"]

    def is_parked(self, sandbox: Sandbox) -> bool:
        shown = self.native(sandbox)
        assert shown["status"] == "running", shown
        return shown["parked"] and not self.server.processes(sandbox.sandbox_id)

    def wait(self, *sandboxes: Sandbox) -> None:
        """Waits until they are parked and none of their processes is left."""
        for sandbox in sandboxes:
            wait_until(lambda: self.is_parked(sandbox), SOON, "parked")


@pytest.fixture(scope="module")
def parking(another) -> Parking:
    # A storm exceeds the default limits of a team.
    room = [f"disk.size={4 + MANY // 10}GiB", f"limits.memory_per_team={64 + MANY}GiB"]
    return Parking(another("parked", [*room, "runtime.allowed=any", *PARKING]))


def test_commands_and_files_wake_a_sandbox_whose_answers_do_not_change(parking):
    sandbox = parking.create(envs={"OWN": "1"}, metadata={"k": "v"})
    sandbox.commands.run("echo in memory > /dev/shm/note")
    before = sandbox.get_info()
    parking.wait(sandbox)
    shown = sandbox.get_info()
    assert (shown.state, shown.started_at, shown.end_at) == (before.state, before.started_at, before.end_at)
    assert sandbox.sandbox_id in {listed.sandbox_id for listed in Sandbox.list(**parking.server.options()).next_items()}
    assert parking.native(sandbox)["parked"], "a look does not wake it"
    assert sandbox.commands.run("cat /dev/shm/note; echo $OWN").stdout == "in memory\n1\n"
    assert not parking.native(sandbox)["parked"]
    parking.wait(sandbox)
    sandbox.files.write("/tmp/written", "x" * 100_000)
    parking.wait(sandbox)
    assert len(sandbox.files.read("/tmp/written")) == 100_000
    parking.wait(sandbox)
    assert Sandbox.connect(sandbox.sandbox_id, **parking.server.options()).is_running()
    after = sandbox.get_info()
    assert (after.started_at, after.end_at) == (before.started_at, before.end_at)
    sandbox.kill()


def test_a_sandbox_asks_for_it_by_its_label(shared):
    parking = Parking(shared)
    silent, asks = parking.create(), parking.create(metadata={"shoal/parking": "1s"})
    asks.commands.run("echo in memory > /dev/shm/note")
    parking.wait(asks)
    assert not parking.native(silent)["parked"]
    assert asks.commands.run("cat /dev/shm/note").stdout == "in memory\n"
    with pytest.raises(SandboxException, match="400.*shoal/parking.*must be `off`, or an idle time"):
        parking.create(metadata={"shoal/parking": "soon"})
    for sandbox in (silent, asks):
        sandbox.kill()


def test_what_needs_no_program_does_not_wake_it(parking):
    sandbox = parking.create()
    # Without a measurement there are no samples.
    busy = sandbox.commands.run("sleep 1000", background=True)
    wait_until(lambda: sandbox.get_metrics(), SOON, "a sample")
    busy.kill()
    parking.wait(sandbox)
    wait_until(lambda: sandbox.get_metrics()[-1].mem_used == 0, SOON, "a sample of a parked sandbox")
    before = sandbox.get_info().end_at
    sandbox.set_timeout(1000)
    assert sandbox.get_info().end_at > before
    assert parking.is_parked(sandbox)
    sandbox.kill()
    assert not Sandbox.list(**parking.server.options()).next_items()


def test_programs_that_run_are_not_cut_off(parking):
    sandbox = parking.create()
    # The client of one stays connected, that of the next has gone, and no client waits for the last.
    handle = sandbox.commands.run("sleep 3; echo one > /tmp/one", background=True)
    left = sandbox.commands.run("sleep 3; echo two > /tmp/two", background=True)
    left.disconnect()
    sandbox.commands.run("(setsid sh -c 'sleep 3; echo three > /tmp/three' > /dev/null 2>&1 &)")
    handle.wait()
    parking.wait(sandbox)
    assert sandbox.files.read("/tmp/one") + sandbox.files.read("/tmp/two") == "one\ntwo\n"
    assert sandbox.files.read("/tmp/three") == "three\n"
    sandbox.kill()


def test_an_upload_that_trickles_in_is_not_cut_off(parking):
    sandbox = parking.create()
    parking.wait(sandbox)
    parts = [b"part %d;" % number for number in range(20)]

    def trickle():
        for part in parts:
            yield part
            # Longer than a sandbox must be idle, all in all.
            time.sleep(0.2)

    headers = {
        "E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983", "Content-Type": "application/octet-stream",
        "X-Access-Token": sandbox._envd_access_token or "",
    }
    written = httpx.post(
        f"{parking.server.url}/files", params={"path": "/tmp/slow", "username": "user"}, headers=headers,
        content=trickle(), timeout=60,
    )
    assert written.status_code == 200, written.text
    parking.wait(sandbox)
    assert sandbox.files.read("/tmp/slow", format="bytes") == b"".join(parts)
    sandbox.kill()


def test_a_full_disk_parks_nobody_and_loses_nothing(another):
    parking = Parking(another("full", ["disk.size=2GiB", "runtime.allowed=any", *PARKING]))
    parked, awake = parking.create(), parking.create()
    for sandbox in (parked, awake):
        sandbox.commands.run("echo in memory > /dev/shm/note; head -c 32M /dev/urandom > /dev/shm/more")
    busy = awake.commands.run("sleep 1000", background=True)
    parking.wait(parked)
    # Each fills its own disk, until the team's share of the server's disk is full.
    fillers = []
    with pytest.raises(SandboxException, match="507"):
        while len(fillers) < 10:
            fillers.append(parking.create(metadata={"shoal/parking": "off"}))
            with pytest.raises(CommandExitException, match="No space|quota"):
                fillers[-1].commands.run("head -c 4G /dev/urandom > /tmp/large", timeout=120)
    busy.kill()
    # Time for several looks.
    threading.Event().wait(5)
    assert not parking.native(awake)["parked"]
    for sandbox in (parked, awake):
        assert sandbox.commands.run("cat /dev/shm/note").stdout == "in memory\n"
    for filler in fillers:
        filler.kill()
    parking.wait(parked, awake)
    for sandbox in (parked, awake):
        assert sandbox.commands.run("cat /dev/shm/note").stdout == "in memory\n"
        sandbox.kill()


def test_idle_sandboxes_make_room_in_memory_and_then_creates_are_refused(another):
    parking = Parking(another("short", ["disk.size=2GiB", "runtime.allowed=any"]))
    patient, stays = parking.create(metadata={"shoal/parking": "30m"}), parking.create()
    patient.commands.run("echo in memory > /dev/shm/note")
    paused = parking.create()
    paused.pause()
    parking.server.stop()
    # More than any machine has: it is always short.
    parking.server.settings.append("limits.free_memory=900TiB")
    parking.server.start()
    parking.wait(patient)
    assert not parking.native(stays)["parked"]
    with pytest.raises(RateLimitException, match="short of memory.*pause or kill"):
        parking.create()
    with pytest.raises(RateLimitException, match="short of memory"):
        Sandbox.connect(paused.sandbox_id, **parking.server.options())
    assert paused.get_info().state == "paused"
    # For its users it runs, so it is not refused.
    assert patient.commands.run("cat /dev/shm/note").stdout == "in memory\n"
    for sandbox in (patient, stays, paused):
        sandbox.kill()


def test_a_port_and_a_signed_url_wake_it(parking):
    sandbox = parking.create(secure=True)
    sandbox.files.write("/tmp/signed", "by url")
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8080"}
    parking.wait(sandbox)
    closed = httpx.get(parking.server.url, headers=headers, timeout=60)
    assert closed.status_code == 502 and "port is not open" in closed.text
    parking.wait(sandbox)
    url = sandbox.download_url("/tmp/signed", use_signature_expiration=60)
    assert httpx.get(url, timeout=60).text == "by url"
    parking.wait(sandbox)
    # Its daemon refuses, as that of a running sandbox does.
    refused = httpx.get(f"{parking.server.url}/envs", headers=headers | {"E2b-Sandbox-Port": "49983"}, timeout=60)
    assert refused.status_code == 401, refused.text
    sandbox.kill()


def test_snapshots_pauses_and_deadlines_of_parked_sandboxes(parking):
    options = parking.server.options()
    sandbox = parking.create()
    sandbox.files.write("/tmp/kept", "kept")
    parking.wait(sandbox)
    snapshot = sandbox.create_snapshot()
    parking.wait(sandbox)
    clone = parking.create(template=snapshot.snapshot_id)
    assert clone.files.read("/tmp/kept") == "kept"
    clone.kill()
    assert parking.native(sandbox)["parked"], "a clone of its snapshot does not need it"
    sandbox.pause()
    assert sandbox.get_info().state == "paused"
    assert Sandbox.connect(sandbox.sandbox_id, **options).files.read("/tmp/kept") == "kept"
    sandbox.kill()
    short = parking.create(timeout=20)
    parking.wait(short)
    call, path = Call(parking.server), f"/sandboxes/{short.sandbox_id}"
    wait_until(lambda: call.get(path)[0] == 404, SOON, "ended at its deadline")


def test_a_crash_of_the_server_loses_no_parked_sandbox_and_all_wake_at_once(parking):
    sandboxes = [parking.create() for _ in range(MANY)]
    for number, sandbox in enumerate(sandboxes):
        sandbox.files.write("/tmp/number", str(number))
    parking.wait(*sandboxes)
    parking.server.crash()
    parking.server.start()
    for sandbox in sandboxes:
        assert parking.is_parked(sandbox)

    def read(sandbox: Sandbox) -> str:
        return sandbox.files.read("/tmp/number")

    with ThreadPoolExecutor(len(sandboxes)) as pool:
        assert list(pool.map(read, sandboxes)) == [str(number) for number in range(MANY)]
    for sandbox in sandboxes:
        sandbox.kill()
