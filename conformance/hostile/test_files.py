"""Symlinks and `..` in every file API stay inside the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from .machine import Call, run

MARK = "only-the-machine-knows-this"


@pytest.fixture(scope="module", autouse=True)
def outside(server):
    """Files of the machine at paths that a sandbox may request."""
    paths = [Path("/root/shoal-outside"), server.data / "outside"]
    for path in paths:
        path.write_text(MARK)
    yield paths
    for path in paths:
        assert path.read_text() == MARK, "the machine's file was changed"
        path.unlink()


def targets(paths) -> list[str]:
    dots = "../" * 40
    return [str(p) for p in paths] + [dots + str(p)[1:] for p in paths] + [f"/proc/1/root{p}" for p in paths] + [
        f"/proc/self/root{p}" for p in paths
    ]


def headers(sandbox) -> dict:
    return {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983", "X-Access-Token": sandbox._envd_access_token}


def root_headers(sandbox) -> dict:
    return headers(sandbox) | {"Authorization": "Basic cm9vdDo="}


def rpc(server, sandbox, method: str, body: dict, root: bool = True):
    chosen = root_headers(sandbox) if root else headers(sandbox)
    return Call(server, None).post(f"/filesystem.Filesystem/{method}", body, headers=chosen)


@pytest.mark.parametrize("user", ["user", "root"])
def test_reads_stay_inside_the_sandbox(server, sandbox, outside, user):
    for n, target in enumerate(targets(outside)):
        run(sandbox, f"ln -sfn {target} /tmp/link{n}; ln -sfn {Path(target).parent} /tmp/dir{n}", root=True)
        for path in (target, f"/tmp/link{n}", f"/tmp/dir{n}/{Path(target).name}", f"/tmp/dir{n}/../{Path(target).name}"):
            status, answer = Call(server, None).get(f"/files?path={path}&username={user}", headers=headers(sandbox))
            assert status in (400, 401, 403, 404) and MARK not in str(answer), (path, status, answer)
            for method in ("Stat", "ListDir"):
                status, answer = rpc(server, sandbox, method, {"path": path}, root=user == "root")
                assert MARK not in str(answer)
                assert status != 200 or "outside" not in str(answer.get("entries", "")), (path, answer)


@pytest.mark.parametrize("user", ["user", "root"])
def test_writes_stay_inside_the_sandbox(server, sandbox, outside, user):
    octets = headers(sandbox) | {"Content-Type": "application/octet-stream"}
    for n, target in enumerate(targets(outside)):
        run(sandbox, f"ln -sfn {target} /tmp/wlink{n}", root=True)
        for path in (target, f"/tmp/wlink{n}"):
            Call(server, None).post(f"/files?path={path}&username={user}", b"changed", headers=octets)
        boundary = (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + target.encode() + b'"\r\n\r\nchanged\r\n--b--\r\n'
        )
        Call(server, None).post(f"/files?username={user}", boundary, headers=headers(sandbox) | {
            "Content-Type": "multipart/form-data; boundary=b"})
        Call(server, None).post("/files/compose", {"source_paths": ["/etc/hostname"], "destination": target, "username": user}, headers=headers(sandbox))
    for path in outside:
        assert path.read_text() == MARK
    run(sandbox, "rm -rf /root/shoal-outside /tmp/*link*", root=True)


def test_moves_removals_and_watches_stay_inside_the_sandbox(server, sandbox, outside):
    for n, target in enumerate(targets(outside)):
        run(sandbox, f"ln -sfn {Path(target).parent} /tmp/mdir{n}; mkdir -p /tmp/tree{n}; ln -sfn {Path(target).parent} /tmp/tree{n}/in", root=True)
        name = Path(target).name
        for path in (target, f"/tmp/mdir{n}/{name}"):
            rpc(server, sandbox, "Move", {"source": path, "destination": f"/tmp/stolen{n}"})
            rpc(server, sandbox, "Remove", {"path": path})
            status, answer = rpc(server, sandbox, "CreateWatcher", {"path": str(Path(path).parent)})
            if status == 200:
                outside[0].write_text(MARK)
                events = rpc(server, sandbox, "GetWatcherEvents", {"watcherId": answer["watcherId"]})[1]
                assert "shoal-outside" not in str(events)
                rpc(server, sandbox, "RemoveWatcher", {"watcherId": answer["watcherId"]})
        # A tree with a link to a directory that exists on the machine: only the link is removed.
        rpc(server, sandbox, "Remove", {"path": f"/tmp/tree{n}"})
        assert MARK not in run(sandbox, f"cat /tmp/stolen{n}", root=True).all
    for path in outside:
        assert path.read_text() == MARK


def test_the_native_api_stays_inside_the_sandbox(server, sandbox, outside):
    call, files = Call(server), f"/api/v1/sandbox/files/{sandbox.sandbox_id}"
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nchanged\r\n--b--\r\n'
    multipart = {"Content-Type": "multipart/form-data; boundary=b"}
    for n, target in enumerate(targets(outside)):
        run(sandbox, f"ln -sfn {target} /tmp/nlink{n}; ln -sfn {Path(target).parent} /tmp/ndir{n}", root=True)
        for path in (target, f"/tmp/nlink{n}", f"/tmp/ndir{n}/{Path(target).name}"):
            for query in (f"?path={path}", f"?path={path}&user=root"):
                for method, route in (("GET", "/download"), ("GET", ""), ("DELETE", "")):
                    status, answer = call(method, files + route + query)
                    assert status in (200, 400, 404) and MARK not in str(answer), (path, status, answer)
                status, answer = call.post(files + "/upload" + query, form, headers=multipart)
                assert status in (201, 400, 404), (path, status, answer)
    for path in outside:
        assert path.read_text() == MARK
    run(sandbox, "rm -rf /root/shoal-outside /tmp/nlink* /tmp/ndir*", root=True)


def test_a_symlink_race_stays_inside(server, sandbox, outside):
    """A path that alternates between a directory and a link to a directory of the machine."""
    name = outside[1].parent
    run(sandbox, f"mkdir -p /home/user/race/a {name}")
    racing = sandbox.commands.run(
        f"cd /home/user/race; while :; do mv a x 2>/dev/null; ln -sfn {name} a; rm -f a; mv x a 2>/dev/null; done", background=True
    )
    octets = headers(sandbox) | {"Content-Type": "application/octet-stream"}
    call = Call(server, None)
    try:
        for _ in range(150):
            call.post("/files?path=race/a/outside", b"x", headers=octets)
            call.post("/files?path=race/a/hit", b"x", headers=octets)
            rpc(server, sandbox, "Remove", {"path": "/home/user/race/a/outside"})
            rpc(server, sandbox, "MakeDir", {"path": "/home/user/race/a/made"})
    finally:
        racing.kill()
    assert not (name / "hit").exists() and not (name / "made").exists()
    assert outside[1].read_text() == MARK


def test_special_files_do_not_hang_the_daemon(server, sandbox):
    run(sandbox, "mkfifo -m 666 /tmp/pipe; ln -sfn /dev/zero /tmp/zero; ln -sfn /tmp/loop /tmp/loop; ln -sfn /proc/kmsg /tmp/kmsg")
    for path in ("/tmp/pipe", "/dev/zero", "/tmp/zero", "/dev/tty", "/dev/stdin", "/tmp/loop", "/proc/kmsg", "/proc/self/mem", "/dev/random"):
        status, _ = Call(server, None, timeout=60).get(f"/files?path={path}", headers=headers(sandbox))
        assert status != 200, path
        octets = headers(sandbox) | {"Content-Type": "application/octet-stream"}
        status, _ = Call(server, None, timeout=60).post(f"/files?path={path}", b"x", headers=octets)
        assert status < 600, path
    assert sandbox.is_running()


def test_a_path_is_bounded(server, sandbox):
    for path in ("a" * 300, "a/" * 3000, "\x01", "a\nb"):
        status, _ = rpc(server, sandbox, "Stat", {"path": path})
        assert status in (400, 404, 500), (path[:20], status)
    deep = "mkdir -p /tmp/deep && cd /tmp/deep && for n in $(seq 600); do mkdir d && cd d || exit; done"
    run(sandbox, deep, timeout=240)
    assert rpc(server, sandbox, "ListDir", {"path": "/tmp/deep", "depth": 100000})[0] in (200, 400)
    assert rpc(server, sandbox, "Remove", {"path": "/tmp/deep"}, root=False)[0] in (200, 400, 500)
    assert sandbox.is_running()
