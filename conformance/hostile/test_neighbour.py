"""Another user of the machine reaches no sandbox, not even during its start."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import Sandbox

from ..installation import wait_until
from .conftest import SMALL, create
from .fake_internet import inside
from .machine import Call, run

ATTACK = Path(__file__).with_name("neighbour.py").read_text()

#: An unprivileged user of the machine, and root without a token.
NOBODY, ROOT = 65534, 0

#: The daemon, the code interpreter, and a tenant's server.
PORTS = (49983, 49999, 8080)

#: How many sandboxes start during the attempts, and how often as many start again on a machine that
#: is too busy to answer the attempts.
STARTS, MORE = 4, 10


@contextmanager
def neighbour(server, user: int, *ports: int, answers: int = 0):
    """Connects to every slot of the installation while the block runs; the outcome is in the result.

    A busy machine may answer no attempt in time: so it continues until there were this many answers,
    and `is_answered` in the result tells whether every request has been answered once.
    """
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    command = [python, "-c", ATTACK, f"shl{server.instance}-", str(answers), *map(str, ports or PORTS)]
    attacker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", user=user,
        group=user, extra_groups=[],
    )
    result = {"is_answered": lambda: bool(select.select([attacker.stdout], [], [], 0)[0])}
    try:
        # Past the text's buffer, and in as many pieces as come, so that `select` knows of each later line.
        assert b"".join(os.read(attacker.stdout.fileno(), 1) for _ in range(6)) == b"ready\n"
        yield result
        said, _ = attacker.communicate("", timeout=180)
        assert attacker.returncode == 0
        del result["is_answered"]
        result.update(json.loads(said.splitlines()[-1]))
    finally:
        attacker.kill()
        attacker.wait()


def unsecured(server, runtime) -> Sandbox:
    """A sandbox whose daemon requires no token, which older clients request by default."""
    body = {"templateID": SMALL, "timeout": 300, "metadata": {"shoal/runtime": runtime}}
    status, made = Call(server).post("/sandboxes", body)
    assert status == 201 and made.get("envdAccessToken") is None, made
    return Sandbox.connect(made["sandboxID"], **server.options())


def starts(server, runtime):
    """Sandboxes of every kind start, resume and end; each works for its tenant."""
    for number in range(STARTS):
        made = create(server, runtime) if number % 2 else unsecured(server, runtime)
        try:
            assert run(made, "echo works").out == "works\n"
            status, answer = Call(server).post(
                f"/sandboxes/{made.sandbox_id}/pause", {"memory": runtime == "runsc"}
            )
            assert status == 204, answer
            made.connect()
            found = run(made, "ls /tmp/by-neighbour /etc/profile.d", root=True)
            assert "by-neighbour" not in found.out, found
        finally:
            made.kill()


def test_another_user_reaches_no_sandbox_that_starts(server, runtime):
    with neighbour(server, NOBODY) as came:
        starts(server, runtime)
    assert came["tried"] > 100, came
    assert came["reached"] == [], came
    # The machine refuses: a sandbox would refuse differently, so no request reached one.
    assert "ECONNREFUSED" not in came["refused"], came["refused"]


def test_a_starting_daemon_requires_its_token_from_root_too(server, runtime):
    with neighbour(server, ROOT, 49983) as came:
        starts(server, runtime)
        for _ in range(MORE):
            if came["is_answered"]():
                break
            starts(server, runtime)
    answers = [(knock, said) for _, knock, said in came["answers"] if said]
    for knock, said in answers:
        assert " 401 " in said.splitlines()[0], (knock, said)
    assert {knock for knock, _ in answers} >= {"start", "files", "init", "open", "list"}, came["refused"]


def address_of(server, port: int) -> str:
    """The slot with a listener on a port."""
    found = []

    def answers() -> bool:
        with open("/proc/net/route") as routes:
            lines = [line.split()[:2] for line in routes.readlines()[1:]]
        for name, network in lines:
            if name.startswith(f"shl{server.instance}-"):
                address = socket.inet_ntoa((int(network, 16) + (2 << 24)).to_bytes(4, "little"))
                try:
                    socket.create_connection((address, port), timeout=0.5).close()
                    found.append(address)
                except OSError:
                    pass
        return bool(found)

    wait_until(answers, 60, "the server in the sandbox, asked by root of the machine")
    return found[0]


@pytest.fixture
def private(server, runtime):
    """A sandbox with a port that requires the traffic token."""
    made = create(server, runtime, network={"allow_public_traffic": False})
    made.files.write("/tmp/site/index.html", "PRIVATE-PORT-CONTENT")
    made.commands.run("cd /tmp/site && python3 -m http.server 8765", background=True)
    yield made
    made.kill()


def test_a_private_port_is_reachable_through_the_gateway_only(server, private):
    where = {"e2b-sandbox-id": private.sandbox_id, "e2b-sandbox-port": "8765"}
    token = {"e2b-traffic-access-token": private.traffic_access_token}
    stranger = Call(server, None)

    def served() -> bool:
        return stranger.get("/", headers=where | token)[0] == 200

    wait_until(served, 60, "the port, by its token")
    assert stranger.get("/", headers=where)[0] == 403
    address = address_of(server, 8765)
    with neighbour(server, ROOT, 8765, answers=1) as came:
        assert served() and served()
    assert [address, 8765] in came["reached"], "the attack works where nothing stands in its way"
    with neighbour(server, NOBODY, 8765) as came:
        assert served()
    assert came["tried"] > 0 and came["reached"] == [], came
    assert "PRIVATE-PORT-CONTENT" not in json.dumps(came["answers"])


def as_user(user: int, work):
    """Runs `work` as another user in a separate process, and returns its result, which must be JSON."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writer, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, text
    return json.loads(text)


def datagrams_and_pings(address: str) -> list[str]:
    """Sends other packets than TCP as an unprivileged user; returns those that the kernel sent."""
    went = []
    kinds = {
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, 0),
        "ping": (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
        "raw": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
    }
    for name, kind in kinds.items():
        try:
            out = socket.socket(*kind)
            out.settimeout(1)
            if name == "packet":
                went.append(name)
                continue
            out.connect((address, 8765))
            out.send(b"\x08\x00\xf7\xff\x00\x00\x00\x00")
            out.recv(64)
            went.append(name)
        except OSError:
            pass
    return went


def test_other_protocols_are_refused_too(server, private):
    address = address_of(server, 8765)
    ranges = Path("/proc/sys/net/ipv4/ping_group_range")
    before = ranges.read_text()
    ranges.write_text("0 2147483647")
    try:
        assert as_user(NOBODY, lambda: datagrams_and_pings(address)) == []
    finally:
        ranges.write_text(before)


def test_other_networks_of_the_machine_are_refused_too(server, private):
    """An interface like that of another program's container, which the machine routes."""
    address = address_of(server, 8765)
    name = f"nb{server.instance}"
    ip = lambda *words: subprocess.run(["ip", *words], check=True)  # noqa: E731
    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", "198.18.77.1/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "address", "add", "198.18.77.2/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", "default", "via", "198.18.77.1")
        attack = f"import socket; socket.create_connection(('{address}', 8765), 2)"
        said = subprocess.run(inside(name, "python3", "-c", attack), capture_output=True, text=True)
        assert said.returncode != 0 and "Error" in said.stderr, said
    finally:
        subprocess.run(["ip", "link", "delete", name], check=False)
        ip("netns", "delete", name)


def sockets_of(server) -> list[str]:
    """The addresses of this installation's Unix sockets; abstract ones start with `@`."""
    data, ids = str(server.data), Call(server).ids()
    with open("/proc/net/unix") as lines:
        names = [line.split()[7] for line in lines.readlines()[1:] if len(line.split()) > 7]
    mine = [f"/run/shoal/{server.instance}/", data, *ids]
    return sorted({name for name in names if any(part in name for part in mine)})


def knock_at(names: list[str]) -> list[str]:
    """The Unix sockets that accept a connection."""
    opened = []
    for name in names:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            try:
                with socket.socket(socket.AF_UNIX, kind) as out:
                    out.settimeout(1)
                    out.connect("\0" + name[1:] if name.startswith("@") else name)
                opened.append(name)
            except OSError:
                pass
    return opened


def test_local_sockets_of_the_server_and_runtimes_are_closed(server, private, runtime):
    names = sockets_of(server)
    if runtime == "runsc":
        assert names, "a kernel in user space is controlled by a socket"
        assert knock_at(names), "root opens them: the attack works"
    assert as_user(NOBODY, lambda: knock_at(names)) == []


def test_unsecured_sandboxes_are_open_through_the_gateway_only(server, runtime):
    made = unsecured(server, runtime)
    try:
        assert run(made, "echo works").out == "works\n"
        made.files.write("/tmp/a", "b")
        status, text = Call(server, None).get(
            "/files?path=/tmp/a",
            headers={"e2b-sandbox-id": made.sandbox_id, "e2b-sandbox-port": "49983"},
        )
        assert (status, text) == (200, "b")
        # Programs inside need no token, as in E2B, but cannot use the host's routes.
        inside = "curl -s -o /dev/null -w '%{http_code}' http://localhost:49983"
        assert run(made, f"{inside}/envs").out == "200"
        assert run(made, f"{inside}/init -X POST -d '{{}}'").out == "401"
        with neighbour(server, ROOT, 49983, answers=1) as came:
            wait_until(lambda: run(made, "true").code == 0, 60, "a command")
        heads = [said.splitlines()[0] for _, _, said in came["answers"] if said]
        assert heads and all(" 401 " in head for head in heads), heads
    finally:
        made.kill()


def may_signal_or_look(pids: list[int]) -> list[str]:
    """The rights of a user over processes: to kill them, or to read their memory."""
    may = []
    for pid in pids:
        try:
            os.kill(pid, 0)
            may.append(f"signal {pid}")
        except OSError:
            pass
        for name in ("environ", "maps", "mem", "fd/0", "fd/1"):
            try:
                os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_NONBLOCK))
                may.append(f"open {pid} {name}")
            except OSError:
                pass
    return may


def test_the_processes_of_a_sandbox_are_out_of_reach(server, private):
    pids = [*map(int, server.processes(private.sandbox_id)), server.process.pid]
    assert len(pids) > 1
    assert len(may_signal_or_look(pids)) > len(pids), "root may: the attack works"
    assert as_user(NOBODY, lambda: may_signal_or_look(pids)) == []
