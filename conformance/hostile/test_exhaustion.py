"""A sandbox that exhausts resources harms only itself, can be killed, and leaves nothing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox

from ..installation import OVERHEAD, resident_kib, wait_until
from .conftest import LIMITS, create
from .machine import Call

#: How long a response may take under a neighbour's attack. All share two processors, with other suites.
PATIENCE = 60


#: The duration of an attack in seconds.
WILD = float(os.environ.get("SHOAL_ATTACK_SECONDS", "1.5"))


class Others:
    """Calls another sandbox and the server continuously, and records the latencies."""

    def __init__(self, server, neighbour):
        self.server, self.neighbour = server, neighbour
        self.slowest, self.asked, self.wrong = 0.0, 0, []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.ask, daemon=True)

    def __enter__(self) -> "Others":
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join(240)

    def ask(self):
        while not self.ending.is_set():
            begun = time.monotonic()
            try:
                assert self.neighbour.commands.run("echo well", timeout=120).stdout == "well\n"
                assert Call(self.server, timeout=120).get("/v2/sandboxes")[0] == 200
            except Exception as error:  # noqa: BLE001 — the test reports it
                self.wrong.append(repr(error))
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.asked += 1
            self.ending.wait(0.1)


@pytest.fixture(scope="module", autouse=True)
def nothing_leaves(internet):
    """The flood goes to a fake internet."""


@pytest.fixture(scope="module")
def neighbour(server, runtime):
    made = create(server, runtime, team="other", timeout=900)
    yield made
    made.kill()


FORK = "python3 -c 'import os\nwhile True:\n try: os.fork()\n except OSError: pass'"

ATTACKS = {
    "fork bomb": FORK,
    "shell fork bomb": "b() { b | b & }; b; sleep 60",
    "memory bomb": "python3 -c 'a=[]\nwhile True: a.append(bytearray(1<<20))'",
    "memory bomb of many": "for n in $(seq 16); do python3 -c 'a=[]\nwhile True: a.append(bytearray(1<<20))' & done; wait",
    "shared memory": "dd if=/dev/zero of=/dev/shm/x bs=1M; dd if=/dev/zero of=/tmp/x bs=1M; sleep 60",
    "disk fill": "while :; do dd if=/dev/zero of=/home/user/$RANDOM bs=1M count=64 || sleep .2; done",
    "inode fill": "python3 -c 'n=0\nwhile True:\n try: open(f\"/home/user/f{n}\",\"w\").close(); n+=1\n except OSError: pass'",
    "directories fill": "python3 -c 'import os\nn=0\nwhile True:\n try: os.makedirs(f\"/home/user/d{n%100}/\"+\"/\".join(str(n).zfill(8))); n+=1\n except OSError: pass'",
    "log flood": "sudo sh -c 'while :; do head -c 1000000 /dev/zero | tr \"\\0\" x > /proc/1/fd/1; yes flood | head -n 100000 > /proc/1/fd/2; done'",
    "output flood": "yes flooding | head -c 300000000",
    "zombie flood": "python3 -c 'import os\nwhile True:\n try:\n  if os.fork()==0: os._exit(0)\n except OSError: pass'",
    "orphans": "python3 -c 'import os\nwhile True:\n try:\n  if os.fork()==0:\n   if os.fork()==0: os._exit(0)\n   os._exit(0)\n  os.wait()\n except OSError: pass'",
    "descriptors": "for n in $(seq 8); do python3 -c 'import os,time\nf=[]\nwhile True:\n try: f.append(os.open(\"/dev/null\",0))\n except OSError: time.sleep(.1)' & done; wait",
    "sockets": "for n in $(seq 8); do python3 -c 'import socket,time\nf=[]\nwhile True:\n try: f.append(socket.socket()); f.append(socket.socketpair())\n except OSError: time.sleep(.1)' & done; wait",
    "pipes": "python3 -c 'import os,time\nf=[]\nwhile True:\n try:\n  r,w=os.pipe(); os.set_blocking(w,False); os.write(w,b\"x\"*65536); f.append((r,w))\n except OSError: time.sleep(.1)'",
    "watches": "python3 -c 'import ctypes,time\nl=ctypes.CDLL(None)\nwhile True:\n if l.inotify_init()<0: time.sleep(.1)'",
    "timers and threads": "python3 -c 'import threading,time\nwhile True:\n try: threading.Thread(target=time.sleep,args=(99,),daemon=True).start()\n except RuntimeError: time.sleep(.1)'",
    "connections": "python3 -c 'import socket\nf=[]\nwhile True:\n try:\n  s=socket.socket(); s.setblocking(False); s.connect_ex((\"198.51.100.7\",7777)); f.append(s)\n except OSError: f.clear()'",
    "datagrams": "python3 -c 'import socket\ns=socket.socket(2,2)\nn=0\nwhile True:\n n+=1\n try: s.sendto(b\"x\"*1200,(\"198.51.100.7\",1024+n%60000))\n except OSError: pass'",
    "locks and sync": "for n in $(seq 4); do (while :; do dd if=/dev/zero of=/home/user/s$n bs=4k count=100 conv=fsync 2>/dev/null; sync; done) & done; wait",
    "calls": "for n in $(seq 16); do (while :; do :; done) & done; wait",
}


def numbers(server, sandbox: str, name: str) -> list[int]:
    """The kernel's counters of a sandbox, in the hierarchies that know this name."""
    found = []
    for group in server.groups():
        # A list of processes would count some that end and others that start while it is read.
        if group.name == sandbox and (group / name).exists():
            try:
                found.append(int((group / name).read_text()))
            except OSError:
                # It is gone meanwhile.
                pass
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_a_greedy_sandbox_harms_only_itself(server, runtime, neighbour, name):
    attacker = create(server, runtime, timeout=300)
    sandbox = attacker.sandbox_id
    begun = resident_kib(server.process.pid)
    assert numbers(server, sandbox, "pids.current")
    with Others(server, neighbour) as others:
        try:
            attacker.commands.run(ATTACKS[name], background=True, timeout=0)
        except Exception:  # noqa: BLE001 — it may be gone before it has answered
            pass
        end, most = time.monotonic() + WILD, 0
        # On a slow machine, a call of the others takes longer than the attack would.
        while time.monotonic() < end or (others.asked < 2 and time.monotonic() < end + 2 * PATIENCE):
            most = max([most, *numbers(server, sandbox, "pids.current")])
            time.sleep(0.2)
        killed = time.monotonic()
        status, answer = Call(server, timeout=120).delete(f"/sandboxes/{sandbox}")
        killed = time.monotonic() - killed
    # It may have died by itself; in either case it is gone.
    assert status in (204, 404), answer
    # The kernel enforces the limit.
    assert most <= LIMITS["pids"] + 1
    assert not others.wrong, others.wrong[:3]
    assert others.asked > 1 and others.slowest < PATIENCE, others.slowest
    assert killed < PATIENCE
    gone = lambda: [line for line in server.leftovers() if sandbox in line]  # noqa: E731
    wait_until(lambda: not gone() and not server.processes(sandbox), 60, f"clearing: {gone()}")
    assert resident_kib(server.process.pid) - begun < 64 << 10
    assert server.process.poll() is None


def test_a_full_disk_affects_only_the_sandbox(server, runtime, neighbour):
    """Writes are bounded and fail with an error, and deleting frees the space again."""
    full = create(server, runtime)
    try:
        said = full.commands.run("dd if=/dev/zero of=/home/user/big bs=1M count=4096 2>&1; stat -c %s /home/user/big").stdout
        assert "No space" in said or "quota" in said.lower(), said
        assert int(said.split()[-1]) <= (LIMITS["disk"] + 8) << 20
        status, answer = Call(server, None).post(
            "/files?path=more", b"x" * (4 << 20),
            headers={"E2b-Sandbox-Id": full.sandbox_id, "E2b-Sandbox-Port": "49983",
                     "X-Access-Token": full._envd_access_token, "Content-Type": "application/octet-stream"},
        )
        assert status == 507, answer
        neighbour.files.write("room", "x" * (1 << 20))
        full.commands.run("rm -f /home/user/big /home/user/more; sync")
        full.files.write("again", "x" * (1 << 20))
    finally:
        full.kill()


def test_programs_that_use_up_the_memory_are_ended_and_the_sandbox_continues(server, runtime):
    """As on Linux, even where the whole sandbox is one process of the machine."""
    poor = create(server, runtime)
    # They leave the daemon a moment: faster ones can end the sandbox on a machine whose processors are taken.
    bomb = "python3 -c 'import time\na=[]\nwhile True: a.append(bytearray(1<<20)); time.sleep(.02)'"
    try:
        poor.files.write("kept", "kept")
        said = poor.commands.run(f"for n in 1 2 3 4; do {bomb} & done; wait; echo over", timeout=240)
        assert said.stdout == "over\n"
        assert poor.files.read("kept") == "kept"
    finally:
        poor.kill()


def test_a_command_that_used_up_the_memory_reports_it(server):
    """The largest process is killed, and the error of its command has the reason."""
    poor = create(server, "runsc")
    # As above.
    bomb = "python3 -c 'import time\na=[]\nwhile True: a.append(bytearray(1<<20)); time.sleep(.01)'"
    try:
        # A shell that its command replaces, and one that outlives it.
        for line in (f"exec {bomb}", f"{bomb}; exit $?"):
            with pytest.raises(CommandExitException) as raised:
                poor.commands.run(line, timeout=240)
            assert "out of memory: python3 was killed" in raised.value.error, raised.value
            assert "out of memory" in str(raised.value)
        with pytest.raises(CommandExitException) as raised:
            poor.commands.run("kill -9 $$")
        assert "memory" not in raised.value.error + str(raised.value)
    finally:
        poor.kill()


def test_sandbox_output_is_not_in_the_servers_log(server, runtime):
    """A flood of log lines is bounded in transit and on disk."""
    loud = create(server, runtime)
    try:
        before = (server.data / "server.log").stat().st_size
        loud.commands.run("sudo sh -c 'yes flood | head -c 200000000 > /proc/1/fd/1' || true", timeout=300)
        assert (server.data / "server.log").stat().st_size - before < 1 << 20
        kept = sum(path.stat().st_size for path in (server.data / "logs").glob(f"**/{loud.sandbox_id}*"))
        assert kept < 64 << 20
    finally:
        loud.kill()


def test_a_program_that_floods_its_output_stores_nothing_in_the_server(server, runtime):
    """The client reads slowly, and the server does not buffer for it."""
    flooding = create(server, runtime)
    try:
        begun = resident_kib(server.process.pid)
        handle = flooding.commands.run("yes", background=True, timeout=0)
        time.sleep(2)
        assert resident_kib(server.process.pid) - begun < 64 << 10
        handle.kill()
    finally:
        flooding.kill()


def test_limits_are_set_in_the_cgroups(server, sandbox, runtime):
    groups = [group for group in server.groups() if group.name == sandbox.sandbox_id]
    read = lambda name: [  # noqa: E731
        (group / name).read_text().strip() for group in groups if (group / name).exists()
    ]
    assert str(LIMITS["pids"]) in read("pids.max")
    memory = read("memory.limit_in_bytes") + read("memory.max")
    assert str((LIMITS["memory"] << 20) + OVERHEAD[runtime]) in memory
    quota = read("cpu.cfs_quota_us") + [value.split()[0] for value in read("cpu.max")]
    assert "100000" in quota
    assert os.path.exists(Path("/proc") / str(min(server.processes(sandbox.sandbox_id))))


def test_sandboxes_end_at_their_deadline(server, runtime):
    made = create(server, runtime, timeout=600)
    made.commands.run(FORK, background=True, timeout=0)
    made.set_timeout(5)
    wait_until(lambda: made.sandbox_id not in Call(server).ids(), 60, "the end by time")
    wait_until(lambda: not server.processes(made.sandbox_id), 60, "its processes to end")
    with pytest.raises(Exception, match="."):
        Sandbox.connect(made.sandbox_id, **server.options())
