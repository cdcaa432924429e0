"""Pause, resume, snapshots, clones and resizes, with the SDKs for Python."""

import asyncio
import socket
import time
import uuid

import pytest
from e2b import AsyncTemplate, CommandExitException, SandboxQuery, Template
from e2b.exceptions import (
    NotFoundException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
)

from ..hostile.machine import Call
from .conftest import done

#: Counts its input lines from 41 on, and prints the file that it keeps open.
COUNTER = """
import sys
x, held = 41, open('/tmp/held', 'w+')
for line in sys.stdin:
    x += 1
    held.write(line); held.flush(); held.seek(0)
    print(line.strip(), x, len(held.read().splitlines()), flush=True)
"""


class Counter:
    """A program with a state in memory, which it prints on request."""

    def __init__(self, sdk, sandbox, pid):
        self.sdk, self.sandbox, self.pid = sdk, sandbox, pid

    @classmethod
    async def start(cls, sdk, sandbox):
        await done(sandbox.files.write("/tmp/counter.py", COUNTER))
        handle = await done(
            sandbox.commands.run("python3 /tmp/counter.py", background=True, stdin=True, timeout=0)
        )
        return cls(sdk, sandbox, handle.pid)

    def on(self, sandbox):
        return Counter(self.sdk, sandbox, self.pid)

    async def ask(self, word: str) -> str:
        """Its output for one more line."""
        said = []
        if self.sdk.name == "async":
            handle = await self.sandbox.commands.connect(
                self.pid, timeout=60, on_stdout=said.append
            )
            await self.sandbox.commands.send_stdin(self.pid, f"{word}\n")
            async with asyncio.timeout(60):
                while "\n" not in "".join(said):
                    await asyncio.sleep(0.005)
            await handle.disconnect()
            return "".join(said).strip()
        handle = self.sandbox.commands.connect(self.pid, timeout=60)
        self.sandbox.commands.send_stdin(self.pid, f"{word}\n")
        for out, _, _ in handle:
            said.append(out or "")
            if "\n" in "".join(said):
                break
        handle.disconnect()
        return "".join(said).strip()


async def state(sandbox) -> str:
    return (await done(sandbox.get_info())).state.value


async def reached(sandbox, wanted: str) -> None:
    """Waits until the sandbox is in this state."""
    end = time.monotonic() + 60
    while await state(sandbox) != wanted:
        assert time.monotonic() < end, f"not {wanted} in time"
        await asyncio.sleep(0.02)


async def test_a_sandbox_that_is_being_paused_runs_or_does_not(sdk, shared):
    """Concurrent requests see one of the two states, and no error."""
    sandbox = await sdk.create(timeout=300)
    pausing = asyncio.create_task(asyncio.to_thread(Call(shared).post, f"/sandboxes/{sandbox.sandbox_id}/pause", {}))
    seen = []
    while not pausing.done():
        seen.append(await done(sandbox.is_running()))
        await asyncio.sleep(0.005)
    assert (await pausing)[0] == 204
    assert set(seen) <= {True, False} and seen == sorted(seen, reverse=True)
    assert await done(sandbox.is_running()) is False
    await done(sandbox.kill())


async def test_memory_processes_and_open_files_survive_a_pause(sdk):
    sandbox = await sdk.create(timeout=300, metadata={"k": "v"}, envs={"OWN": "1"})
    counter = await Counter.start(sdk, sandbox)
    assert await counter.ask("one") == "one 42 1"
    await done(sandbox.files.write("kept", "hello"))
    before = await done(sandbox.get_info())
    assert await done(sandbox.pause()) is True
    assert await state(sandbox) == "paused"
    assert await done(sandbox.is_running()) is False
    assert await done(sandbox.pause()) is False, "once is enough"
    again = await sdk.call("connect", sandbox.sandbox_id, timeout=200)
    after = await done(again.get_info())
    assert after.metadata == {"k": "v"} and after.started_at > before.started_at
    assert await counter.on(again).ask("two") == "two 43 2"
    assert await done(again.files.read("kept")) == "hello"
    asked = time.time()
    ran = await done(again.commands.run("echo $OWN; hostname; date +%s"))
    own, name, now = ran.stdout.split()
    assert (own, name) == ("1", sandbox.sandbox_id)
    assert asked - 5 < int(now) < time.time() + 5, "the clock is right"
    assert await done(again.kill()) is True


async def test_what_is_written_between_pauses_is_there_after_all_of_them(sdk, runtime):
    sandbox = await sdk.create(timeout=300, runtime=runtime)
    memory = {"keep_memory": False} if runtime == "runc" else {}
    for number in range(1, 5):
        await done(sandbox.files.write(f"f{number}", str(number)))
        await done(sandbox.commands.run(f"echo {number} >> all; rm -f f{number - 2}"))
        await done(sandbox.pause(**memory))
        sandbox = await sdk.call("connect", sandbox.sandbox_id)
        assert await done(sandbox.files.read("all")) == "".join(f"{n}\n" for n in range(1, number + 1))
        assert await done(sandbox.files.read(f"f{number}")) == str(number)
    names = {entry.name for entry in await done(sandbox.files.list("."))}
    assert {"f3", "f4", "all"} <= names and not {"f1", "f2"} & names


async def test_a_pause_of_the_disk_alone_boots_anew(sdk, runtime):
    sandbox = await sdk.create(timeout=300, runtime=runtime)
    handle = await done(sandbox.commands.run("sleep 1000", background=True))
    await done(sandbox.commands.run("dd if=/dev/urandom of=big bs=1M count=8 2>&1; md5sum big > sum"))
    await done(sandbox.pause(keep_memory=False))
    again = await sdk.call("connect", sandbox.sandbox_id)
    assert (await done(again.commands.run("md5sum -c sum"))).exit_code == 0
    listed = [process.cmd for process in await done(again.commands.list())]
    assert "sleep" not in " ".join(listed), listed
    assert handle.pid


async def test_memory_may_be_left_behind_at_the_resume(sdk):
    sandbox = await sdk.create(timeout=300)
    counter = await Counter.start(sdk, sandbox)
    assert await counter.ask("one") == "one 42 1"
    await done(sandbox.pause())
    again = await sdk.call("connect", sandbox.sandbox_id, on_resume="reboot")
    assert await done(again.commands.list()) == []
    assert await done(again.files.exists("/tmp/counter.py"))


async def test_what_a_runtime_cannot_keep_is_refused_by_name(sdk):
    sandbox = await sdk.create(timeout=300, runtime="runc")
    for call in (sandbox.pause, sandbox.create_snapshot, sandbox.fork):
        with pytest.raises(SandboxException, match="runtime runc cannot keep memory") as raised:
            await done(call())
        assert raised.value.status_code == 400
    assert await done(sandbox.is_running())
    with pytest.raises(SandboxException, match="runtime runc cannot keep memory"):
        await sdk.create(runtime="runc", lifecycle={"on_timeout": "pause"})


@pytest.mark.server
async def test_a_command_finds_the_rest_of_its_time_after_a_pause(sdk):
    sandbox = await sdk.create(timeout=300)
    # The pause takes longer than the command's timeout.
    handle = await done(sandbox.commands.run("sleep 1000", background=True, timeout=25))
    await done(sandbox.pause())
    await asyncio.sleep(26)
    again = await sdk.call("connect", sandbox.sandbox_id)
    assert [process.pid for process in await done(again.commands.list())] == [handle.pid]
    end = time.monotonic() + 90
    while await done(again.commands.list()):
        assert time.monotonic() < end, "its time is over"
        await asyncio.sleep(0.1)


#: Keeps one external and one internal connection; reports the second when the first breaks.
HOLDS = """
import socket
outside = socket.create_server(("", 8000))
inside = socket.create_server(("127.0.0.1", 8001))
far = socket.create_connection(("127.0.0.1", 8001))
near, _ = inside.accept()
open("/tmp/ready", "w").close()
line, _ = outside.accept()
line.recv(4096)
line.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 1000\\r\\n\\r\\nopen")
try:
    said = line.recv(1)
except OSError:
    said = b""
assert said == b"", said
near.sendall(b"hello")
with open("/tmp/noted", "wb") as noted:
    noted.write(b"gone " + far.recv(5))
while True:
    outside.accept()
"""


@pytest.mark.server
async def test_a_connection_that_is_open_does_not_stand_in_the_way_and_ends_with_a_pause(sdk):
    sandbox = await sdk.create(timeout=300)
    await done(sandbox.files.write("holds.py", HOLDS))
    await done(sandbox.commands.run("python3 holds.py", background=True, timeout=0))
    await done(sandbox.commands.run("until [ -e /tmp/ready ]; do sleep 0.05; done"))
    host, port = sdk.server.url.split("//")[1].split(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(
            b"GET / HTTP/1.1\r\nHost: sandbox\r\n"
            + f"E2b-Sandbox-Id: {sandbox.sandbox_id}\r\nE2b-Sandbox-Port: 8000\r\n\r\n".encode())
        seen = b""
        while not seen.endswith(b"open"):
            piece = line.recv(4096)
            assert piece, seen
            seen += piece
        snapshot = await done(sandbox.create_snapshot())
        assert not await done(sandbox.files.exists("/tmp/noted")), "the source and its clients continue"
        clone = await sdk.create(snapshot.snapshot_id)
        noted = "until grep -s hello /tmp/noted; do sleep 0.05; done"
        # A clone's external connection has no peer; its internal one has both ends.
        assert (await done(clone.commands.run(noted, timeout=60))).stdout == "gone hello\n"
        assert not await done(sandbox.files.exists("/tmp/noted"))
        await done(sandbox.pause())
        try:
            assert line.recv(4096) == b"", "it ends with the pause"
        except ConnectionResetError:
            pass
    again = await sdk.call("connect", sandbox.sandbox_id)
    assert (await done(again.commands.run(noted, timeout=60))).stdout == "gone hello\n"
    # Listeners still listen.
    await done(again.commands.run("exec 3<>/dev/tcp/127.0.0.1/8000"))
    await sdk.call("delete_snapshot", snapshot.snapshot_id)


async def test_the_clone_tutorial_of_alibaba_cloud_runs(sdk):
    """Alibaba Cloud ACS, "Clone an Agent Sandbox with Checkpoint": one sandbox keeps its memory, one does not."""
    with_memory, without = await sdk.create(timeout=300), await sdk.create(timeout=300)
    counters = []
    for sandbox in (with_memory, without):
        counters.append(await Counter.start(sdk, sandbox))
        assert await counters[-1].ask("a") == "a 42 1"
        await done(sandbox.files.write("/my-file", "hello", user="root"))
    kept = await done(with_memory.create_snapshot())
    headers = {
        "x-e2b-kruise-snapshot-keep-running": "true",
        "x-e2b-kruise-snapshot-ttl": "30m",
        "x-e2b-kruise-snapshot-persistent-contents": "filesystem",
        "x-e2b-kruise-snapshot-wait-success-seconds": "60",
    }
    files = await done(without.create_snapshot(headers=headers))
    for sandbox in (with_memory, without):
        assert await done(sandbox.kill()) is True
    clone = await sdk.create(kept.snapshot_id)
    assert await counters[0].on(clone).ask("b") == "b 43 2"
    assert await done(clone.files.read("/my-file")) == "hello"
    clone = await sdk.create(files.snapshot_id)
    with pytest.raises((NotFoundException, CommandExitException)):
        await counters[1].on(clone).ask("b")
    assert await done(clone.files.read("/my-file")) == "hello"
    for snapshot in (kept, files):
        assert await sdk.call("delete_snapshot", snapshot.snapshot_id) is True


async def test_a_clone_may_be_secured_or_not_whatever_its_source_was(sdk):
    for first, second in ((True, False), (False, True)):
        sandbox = await sdk.create(secure=first)
        snapshot = await done(sandbox.create_snapshot())
        clone = await sdk.create(snapshot.snapshot_id, secure=second)
        assert (await done(clone.commands.run("echo hello"))).stdout == "hello\n"
        for one in (sandbox, clone):
            await done(one.kill())
        await sdk.call("delete_snapshot", snapshot.snapshot_id)


async def test_a_snapshot_may_end_its_source(sdk):
    sandbox = await sdk.create(timeout=300)
    headers = {"x-e2b-kruise-snapshot-keep-running": "false"}
    snapshot = await done(sandbox.create_snapshot(headers=headers))
    with pytest.raises(SandboxNotFoundException):
        await done(sandbox.get_info())
    await sdk.call("delete_snapshot", snapshot.snapshot_id)


@pytest.mark.server
async def test_a_snapshot_goes_by_itself(sdk):
    sandbox = await sdk.create(timeout=300)
    headers = {"x-e2b-kruise-snapshot-ttl": "1s"}
    snapshot = await done(sandbox.create_snapshot(headers=headers))
    end = time.monotonic() + 60
    while await done(sandbox.list_snapshots().next_items()):
        assert time.monotonic() < end, "its time is over"
        await asyncio.sleep(0.05)
    with pytest.raises(SandboxException, match="not found"):
        await sdk.create(snapshot.snapshot_id)


@pytest.mark.parametrize("name, value", [
    ("keep-running", "perhaps"), ("ttl", "soon"), ("persistent-contents", "memory"),
    ("persistent-contents", "disk"), ("wait-success-seconds", "-1"),
])
async def test_a_header_that_makes_no_sense_is_named(sdk, sandbox_of_module, name, value):
    header = f"x-e2b-kruise-snapshot-{name}"
    with pytest.raises(SandboxException, match=header) as raised:
        await done(sandbox_of_module.create_snapshot(headers={header: value}))
    assert raised.value.status_code == 400


@pytest.fixture(scope="module")
async def sandbox_of_module(sdk):
    return await sdk.create(timeout=900)


async def test_who_pauses_or_connects_at_once_shares_what_comes_of_it(sdk):
    sandbox = await sdk.create(timeout=300)

    async def at_once(call, **arguments):
        """Three clients of the SDK, each in a separate thread if it blocks."""
        if sdk.name == "async":
            return await asyncio.gather(*(sdk.call(call, sandbox.sandbox_id, **arguments) for _ in range(3)))
        calls = (
            asyncio.to_thread(asyncio.run, sdk.call(call, sandbox.sandbox_id, **arguments))
            for _ in range(3)
        )
        return await asyncio.gather(*calls)

    for _ in range(5):
        told = await at_once("pause")
        assert True in told
        if all(told):
            break
        # On a busy machine, one of them came when the others were done.
        await sdk.call("connect", sandbox.sandbox_id, timeout=300)
    assert told == [True, True, True]
    assert await sdk.call("pause", sandbox.sandbox_id) is False, "it was paused before"
    connected = await at_once("connect", timeout=300)
    assert {one.sandbox_id for one in connected} == {sandbox.sandbox_id}
    assert (await done(connected[0].commands.run("echo on"))).stdout == "on\n"


async def test_snapshots_have_names_tags_and_pages(sdk):
    sandbox = await sdk.create(timeout=300)
    taken = []
    for name in (None, f"work-{sdk.name}", f"work-{sdk.name}:v1", f"work-{sdk.name}"):
        taken.append(await done(sandbox.create_snapshot(name)))
    unnamed, first, tagged, second = taken
    assert unnamed.snapshot_id.endswith(":default") and unnamed.names == []
    assert first.snapshot_id == second.snapshot_id
    assert first.names == tagged.names == [first.snapshot_id.removesuffix(":default")]
    pages = sandbox.list_snapshots(limit=1)
    seen = []
    while pages.has_next:
        page = await done(pages.next_items())
        assert len(page) <= 1
        seen += [one.snapshot_id for one in page]
    assert sorted(seen) == sorted({one.snapshot_id for one in taken})
    named = await done(sandbox.list_snapshots(name=f"work-{sdk.name}").next_items())
    assert [one.snapshot_id for one in named] == [second.snapshot_id], "the newest of the name"
    named = await done(sandbox.list_snapshots(name=f"work-{sdk.name}:v1").next_items())
    assert [one.snapshot_id for one in named] == [tagged.snapshot_id]
    tagging = AsyncTemplate if sdk.name == "async" else Template
    options = {key: value for key, value in sdk.server.options().items() if key != "sandbox_url"}
    await done(tagging.assign_tags(tagged.snapshot_id, ["stable"], **options))
    named = await done(sandbox.list_snapshots(name=f"work-{sdk.name}:stable").next_items())
    assert [one.snapshot_id for one in named] == [tagged.snapshot_id]
    for one in {one.snapshot_id for one in taken}:
        assert await sdk.call("delete_snapshot", one) is True
        assert await sdk.call("delete_snapshot", one) is False


async def test_a_clone_is_itself_and_goes_its_own_way(sdk, runtime):
    source = await sdk.create(timeout=300, runtime=runtime)
    who = (
        "cat /etc/hostname /etc/machine-id /run/e2b/.E2B_SANDBOX_ID; echo; hostname;"
        " echo $E2B_SANDBOX_ID"
    )
    mine = (await done(source.commands.run(who))).stdout.split()
    await done(source.commands.run("echo '10.9.8.7 db' | sudo tee -a /etc/hosts; echo base > own"))
    mode = {"mode": "filesystem"} if runtime == "runc" else {}
    snapshot = await done(source.create_snapshot(**mode))
    clones = [await sdk.create(snapshot.snapshot_id) for _ in range(2)]
    seen = {mine[1]}
    for clone in clones:
        name, machine, *rest = (await done(clone.commands.run(who))).stdout.split()
        assert {name, *rest} == {clone.sandbox_id}
        seen.add(machine)
        hosts = (await done(clone.commands.run("cat /etc/hosts"))).stdout
        assert "10.9.8.7 db" in hosts and source.sandbox_id not in hosts
        assert clone.sandbox_id in hosts
        await done(clone.files.write("own", clone.sandbox_id))
    assert len(seen) == 3, "three machines"
    drawn = [await done(one.commands.run("head -c 16 /dev/urandom | md5sum")) for one in clones]
    assert drawn[0].stdout != drawn[1].stdout, "what the kernel draws is its own"
    assert (await done(source.files.read("own"))) == "base\n"
    await sdk.call("delete_snapshot", snapshot.snapshot_id)
    for clone in clones:
        assert await done(clone.files.read("own")) == clone.sandbox_id, "it works without it"


@pytest.mark.server
async def test_the_original_and_its_clone_do_not_open_each_other(sdk):
    source = await sdk.create(timeout=300)
    snapshot = await done(source.create_snapshot())
    clone = await sdk.create(snapshot.snapshot_id)
    tokens = {source._envd_access_token, clone._envd_access_token}
    assert len(tokens) == 2
    import httpx

    for sandbox, other in ((source, clone), (clone, source)):
        answer = httpx.get(
            f"{sdk.server.url}/files?path=/etc/hostname&username=user",
            headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983",
                     "X-Access-Token": other._envd_access_token}, timeout=60,
        )
        assert answer.status_code == 401
    await sdk.call("delete_snapshot", snapshot.snapshot_id)


async def test_forks_begin_where_it_is_and_go_their_own_way(sdk):
    source = await sdk.create(timeout=300, metadata={"of": "forks"})
    counter = await Counter.start(sdk, source)
    assert await counter.ask("one") == "one 42 1"
    forks = await done(source.fork(timeout=120, count=4))
    assert len({fork.sandbox_id for fork in forks}) == 4
    for fork in forks:
        sdk.made.append((fork.sandbox_id, sdk.server.options()["api_key"]))
        assert await counter.on(fork).ask("two") == "two 43 2"
    assert await counter.ask("three") == "three 43 2"
    assert await sdk.listed() is not None
    assert not await done(source.list_snapshots().next_items())


async def test_a_paused_sandbox_says_that_connect_resumes_it(sdk):
    sandbox = await sdk.create(timeout=300)
    await done(sandbox.pause())
    # The exception is that of a sandbox that does not run, as in E2B.
    for call in (lambda: sandbox.commands.run("true"), lambda: sandbox.files.read("/etc/hostname")):
        with pytest.raises(SandboxNotRunningException, match="it is paused. connect resumes it"):
            await done(call())
    await sdk.call("connect", sandbox.sandbox_id)
    assert (await done(sandbox.commands.run("echo on"))).stdout == "on\n"
    await done(sandbox.kill())


async def test_a_fork_of_what_rests_is_refused(sdk):
    sandbox = await sdk.create(timeout=300)
    await done(sandbox.pause())
    for call, status in ((sandbox.fork, 409), (sandbox.create_snapshot, 400)):
        with pytest.raises(SandboxException) as raised:
            await done(call())
        assert raised.value.status_code == status


async def test_a_sandbox_rests_at_its_end_and_traffic_wakes_it(sdk):
    sandbox = await sdk.create(
        timeout=300, lifecycle={"on_timeout": "pause", "auto_resume": True}
    )
    counter = await Counter.start(sdk, sandbox)
    assert await counter.ask("one") == "one 42 1"
    await done(sandbox.set_timeout(1))
    await reached(sandbox, "paused")
    assert await counter.ask("two") == "two 43 2", "the request that wakes it is answered"
    info = await done(sandbox.get_info())
    assert info.state.value == "running"
    left = (info.end_at - info.started_at).total_seconds()
    # A slow machine needs some seconds between the two.
    assert 240 <= left <= 360, left


async def test_without_auto_resume_it_rests_until_it_is_asked_for(sdk):
    sandbox = await sdk.create(timeout=300, lifecycle={"on_timeout": "pause"})
    await done(sandbox.set_timeout(1))
    await reached(sandbox, "paused")
    with pytest.raises(SandboxException):
        await done(sandbox.commands.run("true"))
    assert await state(sandbox) == "paused"
    again = await sdk.call("connect", sandbox.sandbox_id)
    assert (await done(again.commands.run("echo on"))).stdout == "on\n"


async def test_at_its_end_the_disk_alone_may_be_kept(sdk, runtime):
    lifecycle = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
    sandbox = await sdk.create(timeout=300, runtime=runtime, lifecycle=lifecycle)
    await done(sandbox.files.write("kept", "hello"))
    await done(sandbox.commands.run("sleep 600", background=True))
    await done(sandbox.set_timeout(1))
    await reached(sandbox, "paused")
    again = await sdk.call("connect", sandbox.sandbox_id)
    assert await done(again.files.read("kept")) == "hello"
    assert await done(again.commands.list()) == []


async def test_many_requests_wake_it_once(sdk):
    if sdk.name == "sync":
        pytest.skip("many at once are the async SDK's")
    sandbox = await sdk.create(
        timeout=300, lifecycle={"on_timeout": "pause", "auto_resume": True}
    )
    await done(sandbox.pause())
    ran = await asyncio.gather(*(sandbox.commands.run("echo on") for _ in range(20)))
    assert {one.stdout for one in ran} == {"on\n"}


async def test_what_rests_can_be_ended(sdk):
    sandbox = await sdk.create(timeout=300)
    await done(sandbox.pause())
    assert await done(sandbox.kill()) is True
    assert await done(sandbox.kill()) is False
    with pytest.raises(SandboxNotFoundException):
        await sdk.call("connect", sandbox.sandbox_id)


@pytest.mark.server
async def test_rules_and_tokens_stay_over_a_pause(sdk):
    sandbox = await sdk.create(timeout=300, allow_internet_access=False)
    await done(sandbox.pause())
    again = await sdk.call("connect", sandbox.sandbox_id)
    info = await done(again.get_info())
    assert info.allow_internet_access is False
    assert again._envd_access_token == sandbox._envd_access_token
    with pytest.raises(CommandExitException):
        await done(again.commands.run("curl -m 2 -s http://203.0.113.9/"))


FACTOR = "e2b.agents.kruise.io/cpu-scale-factor"


def quota(sdk, sandbox) -> float:
    """The processor limit of a sandbox, as the kernel has it."""
    groups = [group for group in sdk.server.groups() if group.name == sandbox.sandbox_id]
    for group in groups:
        if (group / "cpu.cfs_quota_us").exists():
            return int((group / "cpu.cfs_quota_us").read_text()) / 100_000
        if (group / "cpu.max").exists():
            return int((group / "cpu.max").read_text().split()[0]) / 100_000
    raise AssertionError("no group of the sandbox bounds its processors")


@pytest.mark.server
async def test_a_factor_is_in_force_when_the_sandbox_is_there(sdk):
    plain = await sdk.create(timeout=300)
    whole = quota(sdk, plain)
    half = await sdk.create(timeout=300, metadata={FACTOR: "0.5"})
    assert quota(sdk, half) == whole / 2
    call = Call(sdk.server)
    assert call.get(f"/sandboxes/{half.sandbox_id}")[1]["shoal"]["resize"] == "completed"
    assert (await done(half.commands.run("echo on"))).stdout == "on\n"


@pytest.mark.server
async def test_who_does_not_wait_for_the_factor_has_it_soon(sdk):
    whole = quota(sdk, await sdk.create(timeout=300))
    early = {"e2b.agents.kruise.io/cpu-resize-early-return": "true"}
    sandbox = await sdk.create(timeout=300, metadata={FACTOR: "0.5"} | early)
    # It may be used before, and other changes meanwhile do not affect it.
    assert (await done(sandbox.commands.run("echo on"))).stdout == "on\n"
    call = Call(sdk.server)
    path = f"/api/v1/sandbox/{sandbox.sandbox_id}/resources"
    status, answer = call("PATCH", path, {"memory": 700})
    assert status == 200, answer
    seen, end = None, time.monotonic() + 60
    while seen != "completed":
        assert time.monotonic() < end, seen
        seen = call.get(f"/sandboxes/{sandbox.sandbox_id}")[1]["shoal"]["resize"]
        assert seen in ("in_progress", "completed")
    assert quota(sdk, sandbox) == whole / 2
    assert call.get(f"/sandboxes/{sandbox.sandbox_id}")[1]["memoryMB"] == 700


@pytest.mark.alone
@pytest.mark.server
async def test_processor_time_grows_in_place(sdk):
    small = await sdk.create(
        timeout=300, metadata={"e2b.agents.kruise.io/cpu-limit": "500m"}
    )
    info = await done(small.get_info())
    assert info.cpu_count == 1
    # Two loops for a fixed wall-clock time: their progress shows the processor time. (gVisor also counts
    # the time during which the kernel throttled them.)
    burn = (
        "python3 -c \"import os,time; os.fork(); e=time.time()+1.5; n=0\n"
        "while time.time()<e:\n n+=sum(range(1000)) and 1\nprint(n)\""
    )

    async def used() -> int:
        ran = await done(small.commands.run(burn))
        return sum(int(line) for line in ran.stdout.split())

    counter = await Counter.start(sdk, small)
    assert await counter.ask("one") == "one 42 1"
    little = await used()
    assert quota(sdk, small) == 0.5
    import httpx

    answer = httpx.patch(
        f"{sdk.server.url}/api/v1/sandbox/{small.sandbox_id}/resources",
        headers={"X-API-Key": sdk.server.options()["api_key"]},
        json={"cpu": 2}, timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert (await done(small.get_info())).cpu_count == 2
    assert quota(sdk, small) == 2
    # Four times as much; half of that on a shared machine.
    much = await used()
    assert much > little * 1.3, (little, much)
    assert await counter.ask("two") == "two 43 2", "the same processes continue"


@pytest.mark.parametrize("value", ["NaN", "inf", "0", "-1", "two", ""])
async def test_a_factor_that_makes_no_sense_is_named(sdk, value):
    with pytest.raises(SandboxException, match="cpu-scale-factor") as raised:
        await sdk.create(metadata={FACTOR: value})
    assert raised.value.status_code == 400


@pytest.mark.server
async def test_what_cannot_be_given_is_not_handed_out(sdk):
    mark = {"mark": str(uuid.uuid4())}
    with pytest.raises(SandboxException) as raised:
        await sdk.create(metadata={FACTOR: "50"} | mark)
    assert raised.value.status_code == 409
    assert await sdk.listed(query=SandboxQuery(metadata=mark)) == []


@pytest.mark.server
async def test_clocks_are_right_after_a_pause_and_in_a_clone(sdk):
    sandbox = await sdk.create(timeout=300)

    async def off(one) -> float:
        """The difference between its clock and the machine's, within the round-trip time."""
        before = time.time()
        said = float((await done(one.commands.run("date +%s.%N"))).stdout)
        after = time.time()
        return max(before - said, said - after, 0)

    assert await off(sandbox) < 0.5
    snapshot = await done(sandbox.create_snapshot())
    await done(sandbox.pause())
    # Long enough to be noticed.
    await asyncio.sleep(2)
    again = await sdk.call("connect", sandbox.sandbox_id)
    clone = await sdk.create(snapshot.snapshot_id)
    assert await off(again) < 0.5 and await off(clone) < 0.5


@pytest.mark.server
async def test_timers_fire_after_a_pause(sdk):
    sandbox = await sdk.create(timeout=300)
    # One timer that ends during the pause, and one that does not.
    for seconds in (1, 4):
        await done(sandbox.commands.run(
            f"bash -c 'date +%s.%N > /tmp/began-{seconds}; sleep {seconds}; date +%s.%N > /tmp/fired-{seconds}'",
            background=True, timeout=0))
    await done(sandbox.commands.run("until [ -s /tmp/began-1 ] && [ -s /tmp/began-4 ]; do sleep 0.05; done"))
    await done(sandbox.pause())
    await asyncio.sleep(2)
    again = await sdk.call("connect", sandbox.sandbox_id)
    await done(again.commands.run("until [ -s /tmp/fired-1 ] && [ -s /tmp/fired-4 ]; do sleep 0.05; done", timeout=60))
    began, fired = [float(await done(again.files.read(f"/tmp/{what}-4"))) for what in ("began", "fired")]
    assert fired - began > 2
