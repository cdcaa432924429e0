"""The machine loses its power right after the server has acknowledged a save.

The data directory lies on a file system in a file. The contents of that file at a moment are those that a disk
would hold if the power went at that moment: everything that was written and not synced is still in
the kernel's memory, and not in the file. So a copy of the file, taken at once after the answer, is
the machine after the fault, and the next server is started on it.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import Sandbox

from ..installation import Installation, mount_points, wait_until
from .conftest import SMALL, furnish, new_installation
from .machine import Call

pytestmark = pytest.mark.alone

#: Space for the images, and for the saves of three small sandboxes.
SIZE = "5G"

#: How often the power fails until no other program has synced everything just before.
ATTEMPTS = 5


def do(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


class SyncedByOthers(Exception):
    """Another program has synced all file systems of the machine, so the copy shows nothing."""


class PowerSupply:
    """A file system in a file, which loses unsynced writes when the power fails."""

    def __init__(self, directory: Path):
        self.file, self.after = directory / "disk", directory / "disk.after"
        self.point = directory / "mounted"

    def mount(self) -> None:
        # By itself the file system writes nothing before the test is over: half of that in the copy
        # would be a fault of the copy.
        do("mount", "-o", "loop,commit=300", self.file, self.point)

    def make(self, kind: str) -> None:
        self.point.mkdir(parents=True)
        do("truncate", "-s", SIZE, self.file)
        do(f"mkfs.{kind}", "-q", self.file)
        self.mount()

    def cut(self) -> None:
        """Copies the current contents of the disk."""
        unsynced = self.point / "unsynced"
        unsynced.write_text("x")
        do("cp", "--sparse=always", self.file, self.after)

    def come_back(self) -> None:
        """Restores the contents at the power failure."""
        do("umount", self.point)
        self.after.replace(self.file)
        self.mount()
        if (self.point / "unsynced").exists():
            raise SyncedByOthers

    def remove(self) -> None:
        if str(self.point) in mount_points():
            do("umount", self.point)
        shutil.rmtree(self.file.parent)


@contextmanager
def powered(scratch: Path, kind: str):
    """A power supply, and an installation with its data behind it, on this file system."""
    power = PowerSupply(scratch / "power")
    power.make(kind)
    installation = new_installation(power.point / "data")
    furnish(installation)
    # This test copied the images, not the server, which syncs those that it creates.
    do("sync", "--file-system", power.point)
    try:
        yield power, installation
    finally:
        end_all(installation)
        power.remove()


def end_all(installation: Installation) -> None:
    """Kills the sandboxes and the server, and waits until all resources are gone."""
    if installation.process is None:
        installation.start()
    call = Call(installation)
    for sandbox in call.ids():
        call.delete(f"/sandboxes/{sandbox}")
    installation.stop()
    left = installation.all_gone()
    assert left == [], left


def furnished_sandbox(installation: Installation) -> tuple[Sandbox, int]:
    """A sandbox with a process in its memory and a file."""
    made = Sandbox.create(SMALL, timeout=3600, **installation.options())
    made.files.write("mark", "here")
    process = made.commands.run("sleep 100000", background=True, timeout=0).pid
    return made, process


def is_whole(sandbox: Sandbox, process: int) -> None:
    assert process in [one.pid for one in sandbox.commands.list()]
    assert sandbox.files.read("mark") == "here"
    assert sandbox.commands.run("echo alive").stdout == "alive\n"


@pytest.mark.parametrize("kind, memory", [("ext4", True), ("ext4", False), ("btrfs", True)])
def test_answered_saves_survive_a_power_failure(scratch, kind, memory):
    for _ in range(ATTEMPTS):
        try:
            return save_and_lose_power(scratch, kind, memory)
        except SyncedByOthers:
            continue
    return pytest.fail("each copy has what was never synced: nothing was shown")


def save_and_lose_power(scratch: Path, kind: str, memory: bool) -> None:
    with powered(scratch, kind) as (power, installation):
        call = Call(installation)
        paused, its_process = furnished_sandbox(installation)
        taken_of, of_snapshot = furnished_sandbox(installation)
        running, _ = furnished_sandbox(installation)
        headers = {"x-e2b-kruise-snapshot-persistent-contents": "memory,filesystem" if memory else "filesystem"}
        status, snapshot = call.post(f"/sandboxes/{taken_of.sandbox_id}/snapshots", {}, headers=headers)
        assert status == 201, snapshot
        status, said = call.post(f"/sandboxes/{paused.sandbox_id}/pause", {"memory": memory})
        assert status == 204, said
        # Its follow-up work must finish first, or the copy would contain half of it.
        installation.crash()
        power.cut()

        end_all(installation)
        power.come_back()
        installation.start()

        for gone in (running, taken_of):
            wait_until(
                lambda: call.get(f"/sandboxes/{gone.sandbox_id}")[0] == 404, 60, "the end of what ran"
            )
        again = Sandbox.connect(paused.sandbox_id, **installation.options())
        clone = Sandbox.create(snapshot["snapshotID"], **installation.options())
        if memory:
            is_whole(again, its_process)
            is_whole(clone, of_snapshot)
        for sandbox in (again, clone):
            assert sandbox.files.read("mark") == "here"
            sandbox.kill()
        assert call.delete(f"/templates/{snapshot['snapshotID']}")[0] == 204
        wait_until(lambda: not installation.leftovers(), 60, f"clearing: {installation.leftovers()}")
