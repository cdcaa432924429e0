"""The server is killed repeatedly under load, and no acknowledged work is lost.

`SHOAL_CRASH_ROUNDS` says how often, `SHOAL_CRASH_SEED` makes the run of a printed seed again.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time

import pytest
from e2b import Sandbox

from .conftest import SMALL, furnished
from ..installation import Installation, wait_until
from .machine import Call

ROUNDS = int(os.environ.get("SHOAL_CRASH_ROUNDS", "30"))
SEED = int(os.environ.get("SHOAL_CRASH_SEED", str(random.SystemRandom().randrange(1 << 32))))

#: How many sandboxes the load keeps, and with how many clients.
KEPT = 10
CLIENTS = 3


class Ledger:
    """The server's acknowledgements to its clients."""

    def __init__(self):
        self.lock = threading.Lock()
        #: Acknowledged, without a request to kill them: these must be alive.
        self.alive: set[str] = set()
        #: Kill acknowledged: these must be gone.
        self.ended: set[str] = set()
        #: Write acknowledged: the file must exist.
        self.marked: set[str] = set()
        self.created = self.killed = self.ran = 0
        self.wrong: list[str] = []


class Client(threading.Thread):
    """Creates, runs, kills; a missing response proves nothing either way."""

    def __init__(self, server: Installation, ledger: Ledger, seed: int):
        super().__init__(daemon=True)
        self.call, self.ledger = Call(server, timeout=30), ledger
        self.random, self.ending = random.Random(seed), threading.Event()

    def run(self):
        while not self.ending.is_set():
            with self.ledger.lock:
                full = len(self.ledger.alive) >= KEPT
            try:
                self.kill() if full or self.random.random() < 0.3 else self.create()
            except (OSError, ValueError, TimeoutError):
                self.ending.wait(0.02)
            except Exception as error:  # noqa: BLE001 — the test reports it
                # http.client has its own errors for a broken connection.
                if type(error).__module__ != "http.client":
                    self.ledger.wrong.append(repr(error))
                self.ending.wait(0.02)

    def create(self):
        runtime = self.random.choice(("runsc", "runc"))
        body = {"templateID": SMALL, "timeout": 3600, "metadata": {"shoal/runtime": runtime}}
        status, answer = self.call.post("/v2/sandboxes", body)
        if status != 201:
            self.ledger.wrong.append(f"create: {status} {answer}")
            return
        with self.ledger.lock:
            self.ledger.alive.add(answer["sandboxID"])
            self.ledger.created += 1
        self.touch(answer["sandboxID"], answer["envdAccessToken"])

    def touch(self, sandbox: str, token: str):
        """A file in the sandbox, verified by the last check."""
        headers = {
            "E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983", "X-Access-Token": token,
            "Content-Type": "application/octet-stream",
        }
        status, _ = self.call.post("/files?path=mark", sandbox.encode(), headers=headers)
        if status == 200:
            with self.ledger.lock:
                self.ledger.marked.add(sandbox)
                self.ledger.ran += 1

    def kill(self):
        with self.ledger.lock:
            if not self.ledger.alive:
                return
            sandbox = self.random.choice(sorted(self.ledger.alive))
            # Until the response arrives, its state is unknown.
            self.ledger.alive.discard(sandbox)
        try:
            status, answer = self.call.delete(f"/sandboxes/{sandbox}")
        except ConnectionRefusedError:
            # No client has received the response.
            with self.ledger.lock:
                self.ledger.alive.add(sandbox)
            raise
        with self.ledger.lock:
            if status == 204:
                self.ledger.ended.add(sandbox)
                self.ledger.killed += 1
            elif status != 404:
                self.ledger.wrong.append(f"kill: {status} {answer}")


@pytest.fixture
def crashing(scratch):
    with furnished(scratch, "crashing") as installation:
        yield installation


def check(server: Installation, ledger: Ledger) -> None:
    """Acknowledgements from before the crash hold after it."""
    call = Call(server)
    with ledger.lock:
        alive, ended = sorted(ledger.alive), sorted(ledger.ended)
    for sandbox in alive:
        status, answer = call.get(f"/sandboxes/{sandbox}")
        with ledger.lock:
            # A client of this round may have killed it since.
            kept = sandbox in ledger.alive
        if kept:
            assert status == 200 and answer["state"] == "running", (sandbox, status, answer)
    for sandbox in ended[-5:]:
        assert call.get(f"/sandboxes/{sandbox}")[0] == 404, f"{sandbox} has come back"


@pytest.mark.timeout(600)
def test_a_crash_loses_nothing_and_leaves_nothing(crashing):
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance, ledger = random.Random(SEED), Ledger()
    clients = [Client(crashing, ledger, chance.random()) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    starts = []
    try:
        for round_ in itertools.count():
            # On a slow machine no file may have been written yet that the last check looks for.
            if round_ >= ROUNDS and ledger.alive & ledger.marked:
                break
            time.sleep(chance.uniform(0.05, 0.9))
            crashing.crash()
            if chance.random() < 0.3:
                # The next server is killed before it starts to serve.
                crashing.launch()
                time.sleep(chance.uniform(0, 0.3))
                crashing.crash()
            begun = time.monotonic()
            crashing.start()
            starts.append(time.monotonic() - begun)
            check(crashing, ledger)
            assert not ledger.wrong, (round_, ledger.wrong[:5])
    finally:
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join(60)
    print(f"created {ledger.created}, killed {ledger.killed}, files written {ledger.ran}")
    print(f"a start took {max(starts):.2f} s at most, {sum(starts) / len(starts):.2f} s on average")
    check(crashing, ledger)
    for sandbox in sorted(ledger.alive):
        inside = Sandbox.connect(sandbox, **crashing.options())
        assert inside.commands.run("echo alive").stdout == "alive\n"
        if sandbox in ledger.marked:
            assert inside.files.read("mark") == sandbox
    assert ledger.alive & ledger.marked, "no file was written that is looked for"
    # Unacknowledged creates may exist; their clients must be able to kill them.
    call = Call(crashing)
    known = set(call.ids())
    assert ledger.alive <= known
    for sandbox in known:
        assert call.delete(f"/sandboxes/{sandbox}")[0] == 204
    wait_until(lambda: not crashing.leftovers(), 60, f"clearing: {crashing.leftovers()}")
    crashing.stop()
    assert crashing.all_gone() == []
