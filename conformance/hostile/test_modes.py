"""Another user of the machine can read nothing of an installation."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest
from e2b import Template

from ..installation import wait_until
from .conftest import SMALL, create, furnished
from .machine import Call, run

STATE = Path("/run/shoal")
NOBODY = 65534

#: The world-readable file: the CA certificate, which is public.
PUBLIC = ("ca.pem",)


def as_nobody(work) -> list[str]:
    """Runs `work` as an unprivileged user, and returns the lines that it found."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with os.fdopen(writer, "w") as out:
                out.writelines(f"{line}\n" for line in work())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as said:
        lines = said.read().splitlines()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, lines
    return lines


def walk(root: Path) -> list[str]:
    """Every path below, as root sees them: a user may guess their names.

    What is inside of sandboxes and images is left out, as only their tops can be reached first.
    """
    found = []
    for directory, names, files in os.walk(root):
        found += [os.path.join(directory, name) for name in names + files]
        inside = directory.endswith(("/upper", "/work", "/fs", "/root", "/stage"))
        if inside or directory.count("/") - str(root).count("/") > 6:
            names.clear()
    return [str(root), *found]


def opened(paths: list[str]):
    """The paths that the caller can open, list, or lock."""
    for path in paths:
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            try:
                handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
            except OSError:
                continue
            yield f"opens {path}"
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield f"locks {path}"
            except OSError:
                pass
            os.close(handle)
        try:
            os.listdir(path)
            yield f"lists {path}"
        except OSError:
            pass
        try:
            os.chdir(path)
        except OSError:
            continue
        if not path.startswith(str(STATE)):
            yield f"enters {path}"


@pytest.fixture(scope="module")
def crowded(scratch, tmp_path_factory):
    """An installation with resources of every kind."""
    with furnished(scratch, "modes") as installation:
        call = Call(installation)
        runsc, runc = create(installation, "runsc"), create(installation, "runc")
        paused = create(installation, "runsc")
        for sandbox in (runsc, runc, paused):
            sandbox.files.write("secret", "MARKER-OF-A-SECRET")
        runsc.create_snapshot()
        paused.pause()
        shared = tmp_path_factory.mktemp("exports")
        os.chmod(shared, 0o755)
        export = shared / "warm.snap"
        # An export of memory is refused while the sandbox whose token is in it lives.
        status, kept = call.post(f"/sandboxes/{runsc.sandbox_id}/snapshots", {"memory": False})
        assert status == 201, kept
        body = {"snapshot": kept["snapshotID"], "path": str(export)}
        status, said = call.post("/api/v1/snapshots/export", body)
        assert status == 201, said
        context = tmp_path_factory.mktemp("context")
        (context / "file").write_text("of a build")
        Template.build(
            Template(file_context_path=str(context)).from_template(SMALL).copy("file", "/opt/"),
            "modes-of-builds", cpu_count=1, memory_mb=256, **installation.options(),
        )
        assert list((installation.data / "uploads").glob("*/*"))
        installation.export, installation.crowd = export, (runsc, runc, paused)
        yield installation


def test_other_users_open_list_and_lock_nothing(crowded):
    state = STATE / crowded.instance
    paths = walk(crowded.data) + walk(state) + walk(STATE / "slots") + [str(STATE), str(crowded.export)]
    assert len(paths) > 100
    names = {os.path.basename(path) for path in paths}
    assert {"disk.btrfs", "shoal.db", "lock", "api-key", "memory", "0"} <= names
    assert as_nobody(lambda: opened(paths)) == []


def test_only_the_way_to_mount_points_can_be_traversed(crowded):
    state = STATE / crowded.instance
    ways = [STATE, state, state / "roots"]
    traversable = as_nobody(lambda: (str(p) for p in [*ways, *state.glob("*"), *state.glob("*/*")] if os.access(p, os.X_OK)))
    assert set(traversable) <= {str(way) for way in ways}
    for sandbox in crowded.crowd[:2]:
        own = (state / "roots" / sandbox.sandbox_id).stat()
        assert stat.S_IMODE(own.st_mode) == 0o700 and own.st_uid != NOBODY


def test_what_is_inside_a_sandbox_has_the_modes_of_a_distribution(crowded):
    """The server's umask does not affect a sandbox."""
    for sandbox in crowded.crowd[:2]:
        said = run(sandbox, "umask; stat -c '%a %n' / /etc /etc/hosts /etc/resolv.conf /tmp /usr/bin; touch x; stat -c %a x")
        assert said.out.split("\n")[:-1] == [
            "0022", "755 /", "755 /etc", "644 /etc/hosts", "644 /etc/resolv.conf", "1777 /tmp", "755 /usr/bin", "644",
        ], said


def test_a_sandbox_reads_no_path_of_the_machine(crowded):
    for sandbox in crowded.crowd[:2]:
        said = run(sandbox, "cat /proc/self/mounts /proc/self/mountinfo /proc/1/mountinfo", root=True).all
        assert "overlay" in said
        for path in (str(crowded.data), crowded.data.name, "/run/shoal", "disk.btrfs"):
            assert path not in said, said


def test_a_start_tightens_modes_of_earlier_versions(crowded):
    data, state = crowded.data, STATE / crowded.instance
    crowded.crash()
    was_open = [data, data / "disk.btrfs", data / "lock", data / "shoal.db", data / "logs", data / "uploads", state / "lock", state / "netns"]
    for path in was_open:
        path.chmod(0o755 if path.is_dir() else 0o644)
    stranger = data / "link"
    stranger.symlink_to("/etc/hostname")
    before = os.stat("/etc/hostname").st_mode
    size = (data / "server.log").stat().st_size
    crowded.start()
    stranger.unlink()
    paths = walk(data) + walk(state)
    assert as_nobody(lambda: opened(paths)) == []
    assert os.stat("/etc/hostname").st_mode == before
    told = [line for line in (data / "server.log").read_text(errors="replace")[size:].splitlines() if "are closed now" in line]
    assert len(told) == 1 and str(data) in told[0], told


def test_other_users_cannot_prevent_a_start(crowded):
    """A user who can open a lock can hold it."""
    crowded.stop()
    locks = [crowded.data / "lock", crowded.data / "images/lock", STATE / crowded.instance / "lock"]
    told, tell = os.pipe()
    waits, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        held = []
        for lock in locks:
            try:
                held.append(open(lock))
                fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pass
        os.write(tell, b"tried")
        os.read(waits, 1)
        os._exit(len(held))
    try:
        assert os.read(told, 5) == b"tried"
        crowded.start()
        assert Call(crowded).get("/sandboxes")[0] == 200
    finally:
        os.close(ends)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        for end in (told, tell, waits):
            os.close(end)


def test_no_key_and_no_token_is_in_a_log_or_an_argument(crowded):
    """The first start prints the key once; nothing else reveals it, or any token."""
    crowded.stop()
    size = (crowded.data / "server.log").stat().st_size
    crowded.start()
    again = create(crowded, "runsc", envs={"PASSWORD": "value-of-a-variable"})
    try:
        again.commands.run("true")
        token = Call(crowded).get(f"/sandboxes/{again.sandbox_id}")[1]["envdAccessToken"]
        secrets = [*crowded.keys.values(), token, "value-of-a-variable"]
        announced = f'export E2B_API_KEY="$(sudo cat {crowded.data}/api-key)"'
        log = crowded.data / "server.log"
        wait_until(lambda: "export E2B_API_KEY" in log.read_text(errors="replace")[size:], 60, "what it prints")
        said = log.read_text(errors="replace")[size:]
        assert announced in said or announced.replace("sudo ", "") in said
        for secret in secrets:
            assert secret not in said
        pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
        for pid in pids:
            try:
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "pytest" not in arguments:
                assert not [secret for secret in secrets if secret in arguments], arguments
    finally:
        again.kill()
