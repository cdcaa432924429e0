"""Error answers reveal nothing of the machine to tenants; the log has the details."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import stat
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import Sandbox

from ..installation import wait_until
from .conftest import SMALL, furnished
from .machine import Call

#: A runtime that fails like a real one, on demand.
WRAPPER = """#!{python}
import os, sys
if "run" in sys.argv and os.path.exists({broken!r}):
    log = sys.argv[sys.argv.index("--log") + 1]
    with open(log, "a") as out:
        out.write('{{"level": "error", "msg": "mount {data}/sandboxes/x to rootfs: no such device"}}\\n')
    sys.exit(1)
os.execv({runc!r}, [{runc!r}, *sys.argv[1:]])
"""

RUNC = {"templateID": SMALL, "metadata": {"shoal/runtime": "runc"}}


@pytest.fixture(scope="module")
def breakable(scratch):
    broken, wrapper = scratch / "runc-is-broken", scratch / "runc-that-breaks"
    data = scratch / "answers"
    wrapper.write_text(WRAPPER.format(python=sys.executable, broken=str(broken), data=data, runc=shutil.which("runc")))
    wrapper.chmod(stat.S_IRWXU)
    with furnished(scratch, "answers", f"runtime.runc={wrapper}") as installation:
        installation.broken = broken
        yield installation


@contextmanager
def aside(path: Path):
    """A file where the server expects a directory."""
    elsewhere = path.with_name(f"{path.name}.aside")
    path.rename(elsewhere)
    path.touch()
    try:
        yield path
    finally:
        path.unlink()
        elsewhere.rename(path)


@contextmanager
def present(path: Path):
    path.touch()
    try:
        yield path
    finally:
        path.unlink()


def ask(server, method: str, path: str, body=None) -> tuple[int, str, str]:
    """A tenant's call: the status, the whole response, and the request id."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"X-API-Key": server.keys["other"], "Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        whole = f"{answer.getheaders()} {text}"
        return answer.status, whole, answer.getheader("x-request-id")
    finally:
        connection.close()


def tells_nothing(server, whole: str) -> None:
    for path in (str(server.data), server.data.name, "/run/shoal", "/sys/fs", "/proc/", "os error"):
        assert path not in whole, whole


def log_of(server, request: str) -> str:
    """The server's log lines about a request."""
    log = server.data / "server.log"
    lines = lambda: [line for line in log.read_text(errors="replace").splitlines() if request in line]
    return "\n".join(wait_until(lines, 60, "the log of a request"))


def failures(server, sandbox):
    """Faults, one after the other: a name, how to cause it, and a call that meets it."""
    data, state = server.data, Path("/run/shoal") / server.instance
    layer = next((data / "images/layers").iterdir())
    upload = hashlib.sha256(b"x").hexdigest()
    create = ("POST", "/v2/sandboxes", {"templateID": SMALL})
    yield "runtime", present(server.broken), ("POST", "/v2/sandboxes", RUNC), "no such device"
    yield "mount points", aside(state / "roots"), create, None
    yield "a layer", aside(layer / "fs"), create, None
    yield "the daemon", aside(data / "envd"), create, None
    yield "sandboxes", aside(data / "sandboxes"), create, None
    yield "logs", aside(data / "logs"), ("GET", f"/v2/sandboxes/{sandbox}/logs", None), None
    yield "uploads", aside(data / "uploads"), ("GET", f"/templates/{SMALL}/files/{upload}", None), None


def test_details_of_failures_are_only_in_the_log(breakable):
    tenant = breakable.options("other")
    sandbox = Sandbox.create(SMALL, **tenant)
    met = []
    for what, breaking, (method, path, body), logged in failures(breakable, sandbox.sandbox_id):
        with breaking:
            status, whole, request = ask(breakable, method, path, body)
        tells_nothing(breakable, whole)
        if status >= 500:
            met.append(what)
            assert "log" in whole or "not on this node" in whole, (what, whole)
            if logged:
                assert logged in log_of(breakable, request), what
        elif status == 201 and method == "POST":
            Call(breakable, "other").delete(f"/sandboxes/{json.loads(whole[whole.index('] {') + 2:])['sandboxID']}")
    assert {"runtime", "mount points", "sandboxes"} <= set(met), met
    # Everything works again.
    assert Sandbox.create(SMALL, **tenant).kill() and sandbox.kill()


def test_errors_about_damaged_memory_name_no_path(breakable):
    tenant = breakable.options("other")
    sandbox = Sandbox.create(SMALL, **tenant)
    snapshot = sandbox.create_snapshot()
    memory = next(p for p in (breakable.data / "disk/.snapshots").glob("*/memory/*") if p.stat().st_size > 0)
    with memory.open("r+b") as file:
        file.truncate(1)
    status, whole, _ = ask(breakable, "POST", "/v2/sandboxes", {"templateID": snapshot.snapshot_id})
    assert status >= 400, whole
    tells_nothing(breakable, whole)
    manifest = memory.parents[1] / "manifest.json"
    manifest.unlink(missing_ok=True)
    status, whole, _ = ask(breakable, "POST", "/v2/sandboxes", {"templateID": snapshot.snapshot_id})
    assert status >= 400, whole
    tells_nothing(breakable, whole)
    assert sandbox.kill()
