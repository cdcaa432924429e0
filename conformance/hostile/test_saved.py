"""Saved sandboxes: damaged, on a full disk, exported and imported, after a restart."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest
from e2b import Sandbox

from ..installation import Installation, wait_until
from .conftest import SMALL, furnish, furnished, new_installation
from .machine import Call

#: Counts its input lines from 41 on, and keeps its pipe open.
COUNTER = "exec 4<>/tmp/fifo; n=41; while read line <&4; do n=$((n+1)); echo $n > /tmp/n; done"


@pytest.fixture(scope="module")
def server(scratch):
    with furnished(scratch, "saved", "disk.size=1GiB") as installation:
        yield installation


def count(inside: Sandbox) -> int:
    """The next number of a program that counts in its memory."""
    before = inside.commands.run("cat /tmp/n 2>/dev/null || echo 0").stdout
    inside.commands.run("echo more > /tmp/fifo", timeout=60)
    end = time.monotonic() + 60
    while (now := inside.commands.run("cat /tmp/n 2>/dev/null || echo 0").stdout) == before:
        assert time.monotonic() < end
    return int(now)


def hog(inside: Sandbox, mib: int):
    """Starts a program with this much written memory."""
    code = f"import os, time; b = os.urandom({mib} << 20); print(1, flush=True); time.sleep(999)"
    running = inside.commands.run(f"python3 -c '{code}'", background=True, timeout=0)
    for out, _, _ in running:
        if out:
            break
    return running


def counting(server: Installation, **more) -> Sandbox:
    """A sandbox with such a program."""
    inside = Sandbox.create(SMALL, timeout=600, **(server.options() | more))
    inside.commands.run("mkfifo /tmp/fifo")
    inside.commands.run(f"bash -c '{COUNTER}'", background=True, timeout=0)
    assert count(inside) == 42
    return inside


def snapshots(server: Installation) -> list[Path]:
    return sorted((server.data / "disk/.snapshots").iterdir())


@pytest.fixture
def taken(server):
    """A sandbox with a snapshot, and the directory of its data."""
    inside = counting(server)
    snapshot = inside.create_snapshot()
    (directory,) = snapshots(server)
    yield inside, snapshot.snapshot_id, directory
    inside.kill()
    Call(server).delete(f"/templates/{snapshot.snapshot_id}")
    assert snapshots(server) == []


def test_a_damaged_memory_is_refused_and_leaves_nothing(server, taken):
    inside, snapshot, directory = taken
    pages = directory / "memory/pages.img"
    good = pages.read_bytes()
    call = Call(server)
    for bad, word in (
        (good[: len(good) // 2], "its length"),
        (flipped(good), "its content"),
    ):
        pages.write_bytes(bad)
        status, answer = call.post("/v2/sandboxes", {"templateID": snapshot})
        assert status == 409 and "damaged" in answer["message"] and word in answer["message"]
        assert call.ids() == [inside.sandbox_id]
    pages.unlink()
    status, answer = call.post("/v2/sandboxes", {"templateID": snapshot})
    assert status == 409 and "not there" in answer["message"]
    (directory / "manifest.json").write_text("{}")
    status, answer = call.post("/v2/sandboxes", {"templateID": snapshot})
    assert status == 409 and "manifest" in answer["message"]
    wait_until(lambda: len(list((server.data / "sandboxes").iterdir())) == 1, 60, "nothing is left")
    assert inside.commands.run("echo on").stdout == "on\n"


def test_memory_of_another_build_or_machine_is_refused_with_a_reason(server, taken):
    _, snapshot, directory = taken
    manifest = directory / "manifest.json"
    good = json.loads(manifest.read_text())
    for change, word in (
        ({"runtime_build": "0" * 32}, "another build of runsc"),
        ({"machine": good["machine"] | {"architecture": "riscv64"}}, "riscv64"),
        ({"machine": good["machine"] | {"features": ["antigravity"]}}, "antigravity"),
        ({"layers": ["sha256:" + "0" * 64]}, "is not on this node"),
        ({"version": 99}, "of version 99"),
    ):
        manifest.write_text(json.dumps(good | change))
        status, answer = Call(server).post("/v2/sandboxes", {"templateID": snapshot})
        assert status in (409, 500) and word in answer["message"], answer
    manifest.write_text(json.dumps(good))


def test_a_full_disk_fails_a_save_and_harms_nothing(server):
    inside = counting(server)
    held = server.data / "disk/ballast"
    # A program whose memory takes more than the little space that is left.
    hogging = hog(inside, 48)
    # Deleted files of other tests are given back first, or there would be room again.
    for words in (("subvolume", "sync"), ("filesystem", "sync")):
        subprocess.run(["btrfs", *words, server.data / "disk"], check=True, capture_output=True, timeout=120)
    free = shutil.disk_usage(server.data / "disk").free
    with held.open("wb") as file:
        left = free - (16 << 20)
        while left > 0:
            file.write(bytes(min(left, 8 << 20)))
            left -= 8 << 20
    call = Call(server)
    try:
        for what in ("snapshots", "pause", "fork"):
            status, answer = call.post(f"/sandboxes/{inside.sandbox_id}/{what}", {})
            assert status == 507, (what, status, answer, server.log_tail())
            assert call.get(f"/sandboxes/{inside.sandbox_id}")[1]["state"] == "running"
            assert snapshots(server) == []
            assert list((server.data / "disk/.paused").iterdir()) == []
    finally:
        held.unlink()
    assert count(inside) == 43, "it has not noticed"
    inside.pause()
    assert count(Sandbox.connect(inside.sandbox_id, **server.options())) == 44
    inside.kill()


def test_a_paused_sandbox_costs_nothing_and_outlives_the_server(server):
    inside = counting(server)
    sandbox = inside.sandbox_id
    inside.pause()
    # The response comes when the save is complete; the old execution is removed afterwards.
    wait_until(lambda: server.processes(sandbox) == set(), 60, "its processes are gone")
    wait_until(lambda: not any(group.name == sandbox for group in server.groups()), 60, "its groups are gone")
    for _ in range(2):
        server.stop()
        # State that a reboot clears.
        shutil.rmtree(Path("/run/shoal") / server.instance, ignore_errors=True)
        server.start()
        assert Call(server).get(f"/sandboxes/{sandbox}")[1]["state"] == "paused"
    assert count(Sandbox.connect(sandbox, **server.options())) == 43
    # Killed, not stopped: the next server finds it unchanged.
    inside.pause()
    server.crash()
    server.start()
    assert count(Sandbox.connect(sandbox, **server.options())) == 44
    inside.kill()


def test_the_digests_of_a_paused_memory_follow_its_answer(server):
    inside = counting(server)
    inside.pause()
    directory = server.data / "disk/.paused" / inside.sandbox_id
    manifest, pages = directory / "manifest.json", directory / "memory/pages.img"

    def are_there() -> bool:
        return all("digest" in file for file in json.loads(manifest.read_text())["memory"])

    wait_until(are_there, 60, "the digests")
    complete = json.loads(manifest.read_text())
    server.crash()
    # As it is right after the answer.
    early = []
    for file in complete["memory"]:
        about = (directory / "memory" / file["name"]).stat()
        changed = divmod(about.st_ctime_ns, 10**9)
        early.append({"name": file["name"], "bytes": file["bytes"], "inode": {"number": about.st_ino, "changed": changed}})
    manifest.write_text(json.dumps(complete | {"memory": early}))
    server.start()
    wait_until(are_there, 60, "the digests")
    assert json.loads(manifest.read_text()) == complete

    server.crash()
    good = pages.read_bytes()
    # A digest shows the difference. Before there is one, the time of change does.
    for memory, word in ((complete["memory"], "its content"), (early, "changed after it was saved")):
        pages.write_bytes(flipped(good))
        manifest.write_text(json.dumps(complete | {"memory": memory}))
        server.start()
        status, answer = Call(server).post(f"/sandboxes/{inside.sandbox_id}/connect", {"timeout": 600})
        assert status == 409 and "pages.img is damaged" in answer["message"] and word in answer["message"], answer
        assert Call(server).get(f"/sandboxes/{inside.sandbox_id}")[1]["state"] == "paused"
        server.crash()
    pages.write_bytes(good)
    manifest.write_text(json.dumps(complete))
    server.start()
    assert count(Sandbox.connect(inside.sandbox_id, **server.options())) == 43
    inside.kill()


def test_a_snapshot_moves_to_another_installation(server, scratch):
    inside = counting(server)
    snapshot = inside.create_snapshot("carried")
    file = scratch / "carried.snapshot"
    native = "/api/v1/snapshots"
    call = Call(server)
    asked = {"snapshot": snapshot.snapshot_id, "path": str(file)}
    status, answer = call.post(f"{native}/export", asked)
    assert status == 409 and inside.sandbox_id in answer["message"], answer
    assert not file.exists(), "its memory has the token of a sandbox that is there"
    fill(inside)
    written = survey(inside)
    assert call.delete("/templates/carried")[0] == 204
    snapshot = inside.create_snapshot("carried")
    inside.kill()
    status, answer = call.post(f"{native}/export", asked)
    assert status in (200, 201), answer
    assert file.stat().st_size == answer["data"]["bytes"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert call.post(f"{native}/export", asked)[0] == 409, "no file is written over"
    other = new_installation(scratch / "carried", settings=["disk.size=1GiB"])
    furnish(other)
    try:
        there = Call(other)
        bad = scratch / "bad.snapshot"
        whole = file.read_bytes()
        for content in (whole[: len(whole) // 2], b"nonsense" * 100, flipped(whole)):
            bad.write_bytes(content)
            for more in ({}, {"trust": True}):
                status, answer = there.post(f"{native}/import", {"path": str(bad)} | more)
                assert status == 409, answer
                assert snapshots(other) == []
        # Its author is not this installation.
        status, answer = there.post(f"{native}/import", {"path": str(file)})
        assert status == 409 and "--trust" in answer["message"], answer
        assert snapshots(other) == []
        status, answer = there.post(f"{native}/import", {"path": str(file), "trust": True})
        assert status in (200, 201), answer
        assert answer["data"]["contents"] == "memory,filesystem"
        assert answer["data"]["snapshotID"] == "default/carried:default"
        clone = Sandbox.create("carried", **other.options())
        assert count(clone) == 43
        assert survey(clone) == written
        clone.kill()
        assert there.delete("/templates/carried")[0] == 204
    finally:
        other.stop()
        assert other.all_gone() == []
        other.remove()
    # The installation that exported it imports it without a warning.
    body = {"path": str(file), "name": "again"}
    assert call.post(f"{native}/import", body)[0] in (200, 201)
    clone = Sandbox.create("again", **server.options())
    assert count(clone) == 43
    clone.kill()
    for name in ("again", "carried"):
        assert call.delete(f"/templates/{name}")[0] == 204


def test_a_files_only_snapshot_moves_to_another_installation(server, scratch):
    """A sandbox of `runc`, whose files belong to users of its own user namespace."""
    inside = Sandbox.create("base", timeout=600, metadata={"shoal/runtime": "runc"}, **server.options())
    fill(inside)
    written = survey(inside)
    call = Call(server)
    status, taken = call.post(f"/sandboxes/{inside.sandbox_id}/snapshots", {"memory": False, "name": "files"})
    assert status == 201, taken
    file = scratch / "files.snapshot"
    native = "/api/v1/snapshots"
    asked = {"snapshot": taken["snapshotID"], "path": str(file)}
    assert call.post(f"{native}/export", asked)[0] in (200, 201)
    other = new_installation(scratch / "files", settings=["disk.size=1GiB"])
    furnish(other)
    try:
        there = Call(other)
        status, answer = there.post(f"{native}/import", {"path": str(file), "trust": True})
        assert status in (200, 201), answer
        clone = Sandbox.create("files", **other.options())
        assert survey(clone) == written
        clone.kill()
        assert there.delete("/templates/files")[0] == 204
    finally:
        other.stop()
        assert other.all_gone() == []
        other.remove()
    inside.kill()
    assert call.delete("/templates/files")[0] == 204


#: Attributes that are lost when an archive is made or unpacked without care.
FILL = r"""
set -e
mkdir -p /srv/deep && cd /srv
echo plain > plain && chown 1000:1001 plain && chmod 4751 plain
ln plain 'another name' && ln -s plain link && mkfifo pipe
echo ordinary > .wh.ordinary
truncate -s 64M sparse && echo end >> sparse
rm -r /etc/apt && mkdir /etc/apt && echo mine > /etc/apt/mine
rm /etc/issue
find /srv -depth -exec touch -h -d '2001-02-03 04:05:06.789' {} +
"""

#: Their visible effects; hidden files of the image must not be visible.
SURVEY = r"""
cd /srv
find . ! -type f -printf '%p %y %m %U:%G %l %T@\n' | sort
find . -type f -printf '%p %m %U:%G %s %n %T@\n' | sort
echo; cat plain link .wh.ordinary; test plain -ef 'another name' && echo one file
tail -c 4 sparse
find /etc/apt | sort; test ! -e /etc/issue && echo hidden
"""


def fill(inside: Sandbox) -> None:
    """Files of every kind, and hidden names of the image."""
    inside.commands.run(FILL, user="root", timeout=60)


def survey(inside: Sandbox) -> str:
    """Describes these files."""
    seen = inside.commands.run(SURVEY, user="root", timeout=60).stdout
    for word in ("one file", "end", "/etc/apt/mine", "hidden"):
        assert word in seen, seen
    return seen


def test_an_import_does_not_block_on_special_files(server, scratch):
    """A pipe or a device instead of the file, by its own name or behind a link."""
    pipe, link = scratch / "pipe.snapshot", scratch / "link.snapshot"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    call = Call(server)
    for path in (pipe, link, Path("/dev/zero"), scratch):
        begun = time.monotonic()
        status, _ = call.post("/api/v1/snapshots/import", {"path": str(path), "trust": True})
        assert status in (404, 409)
        assert time.monotonic() - begun < 30
    assert snapshots(server) == []


def test_a_hostile_import_is_refused_and_does_not_delay_a_stop(scratch):
    """Sealed by a stranger whom the admin trusts: its contents are checked all the same."""
    with furnished(scratch, "stranger", "disk.size=1GiB") as server:
        inside = Sandbox.create(SMALL, timeout=600, **server.options())
        snapshot = inside.create_snapshot("real")
        inside.kill()
        real, forged = scratch / "real.snapshot", scratch / "forged.snapshot"
        call = Call(server)
        asked = {"snapshot": snapshot.snapshot_id, "path": str(real)}
        assert call.post("/api/v1/snapshots/export", asked)[0] in (200, 201)
        assert call.delete("/templates/real")[0] == 204
        pipe = scratch / "pipe"
        os.mkfifo(pipe)
        victim = scratch / "victim"
        victim.mkdir()
        (victim / "work").write_text("safe")

        for change, word in (
            (lambda manifest: named(manifest, f"../../../../../../../..{pipe}"), "not the name of a file"),
            (lambda manifest: named(manifest, "/dev/zero"), "not the name of a file"),
        ):
            forge(real, forged, change)
            status, answer = call.post("/api/v1/snapshots/import", {"path": str(forged), "trust": True})
            assert status == 409 and word in answer["message"], answer
        for member in (
            {"name": "work", "type": tarfile.SYMTYPE, "linkname": str(victim)},
            {"name": "files", "type": tarfile.SYMTYPE, "linkname": str(victim)},
            {"name": "files/../work", "type": tarfile.DIRTYPE},
            {"name": "files/x", "type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 1},
            {"name": "files/x", "pax_headers": {"SCHILY.xattr.trusted.overlay.redirect": "/"}},
        ):
            # `files` itself is valid if the member is inside it.
            before = [{"name": "files", "type": tarfile.DIRTYPE, "mode": 0o755}]
            members = before * member["name"].startswith("files/") + [member]
            forge(real, forged, lambda manifest: manifest, members=members)
            status, answer = call.post("/api/v1/snapshots/import", {"path": str(forged), "trust": True})
            assert status == 409, (member, answer)
        assert (victim / "work").read_text() == "safe" and os.listdir(victim) == ["work"]
        assert snapshots(server) == []

        # An archive that takes minutes to read, and needs no space.
        forge(real, forged, lambda manifest: sized(manifest, 60 << 30), size=60 << 30)
        importing = threading.Thread(
            target=lambda: unanswered(call, {"path": str(forged), "trust": True}),
        )
        importing.start()
        wait_until(lambda: any(
            file.is_file() for new in snapshots(server) for file in new.glob("memory/*")
        ), 60, "the import")
        # A request's head has ten seconds; an import does not get longer.
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 40
        importing.join(60)
        server.start()
        assert snapshots(server) == [], "nothing is left of it"


def unanswered(call: Call, body: dict) -> None:
    """An import whose server is killed."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        call.post("/api/v1/snapshots/import", body)


def named(manifest: dict, name: str) -> dict:
    """A manifest with this name of its first memory file."""
    first, *rest = manifest["memory"]
    return manifest | {"memory": [first | {"name": name}, *rest]}


def sized(manifest: dict, size: int) -> dict:
    """A manifest with one memory file of this length."""
    return manifest | {"memory": [{"name": "pages.img", "bytes": size, "digest": "0" * 64}]}


def forge(real: Path, target: Path, change, members=(), size: int | None = None) -> None:
    """A stranger's export: another manifest, other files, or a memory file that is a single hole."""
    with tarfile.open(real) as source, target.open("wb") as out:
        forged = tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT)
        head = json.load(source.extractfile("export.json")) | {"key": "0" * 16}
        manifest = change(json.load(source.extractfile("manifest.json")))
        for name, text in (("export.json", head), ("manifest.json", manifest)):
            content = json.dumps(text).encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            forged.addfile(info, io.BytesIO(content))
        forged.addfile(source.getmember("envd"), source.extractfile("envd"))
        if size is not None:
            info = tarfile.TarInfo("memory/pages.img")
            info.size = size
            out.write(info.tobuf(tarfile.PAX_FORMAT))
            out.truncate(out.tell() + size)
            return
        for file in manifest["memory"]:
            member = source.getmember(f"memory/{file['name']}") if "/" not in file["name"] else None
            if member is not None:
                forged.addfile(member, source.extractfile(member))
        for member in members or [{"name": "files", "type": tarfile.DIRTYPE, "mode": 0o755}]:
            info = tarfile.TarInfo(member["name"])
            for key, value in member.items():
                setattr(info, key, value)
            forged.addfile(info)
        forged.close()
        out.write(b"shoal-seal " + b"0" * 64 + b" " + b"0" * 64 + b"\n")


def test_a_final_snapshot_has_all_acknowledged_writes(server):
    """Killing a sandbox right after its snapshot loses no acknowledged write."""
    inside = Sandbox.create("base", timeout=600, **server.options())
    # More memory takes longer to save, so that more could be lost.
    hog(inside, 150)
    acknowledged = []

    def write() -> None:
        writer = Sandbox.connect(inside.sandbox_id, **server.options())
        while True:
            number = len(acknowledged)
            try:
                writer.files.write(f"/home/user/written/{number}", "x", request_timeout=30)
            except Exception:  # noqa: BLE001 - however it ends, it is over
                return
            acknowledged.append(number)

    writing = threading.Thread(target=write)
    writing.start()
    wait_until(lambda: len(acknowledged) > 10, 60, "writing")
    snapshot = inside.create_snapshot(headers={"x-e2b-kruise-snapshot-keep-running": "false"})
    writing.join(60)
    assert not writing.is_alive()
    clone = Sandbox.create(snapshot.snapshot_id, timeout=60, **server.options())
    there = {int(entry.name) for entry in clone.files.list("/home/user/written")}
    assert set(acknowledged) <= there, (len(acknowledged), len(there))
    clone.kill()
    assert Call(server).delete(f"/templates/{snapshot.snapshot_id}")[0] == 204


def flipped(whole: bytes) -> bytes:
    """One bit in the middle, where the memory is."""
    at = len(whole) // 2
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def test_exports_and_imports_require_an_admin_key(server):
    stranger = Call(server, team="other")
    for what, body in (
        ("export", {"snapshot": "x", "path": "/tmp/x"}), ("import", {"path": "/etc/passwd"}),
    ):
        assert stranger.post(f"/api/v1/snapshots/{what}", body)[0] == 403
    assert Call(server).post("/api/v1/snapshots/import", {"path": "relative"})[0] == 400
    assert Call(server).post("/api/v1/snapshots/import", {"path": "/nowhere/at/all"})[0] == 404


def test_a_clone_of_a_hostile_original_touches_nothing_of_the_machine(server):
    """Root of the original prepares the files in which a clone gets its name."""
    inside = Sandbox.create(SMALL, timeout=600, **server.options())
    victim = Path("/etc/hostname")
    before = victim.read_bytes() if victim.exists() else None
    inside.commands.run(
        "rm -f /etc/hostname /etc/hosts /etc/machine-id;"
        " ln -s ../../../../../../../../../../etc/hostname /etc/hostname;"
        " mkfifo /etc/hosts; mkdir /etc/machine-id", user="root",
    )
    snapshot = inside.create_snapshot()
    begun = time.monotonic()
    clone = Sandbox.create(snapshot.snapshot_id, **server.options())
    assert time.monotonic() - begun < 40
    assert clone.commands.run("echo on").stdout == "on\n"
    assert (victim.read_bytes() if victim.exists() else None) == before
    for sandbox in (inside, clone):
        sandbox.kill()
    Call(server).delete(f"/templates/{snapshot.snapshot_id}")


def test_a_template_sets_what_is_kept_by_default(server):
    server.add_template("files", persistentContents=["ip", "filesystem"])
    inside = Sandbox.create("files", timeout=600, **server.options())
    call = Call(server)
    path = f"/sandboxes/{inside.sandbox_id}"
    status, taken = call.post(f"{path}/snapshots", {})
    assert (status, taken["shoal"]["contents"]) == (201, "filesystem")
    assert call.delete(f"/templates/{taken['snapshotID']}")[0] == 204
    status, taken = call.post(f"{path}/snapshots", {"memory": True})
    assert (status, taken["shoal"]["contents"]) == (201, "memory,filesystem")
    assert call.delete(f"/templates/{taken['snapshotID']}")[0] == 204
    assert call.post(f"{path}/pause", {})[0] == 204
    assert call.get(path)[1]["pauseMode"] == "filesystem"
    inside.kill()


def test_memory_is_not_reduced_below_its_use(server):
    inside = Sandbox.create("base", timeout=600, **server.options())
    hog(inside, 300)
    call = Call(server)
    path = f"/api/v1/sandbox/{inside.sandbox_id}/resources"
    status, answer = call("PATCH", path, {"memory": 128})
    assert status == 409 and "less than the sandbox uses" in answer["message"], answer
    for memory in ("2Gi", 700):
        status, answer = call("PATCH", path, {"memory": memory})
        assert status == 200, answer
    assert inside.commands.run("echo on").stdout == "on\n"
    assert call.get(f"/sandboxes/{inside.sandbox_id}")[1]["memoryMB"] == 700
    inside.kill()


def test_the_layers_of_a_snapshot_stay(server):
    """An image that only a snapshot uses is not removed."""
    inside = Sandbox.create(SMALL, timeout=600, **server.options())
    snapshot = inside.create_snapshot()
    inside.kill()
    call = Call(server)
    image = call.get("/api/v1/templates/base")[1]["data"]["image"]
    status, answer = call.delete(f"/api/v1/images?name={image}")
    assert status == 409, answer
    clone = Sandbox.create(snapshot.snapshot_id, timeout=60, **server.options())
    assert clone.commands.run("echo on").stdout == "on\n"
    clone.kill()
    assert call.delete(f"/templates/{snapshot.snapshot_id}")[0] == 204


def test_an_expired_snapshot_takes_its_data_along(server):
    inside = Sandbox.create(SMALL, timeout=600, **server.options())
    inside.create_snapshot(headers={"x-e2b-kruise-snapshot-ttl": "1s"})
    wait_until(lambda: snapshots(server) == [], 60, "the end of a snapshot")
    inside.kill()
