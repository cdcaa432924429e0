"""The server is killed while it saves and restores; acknowledged saves survive.

`SHOAL_REST_CRASH_ROUNDS` says how often, `SHOAL_CRASH_SEED` makes the run of a printed seed again.
"""

from __future__ import annotations

import datetime
import itertools
import os
import random
import threading
import time

import pytest
from e2b import Sandbox

from ..installation import Installation, wait_until
from .conftest import SMALL, furnished
from .machine import Call

ROUNDS = int(os.environ.get("SHOAL_REST_CRASH_ROUNDS", "50"))
SEED = int(os.environ.get("SHOAL_CRASH_SEED", str(random.SystemRandom().randrange(1 << 32))))

#: How many sandboxes and snapshots the load keeps, and with how many clients.
SANDBOXES, SNAPSHOTS, CLIENTS = 5, 4, 3


class Ledger:
    """The server's acknowledgements to its clients."""

    def __init__(self):
        self.lock = threading.Lock()
        #: Acknowledged, without a request to kill them, with the process in their memory.
        self.alive: dict[str, int] = {}
        #: Acknowledged, but not prepared yet.
        self.coming: set[str] = set()
        #: In use by a client.
        self.busy: set[str] = set()
        #: Acknowledged snapshots, with the process in their memory.
        self.snapshots: dict[str, int] = {}
        self.ended: set[str] = set()
        self.done: dict[str, int] = {}
        self.wrong: list[str] = []

    def take(self, chance: random.Random) -> str | None:
        with self.lock:
            free = sorted(set(self.alive) - self.busy)
            if not free:
                return None
            sandbox = chance.choice(free)
            self.busy.add(sandbox)
            return sandbox

    def give_back(self, sandbox: str) -> None:
        with self.lock:
            self.busy.discard(sandbox)

    def count(self, what: str) -> None:
        with self.lock:
            self.done[what] = self.done.get(what, 0) + 1


class Client(threading.Thread):
    """Random operations; a missing response proves nothing either way."""

    def __init__(self, server: Installation, ledger: Ledger, seed: float):
        super().__init__(daemon=True)
        self.server, self.call, self.ledger = server, Call(server, timeout=60), ledger
        self.random, self.ending = random.Random(seed), threading.Event()

    def run(self):
        while not self.ending.is_set():
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 — the test reports all but broken connections
                self.note(error)
                self.ending.wait(0.02)

    def note(self, error: Exception) -> None:
        module, text = type(error).__module__, str(error)
        broken = isinstance(error, (OSError, ValueError, TimeoutError)) or module == "http.client"
        # The SDKs' errors over HTTP and Connect for a broken connection.
        words = ("connect", "Connection", "closed", "502", "sending request", "body")
        if not broken and not any(word in text for word in words):
            self.ledger.wrong.append(repr(error))

    def step(self) -> None:
        with self.ledger.lock:
            few = len(self.ledger.alive) < SANDBOXES
        if few and self.random.random() < 0.7:
            return self.create()
        sandbox = self.ledger.take(self.random)
        if sandbox is None:
            self.ending.wait(0.02)
            return None
        try:
            what = self.random.choice(("pause", "pause", "connect", "snapshot", "fork", "kill"))
            return getattr(self, what)(sandbox)
        finally:
            self.ledger.give_back(sandbox)

    def ask(self, what: str, path: str, body, good: tuple[int, ...], also: tuple[int, ...] = ()):
        status, answer = self.call.post(path, body)
        if status not in good + also:
            self.ledger.wrong.append(f"{what}: {status} {answer}")
        if status in good:
            self.ledger.count(what)
            return answer if answer is not None else {}
        return None

    def know(self, sandbox: str, process: int | None = None) -> None:
        """A new sandbox with a process in its memory, and a file."""
        with self.ledger.lock:
            self.ledger.coming.add(sandbox)
        try:
            if process is None:
                inside = Sandbox.connect(sandbox, **self.server.options())
                inside.files.write("mark", sandbox)
                process = inside.commands.run("sleep 100000", background=True, timeout=0).pid
            with self.ledger.lock:
                self.ledger.alive[sandbox] = process
        finally:
            # One that a crash kept from being prepared is ended with the unknown ones.
            with self.ledger.lock:
                self.ledger.coming.discard(sandbox)

    def create(self) -> None:
        with self.ledger.lock:
            snapshots = sorted(self.ledger.snapshots.items())
        template, process = SMALL, None
        if snapshots and self.random.random() < 0.5:
            template, process = self.random.choice(snapshots)
        body = {"templateID": template, "timeout": 3600}
        # A snapshot may have been removed since.
        what = "create" if process is None else "clone"
        answer = self.ask(what, "/v2/sandboxes", body, (201,), (404,))
        if answer:
            self.know(answer["sandboxID"], process)

    def pause(self, sandbox: str) -> None:
        self.ask("pause", f"/sandboxes/{sandbox}/pause", {}, (204,), (409,))

    def connect(self, sandbox: str) -> None:
        self.ask("connect", f"/sandboxes/{sandbox}/connect", {"timeout": 3600}, (200, 201))

    def snapshot(self, sandbox: str) -> None:
        answer = self.ask("snapshot", f"/sandboxes/{sandbox}/snapshots", {}, (201,), (400,))
        if not answer:
            return
        with self.ledger.lock:
            self.ledger.snapshots[answer["snapshotID"]] = self.ledger.alive[sandbox]
            old = sorted(self.ledger.snapshots)[0] if len(self.ledger.snapshots) > SNAPSHOTS else None
            if old:
                # Until the response arrives, its state is unknown.
                del self.ledger.snapshots[old]
        if old:
            self.call.delete(f"/templates/{old}")

    def fork(self, sandbox: str) -> None:
        with self.ledger.lock:
            many, process = len(self.ledger.alive) >= SANDBOXES + 2, self.ledger.alive[sandbox]
        if many:
            return
        body = {"count": 2, "timeout": 3600}
        members = self.ask("fork", f"/sandboxes/{sandbox}/fork", body, (201,), (409,))
        for member in members or []:
            if "sandbox" in member:
                self.know(member["sandbox"]["sandboxID"], process)
            else:
                self.ledger.wrong.append(f"fork: {member}")

    def kill(self, sandbox: str) -> None:
        with self.ledger.lock:
            if len(self.ledger.alive) < SANDBOXES:
                return
            process = self.ledger.alive.pop(sandbox)
        try:
            status, answer = self.call.delete(f"/sandboxes/{sandbox}")
        except ConnectionRefusedError:
            # No client has received the response.
            with self.ledger.lock:
                self.ledger.alive[sandbox] = process
            raise
        if status == 204:
            self.ledger.count("kill")
            with self.ledger.lock:
                self.ledger.ended.add(sandbox)
        elif status != 404:
            self.ledger.wrong.append(f"kill: {status} {answer}")


@pytest.fixture
def crashing(scratch):
    with furnished(scratch, "crashing-rest", "disk.size=6GiB", "limits.sandboxes=40") as installation:
        yield installation


def check(server: Installation, ledger: Ledger) -> None:
    """Acknowledgements from before the crash hold after it."""
    call = Call(server)
    with ledger.lock:
        alive, snapshots = sorted(ledger.alive), set(ledger.snapshots)
    for sandbox in alive:
        status, answer = call.get(f"/sandboxes/{sandbox}")
        with ledger.lock:
            kept = sandbox in ledger.alive
        if kept:
            assert status == 200, (sandbox, status, answer, server.log_tail())
    listed = {one["snapshotID"] for one in call.get("/snapshots?limit=100")[1]}
    with ledger.lock:
        # It may have been removed since.
        missing = (snapshots & set(ledger.snapshots)) - listed
    assert not missing, (missing, server.log_tail())
    for sandbox in sorted(ledger.ended)[-5:]:
        assert call.get(f"/sandboxes/{sandbox}")[0] == 404, f"{sandbox} has come back"


def what_was_said(server: Installation, ledger: Ledger) -> str:
    """The log lines about the sandboxes that fail the check."""
    log = (server.data / "server.log").read_text(errors="replace").splitlines()
    wrong = " ".join(ledger.wrong)
    about = [sandbox for sandbox in ledger.alive if sandbox in wrong]
    return "\n".join(line for line in log if any(sandbox in line for sandbox in about))[-6000:]


def clear_unknown(server: Installation, ledger: Ledger, crashed: datetime.datetime) -> None:
    """Kills unacknowledged sandboxes from before the crash: their clients must be able to."""
    call = Call(server)
    listed = call.get("/v2/sandboxes?limit=100")[1]
    before = {
        one["sandboxID"] for one in listed
        if datetime.datetime.fromisoformat(one["startedAt"]) < crashed
    }
    with ledger.lock:
        unknown = before - set(ledger.alive) - ledger.coming - ledger.busy
    for sandbox in unknown:
        call.delete(f"/sandboxes/{sandbox}")


def has_memory(server: Installation, sandbox: str, process: int) -> None:
    inside = Sandbox.connect(sandbox, **server.options())
    assert process in [one.pid for one in inside.commands.list()], f"{sandbox} has lost its memory"
    assert inside.files.exists("mark")
    assert inside.commands.run("echo alive").stdout == "alive\n"


def rounds(ledger: Ledger):
    """The rounds, with the longest time until the crash; more of them until all was acknowledged."""
    longest = 1.2
    for round_ in itertools.count():
        if round_ >= ROUNDS:
            if is_thorough(ledger):
                return
            # On a slow machine little is acknowledged between two crashes.
            longest = min(longest * 1.2, 10)
        yield round_, longest


def is_thorough(ledger: Ledger) -> bool:
    """Whether enough of each operation was acknowledged."""
    least = {"pause": ROUNDS // 20, "connect": ROUNDS // 20, "snapshot": ROUNDS // 20, "fork": 0, "clone": 0}
    with ledger.lock:
        return all(ledger.done.get(what, 0) > number for what, number in least.items())


@pytest.mark.timeout(1000)
def test_a_crash_during_a_save_loses_nothing(crashing):
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance, ledger = random.Random(SEED), Ledger()
    clients = [Client(crashing, ledger, chance.random()) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for round_, longest in rounds(ledger):
            time.sleep(chance.uniform(0.05, longest))
            crashing.crash()
            crashed = datetime.datetime.now(datetime.timezone.utc)
            crashing.start()
            check(crashing, ledger)
            clear_unknown(crashing, ledger, crashed)
            assert not ledger.wrong, (round_, ledger.wrong[:3], what_was_said(crashing, ledger))
    finally:
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join(60)
    print(ledger.done)
    check(crashing, ledger)
    for sandbox, process in sorted(ledger.alive.items()):
        has_memory(crashing, sandbox, process)
    call = Call(crashing)
    for snapshot, process in sorted(ledger.snapshots.items()):
        status, answer = call.post("/v2/sandboxes", {"templateID": snapshot, "timeout": 600})
        assert status == 201, (snapshot, answer)
        has_memory(crashing, answer["sandboxID"], process)
    for one in call.get("/snapshots?limit=100")[1]:
        assert call.delete(f"/templates/{one['snapshotID']}")[0] == 204
    for sandbox in call.ids():
        assert call.delete(f"/sandboxes/{sandbox}")[0] == 204
    wait_until(lambda: not crashing.leftovers(), 60, f"clearing: {crashing.leftovers()}")
    saved = crashing.data / "disk"
    assert [*saved.glob(".paused/*"), *saved.glob(".snapshots/*")] == []
    crashing.stop()
    assert crashing.all_gone() == []
