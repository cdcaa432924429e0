"""Every place where the server opens a descriptor, with an exhausted machine.

The calls of each operation that open something are counted, and then the operation is repeated with
one of them failing, from the first to the last. Whatever it answers, nothing is left behind, and
everything works again when the machine has the missing resource. `SHOAL_FAULT_POINTS` says how many of
the calls fail.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
from pathlib import Path

import pytest

from ..installation import wait_until
from .conftest import SMALL, furnished
from .faults import Faults
from .machine import Call

#: How many network slots are kept ready.
WARM = 4
#: The maximum number of failing calls per operation; they are spread over all of its calls.
POINTS = int(os.environ.get("SHOAL_FAULT_POINTS", "12"))
ERRORS = (errno.EMFILE, errno.ENOMEM)


class Session:
    """Calls on one connection, so that no connection is accepted while calls fail."""

    def __init__(self, server):
        self.line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
        self.key = server.key

    def __call__(self, method: str, path: str, body=None):
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        self.line.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.line.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None


@pytest.fixture(scope="module")
def faults(scratch):
    directory = scratch / "fault-library"
    directory.mkdir()
    return Faults(directory)


@pytest.fixture(scope="module")
def faulty(scratch, faults):
    with furnished(scratch, "faults", under=faults.under) as server:
        assert faults.calls > 0, "the server does not open what it opens through the library"
        yield server
        assert server.process.poll() is None, server.log_tail()


def create(session, runtime: str):
    body = {"templateID": SMALL, "timeout": 600, "metadata": {"shoal/runtime": runtime}}
    status, made = session("POST", "/sandboxes", body)
    return made["sandboxID"] if status == 201 else None


def taken_slots(server) -> int:
    """Each is a hard link to one file."""
    return os.stat(Path("/run/shoal/slots") / f"of-{server.instance}").st_nlink - 1


def state(server) -> dict:
    counts = server.counts()
    kept = {key: counts[key] for key in ("processes", "namespaces", "links", "groups")}
    return kept | {"slots": taken_slots(server), "left": sorted(server.leftovers())}


def points(count: int, error: int) -> range:
    """The calls that fail with `error`: those of one error lie between those of another."""
    step = max(1, count // POINTS)
    return range(1 + step * ERRORS.index(error) // len(ERRORS), count + 1, step)


def sweep(server, faults, prepare, operation, settle):
    """Makes each call of `operation` fail, one after the other."""
    # Spare resources are made again meanwhile, which may fail as well.
    counts = []
    # The smaller of two: other work of the server counts too.
    for _ in range(2):
        subject = prepare()
        begun = faults.calls
        operation(subject)
        counts.append(max(faults.calls - begun, 1))
        settle(subject)
    count = min(counts)
    failed = faults.failed
    for error in ERRORS:
        for after in points(count, error):
            subject = prepare()
            faults.fail(after, error)
            try:
                operation(subject)
            except (http.client.HTTPException, OSError) as broken:
                raise AssertionError(f"no answer with {errno.errorcode[error]} at {after}") from broken
            finally:
                faults.stop()
            settle(subject)
    assert faults.failed - failed > min(POINTS, count) // 2, "hardly a call has failed"


@pytest.mark.parametrize("runtime", ["runc", "runsc"])
@pytest.mark.parametrize("what", ["create", "destroy", "pause", "resume", "snapshot", "exec"])
def test_failed_calls_leave_nothing_behind(faulty, faults, runtime, what):
    if runtime == "runc" and what in ("pause", "resume", "snapshot"):
        pytest.skip("the memory of this runtime is not saved")
    session = Session(faulty)
    quiet = {"processes": 0, "namespaces": 2 * WARM, "links": WARM, "groups": 0, "slots": WARM, "left": []}
    is_quiet = lambda: state(faulty) == quiet  # noqa: E731
    wait_until(is_quiet, 60, "a quiet server")

    def prepare():
        if what == "create":
            return []
        made = create(session, runtime)
        assert made, faulty.log_tail()
        if what == "resume":
            assert session("POST", f"/sandboxes/{made}/pause")[0] == 204
        return [made]

    snapshots = []

    def operation(subject):
        if what == "create":
            if made := create(session, runtime):
                subject.append(made)
            return
        path = f"/sandboxes/{subject[0]}"
        status, said = {
            "destroy": lambda: session("DELETE", path),
            "pause": lambda: session("POST", f"{path}/pause"),
            "resume": lambda: session("POST", f"{path}/connect", {"timeout": 600}),
            "snapshot": lambda: session("POST", f"{path}/snapshots", {}),
            "exec": lambda: session(
                "POST", f"/api/v1/terminal/sandbox/{subject[0]}", {"command": "echo here"}
            ),
        }[what]()
        assert status < 600, said
        if what == "snapshot" and status == 201:
            snapshots.append(said["snapshotID"])

    def settle(subject):
        """Whatever the response: the sandbox works, or has ended, or can be killed."""
        for sandbox in subject:
            if what != "destroy":
                try:
                    wait_until(lambda s=sandbox: answers(s), 60, f"{sandbox} to answer or to be gone")
                except AssertionError as error:
                    raise AssertionError(f"{error}\n{faulty.log_tail()}") from None
            session("DELETE", f"/sandboxes/{sandbox}")

    def answers(sandbox) -> bool:
        status, _ = session("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600})
        if status == 404:
            return True
        status, said = session(
            "POST", f"/api/v1/terminal/sandbox/{sandbox}", {"command": "echo here"}
        )
        return status == 200 and said["data"]["output"] == "here\n"

    sweep(faulty, faults, prepare, operation, settle)
    for snapshot in snapshots:
        assert session("DELETE", f"/templates/{snapshot}")[0] in (200, 204)
    wait_until(lambda: Call(faulty).ids() == [], 60, "the records to be gone")
    try:
        wait_until(is_quiet, 60, "what was there before")
    except AssertionError:
        assert state(faulty) == quiet, faulty.log_tail()
    # The server closes a connection that was idle for long.
    session = Session(faulty)
    made = create(session, runtime)
    assert made and answers(made)
    assert session("DELETE", f"/sandboxes/{made}")[0] == 204
