"""Pools: sandboxes that are ready before a request needs one, with both runtimes.

`SHOAL_POOL_CRASH_ROUNDS` says how often the server is killed, `SHOAL_CLAIMS` how many are claimed at once.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import Sandbox

from ..cli.conftest import Client
from ..installation import OVERHEAD, Installation, wait_until
from .conftest import RUNTIMES

ROUNDS = int(os.environ.get("SHOAL_POOL_CRASH_ROUNDS", "6"))
CLAIMS = int(os.environ.get("SHOAL_CLAIMS", "100"))

#: The resources of a member before and after its claim: thousandths of processors, and bytes.
BEFORE, AFTER = (200, 128 << 20), (1000, 512 << 20)

#: Requests a file from the server that was warmed up.
FETCH = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8888/\").status)'"


def entry(server: Installation, runtime: str, size: int, **pool) -> dict:
    base = server._admin("GET", "/api/v1/templates/base")
    return {
        "name": f"warm-{runtime}",
        "image": base["image"],
        "description": "a server of files that is warm",
        "runtime": runtime,
        "resources": {"cpuLimit": "1", "memoryLimit": "512Mi"},
        "pool": {
            "size": size,
            "probePort": 8888,
            "warmupCmd": "python3,-m http.server 8888",
            "startupCmd": "touch,/tmp/started",
            "resources": {"cpuLimit": "0.2", "memoryLimit": "128Mi"},
        }
        | pool,
    }


def put(server: Installation, *entries: dict) -> None:
    server._admin("POST", "/api/v1/config/templates", {"templates": list(entries)})


def pool(server: Installation, name: str) -> dict:
    pools = server._admin("GET", "/api/v1/pool")
    return next(one for one in pools if one["template"] == name)


def members(server: Installation, name: str) -> list[str]:
    return [one["name"] for one in server._admin("GET", f"/api/v1/pool/sandbox/{name}")]


def full(server: Installation, name: str, size: int) -> list[str]:
    def is_full():
        now = pool(server, name)
        return (now["ready"], now["starting"]) == (size, 0)

    wait_until(is_full, 240, f"the pool {name} is full")
    return members(server, name)


#: One says its request at a time, all wait together: of a thousand threads of a client, one that has
#: connected may not have its turn again before the server has lost patience with it.
saying = threading.Lock()


def post(server: Installation, body: dict) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    headers = {"X-API-Key": server.key, "Content-Type": "application/json"}
    try:
        with saying:
            connection.request("POST", "/v2/sandboxes", json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def limits(server: Installation, sandbox: str, runtime: str) -> tuple[int, int]:
    """The limits of the sandbox in the kernel: thousandths of processors, and bytes of memory."""
    cpu = memory = 0
    for group in server.groups():
        if group.name != sandbox:
            continue
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
            cpu = round(int(quota) * 1000 / int(period))
        if (group / "cpu.cfs_quota_us").exists():
            quota = int((group / "cpu.cfs_quota_us").read_text())
            cpu = round(quota * 1000 / int((group / "cpu.cfs_period_us").read_text()))
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (group / name).exists():
                memory = int((group / name).read_text())
    return cpu, memory - OVERHEAD[runtime]


def listed(server: Installation) -> set[str]:
    found, pages = set(), Sandbox.list(**server.options())
    while pages.has_next:
        found |= {one.sandbox_id for one in pages.next_items()}
    return found


def is_frozen(server: Installation, sandbox: str) -> bool:
    """Whether the kernel has frozen all its processes."""
    for group in server.groups():
        if group.name != sandbox:
            continue
        if (group / "freezer.state").exists():
            return (group / "freezer.state").read_text() == "FROZEN\n"
        if (group / "cgroup.events").exists() and "frozen 1" in (group / "cgroup.events").read_text():
            return True
    return False


def used(server: Installation, sandbox: str) -> int:
    """The processor time of a sandbox, as the kernel counts it."""
    counters = [group / name for group in server.groups() if group.name == sandbox for name in ("cpuacct.usage", "cpu.stat")]
    return next(int(counter.read_text().split()[-1 if counter.name == "cpuacct.usage" else 1]) for counter in counters if counter.exists())


@pytest.fixture(scope="module")
def server(another):
    installation = another("pools", ["disk.size=2GiB", "starts=2", "limits.sandboxes=3000", "limits.sandboxes_per_team=3000"])
    yield installation
    if installation.process is None:
        installation.start()
    put(installation)


@pytest.fixture(autouse=True)
def without_pools(server):
    yield
    if server.process is None:
        server.start()
    put(server)
    for sandbox in listed(server):
        Sandbox.kill(sandbox, **server.options())
    wait_until(lambda: not server.groups(), 240, "every sandbox is gone")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_claimed_member_is_warm_raised_and_ones_own(server, runtime):
    name = f"warm-{runtime}"
    put(server, entry(server, runtime, 2))
    before = full(server, name, 2)
    assert limits(server, before[0], runtime) == BEFORE
    options = server.options()
    seen = [one.sandbox_id for one in Sandbox.list(**options).next_items()]
    assert not set(seen) & set(before), "nobody sees a member"

    status, answer = post(
        server,
        {"templateID": name, "timeout": 120, "secure": True, "metadata": {"own": "1"}, "envVars": {"OWN": "2"}},
    )
    assert status == 201 and answer["shoal"]["origin"] == "pooled", answer
    assert answer["sandboxID"] == before[0], "the oldest is handed out, and keeps its id"
    assert answer["shoal"]["runtime"] == runtime
    assert limits(server, answer["sandboxID"], runtime) == AFTER

    sandbox = Sandbox.connect(answer["sandboxID"], **options)
    metadata = sandbox.get_info().metadata
    assert metadata["sbx-pool"] == "false" and metadata["sbx-user"] == "default"
    assert metadata["own"] == "1"
    said = sandbox.commands.run("echo $OWN $E2B_SANDBOX_ID; ls /tmp/started; pgrep -c -f http.server")
    own, started, served = said.stdout.split("\n")[:3]
    assert own == f"2 {sandbox.sandbox_id}" and started == "/tmp/started" and int(served) >= 1
    assert sandbox.commands.run(FETCH).stdout.strip() == "200"
    # Programs can use the raised memory without being OOM-killed.
    assert sandbox.commands.run("python3 -c 'print(len(bytearray(250 << 20)))'").stdout == f"{250 << 20}\n"
    # A new member replaces it; with gVisor it starts from another's memory.
    again = full(server, name, 2)
    assert again[0] == before[1] and sandbox.sandbox_id not in again
    for expected in again:
        status, answer = post(server, {"templateID": name, "timeout": 120, "secure": True, "envVars": {"OWN": "3"}})
        assert (status, answer["sandboxID"], answer["shoal"]["origin"]) == (201, expected, "pooled")
        assert limits(server, expected, runtime) == AFTER
        next_ = Sandbox.connect(expected, **options)
        said = next_.commands.run("echo $OWN $E2B_SANDBOX_ID; ls /tmp/started")
        assert said.stdout.split("\n")[:2] == [f"3 {expected}", "/tmp/started"]
        assert next_.commands.run(FETCH).stdout.strip() == "200"


def test_a_pool_is_shown_and_emptied_from_the_command_line(server):
    client, name = Client(server), "warm-runc"
    put(server, entry(server, "runc", 2))
    before = full(server, name, 2)
    (shown,) = client.run("pool", "ls", "--json").json
    assert (shown["template"], shown["size"], shown["ready"], shown["starting"]) == (name, 2, 2, 0)
    for words in (("ls",), ("top", "--once")):
        rows = [line.split() for line in client.ok("pool", *words).splitlines()]
        assert any(row[:3] == [name, "2", "2"] for row in rows), rows
    listed = [line.split()[0] for line in client.ok("pool", "ls", name).splitlines()]
    assert listed[1:] == before
    # One member is removed and replaced; then all of them are.
    assert client.run("pool", "rm", before[0]).code == 0
    again = full(server, name, 2)
    assert before[0] not in again and before[1] in again
    assert client.run("pool", "rm", name).code == 0
    assert not set(full(server, name, 2)) & set(again)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_member_that_waits_takes_no_processor_time_until_it_is_handed_out(server, runtime):
    name = f"warm-{runtime}"
    put(server, entry(server, runtime, 1))
    (waiting,) = full(server, name, 1)
    wait_until(lambda: is_frozen(server, waiting), 60, "the member is frozen")
    before = used(server, waiting)
    for _ in range(50):
        pool(server, name)
    assert used(server, waiting) == before > 0
    status, answer = post(server, {"templateID": name, "timeout": 120})
    assert (status, answer["sandboxID"], answer["shoal"]["origin"]) == (201, waiting, "pooled")
    assert not is_frozen(server, waiting) and used(server, waiting) > before
    assert Sandbox.connect(waiting, **server.options()).commands.run(FETCH).stdout.strip() == "200"


def test_a_member_that_waits_is_found_by_the_next_server_and_ends_like_another(server):
    put(server, entry(server, "runsc", 2))
    waiting = full(server, "warm-runsc", 2)
    frozen = lambda: all(is_frozen(server, member) for member in waiting)  # noqa: E731
    wait_until(frozen, 60, "the members are frozen")
    server.crash()
    server.start()
    assert full(server, "warm-runsc", 2) == waiting
    status, answer = post(server, {"templateID": "warm-runsc", "timeout": 120})
    assert (status, answer["sandboxID"], answer["shoal"]["origin"]) == (201, waiting[0], "pooled")
    assert Sandbox.connect(waiting[0], **server.options()).commands.run(FETCH).stdout.strip() == "200"
    put(server)
    wait_until(lambda: {group.name for group in server.groups()} == {waiting[0]}, 60, "the end of the other")


def test_all_but_the_hot_members_wait_on_the_disk_and_wake_when_they_are_claimed(server):
    name = "warm-runsc"
    put(server, entry(server, "runsc", 3, hot=1), entry(server, "runc", 1, hot=0))
    full(server, name, 3)
    wait_until(lambda: pool(server, name)["parked"] == 2, 240, "two members are parked")
    shown = server._admin("GET", f"/api/v1/pool/sandbox/{name}")
    assert [one["status"] for one in shown] == ["ready", "parked", "parked"]
    waiting = [one["name"] for one in shown]
    in_memory = lambda: {group.name for group in server.groups()} & set(waiting)  # noqa: E731
    wait_until(lambda: in_memory() == {waiting[0]}, 60, "a parked member has no process")
    server.crash()
    server.start()
    full(server, name, 3)
    assert [one["name"] for one in server._admin("GET", f"/api/v1/pool/sandbox/{name}")] == waiting
    ask = {"templateID": name, "timeout": 120, "secure": True, "metadata": {"own": "1"}, "envVars": {"OWN": "2"}}
    with ThreadPoolExecutor(3) as clients:
        answers = list(clients.map(lambda _: post(server, ask), range(3)))
    assert {(status, answer["shoal"]["origin"]) for status, answer in answers} == {(201, "pooled")}, answers
    assert {answer["sandboxID"] for _, answer in answers} & set(waiting[1:]), "at least one was parked"
    for _, answer in answers:
        sandbox = Sandbox.connect(answer["sandboxID"], **server.options())
        assert limits(server, sandbox.sandbox_id, "runsc") == AFTER
        said = sandbox.commands.run("echo $OWN $E2B_SANDBOX_ID; ls /tmp/started; date +%s")
        own, started, now = said.stdout.split("\n")[:3]
        assert (own, started) == (f"2 {sandbox.sandbox_id}", "/tmp/started")
        assert abs(int(now) - time.time()) < 5, "its clock continues"
        assert sandbox.commands.run(FETCH).stdout.strip() == "200", "the server that was warmed up answers"
        assert sandbox.commands.run("python3 -c 'print(len(bytearray(250 << 20)))'").stdout == f"{250 << 20}\n"
    assert pool(server, "warm-runc")["parked"] == 0, "what cannot be saved stays in memory"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_empty_pool_means_a_cold_create_and_says_so(server, runtime):
    put(server, entry(server, runtime, 0))
    status, answer = post(server, {"templateID": f"warm-{runtime}", "timeout": 60})
    assert status == 201 and answer["shoal"]["origin"] == "cold"
    assert limits(server, answer["sandboxID"], runtime) == AFTER
    assert pool(server, f"warm-{runtime}")["misses"] == 1


def test_what_never_becomes_ready_leaves_nothing_and_is_told(server):
    put(server, entry(server, "runsc", 1, warmupCmd="sh,/nothing/here", probePort=8889))
    name = "warm-runsc"
    fault = wait_until(lambda: pool(server, name)["lastError"], 120, "the failure")
    assert "warmupCmd" in fault["message"]
    status, answer = post(server, {"templateID": name, "timeout": 60})
    assert (status, answer["shoal"]["origin"]) == (201, "cold")
    wait_until(lambda: {g.name for g in server.groups()} <= {answer["sandboxID"], *members(server, name)}, 60, "its end")


def test_a_pool_follows_the_catalogue(server):
    put(server, entry(server, "runc", 3))
    before = full(server, "warm-runc", 3)
    put(server, entry(server, "runc", 1))
    assert full(server, "warm-runc", 1) == before[:1]
    changed = entry(server, "runc", 1) | {"env": {"NEW": "1"}}
    put(server, changed)
    wait_until(lambda: not set(members(server, "warm-runc")) & set(before), 60, "another member")
    full(server, "warm-runc", 1)
    assert server._admin("DELETE", "/api/v1/pool/warm-runc") == {"removed": 1}
    full(server, "warm-runc", 1)


@pytest.mark.timeout(300 + CLAIMS)
def test_of_many_claims_at_once_none_is_handed_out_twice(server):
    """Each client gets its own member; without a ready member it gets a new sandbox."""
    size = min(CLAIMS // 4, 40)
    put(server, entry(server, "runc", size))
    ready = set(full(server, "warm-runc", size))
    ask = {"templateID": "warm-runc", "timeout": 600}
    begin = threading.Barrier(CLAIMS)

    def claim(_: int) -> tuple[str, str]:
        begin.wait()
        status, answer = post(server, ask)
        if status == 504:
            # A slow machine cannot create this many within the timeout of a call.
            return "", "late"
        assert status == 201, answer
        return answer["sandboxID"], answer["shoal"]["origin"]

    with ThreadPoolExecutor(CLAIMS) as clients:
        told = list(clients.map(claim, range(CLAIMS)))
    told = [one for one in told if one[1] != "late"]
    assert len(told) >= size, "hardly a claim was answered in time"
    handed = [sandbox for sandbox, origin in told if origin == "pooled"]
    assert len({sandbox for sandbox, _ in told}) == len(told), "handed out twice"
    assert handed and {origin for _, origin in told} <= {"pooled", "cold"}
    print(f"{CLAIMS} claims, {len(handed)} members, {len(told) - len(handed)} made, {CLAIMS - len(told)} too late")
    # One that fails during a claim, as on a machine that is slow, is ended.
    kept = ready & set(full(server, "warm-runc", size))
    assert not kept, "a member that was ready was given to nobody"


@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_a_server_that_is_killed_hands_nothing_out_twice_and_leaves_nothing(server):
    """Killed while members are created and claimed. Acknowledged sandboxes belong to their clients."""
    chance = random.Random(7)
    put(server, *(entry(server, runtime, 3) for runtime in RUNTIMES))
    for runtime in RUNTIMES:
        full(server, f"warm-{runtime}", 3)
    told: list[str] = []
    ending = threading.Event()

    def ask(runtime: str):
        while not ending.is_set():
            try:
                status, answer = post(server, {"templateID": f"warm-{runtime}", "timeout": 600})
            except (OSError, ValueError, http.client.HTTPException):
                ending.wait(0.05)
                continue
            if status == 201:
                told.append(answer["sandboxID"])
            ending.wait(0.6)

    with ThreadPoolExecutor(2) as clients:
        asking = [clients.submit(ask, runtime) for runtime in RUNTIMES]
        for _ in range(ROUNDS):
            time.sleep(chance.uniform(0.1, 1.5))
            server.crash()
            server.start()
        ending.set()
        for one in asking:
            one.result()
    assert len(told) == len(set(told)), "handed out twice"
    ready = {name for runtime in RUNTIMES for name in full(server, f"warm-{runtime}", 3)}
    assert not ready & set(told)
    left = listed(server)
    assert set(told) <= left
    # An unacknowledged claim lives until its deadline; every other sandbox is gone.
    wait_until(lambda: {group.name for group in server.groups()} == ready | left, 240, "only what is known")
