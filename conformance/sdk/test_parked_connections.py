"""WebSockets into sandboxes that are parked while nothing is sent: they are open all the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2b import Sandbox, Template, wait_for_port
from websocket import WebSocket, WebSocketException, create_connection

from ..hostile.machine import Call
from ..installation import wait_until
from ..parked import PARKING
from .test_gateway import INSIDE
from .test_parked import SOON, Parking

#: The ports of its server: one of the sandbox's address, and one of its loopback.
PORTS = (8000, 8001)


@pytest.fixture(scope="module")
def parking(another) -> Parking:
    return Parking(another("connections", ["disk.size=4GiB", "runtime.allowed=any", *PARKING]))


@pytest.fixture(scope="module")
def template(parking, tmp_path_factory) -> str:
    """A template whose start command is a server: other programs keep a sandbox from being parked."""
    context = tmp_path_factory.mktemp("site")
    (context / "site.py").write_text(INSIDE)
    recipe = Template(file_context_path=str(context)).from_template("base").copy("site.py", "/opt/site.py")
    recipe = recipe.set_start_cmd("python3 /opt/site.py", wait_for_port(PORTS[0]))
    Template.build(recipe, "site", cpu_count=1, memory_mb=256, **parking.server.options())
    return "site"


@pytest.fixture
def sandbox(parking, template) -> Iterator[Sandbox]:
    made = parking.create(template=template)
    yield made
    made.kill()


@pytest.fixture
def opened(parking, sandbox) -> Iterator[list[WebSocket]]:
    """A WebSocket to each port."""
    opened = []
    for port in PORTS:
        headers = [f"E2b-Sandbox-Id: {sandbox.sandbox_id}", f"E2b-Sandbox-Port: {port}"]
        url = parking.server.url.replace("http", "ws", 1) + "/live"
        opened.append(create_connection(url, header=headers, timeout=SOON))
    yield opened
    for socket in opened:
        socket.close()


def echoes(socket: WebSocket, text: str) -> None:
    socket.send(text)
    assert socket.recv() == text


def push(sandbox: Sandbox) -> None:
    """Its server sends something to every client."""
    sandbox.commands.run("pkill -USR1 -f /opt/site.py")


def test_an_idle_websocket_stays_open_while_its_sandbox_is_parked(parking, sandbox, opened):
    for number, socket in enumerate(opened):
        parking.wait(sandbox)
        echoes(socket, f"woken {number}")
    # Something else wakes it, and the server speaks first.
    parking.wait(sandbox)
    push(sandbox)
    for socket in opened:
        assert socket.recv() == "push"
    # A client that leaves while it is parked: the server sees that.
    parking.wait(sandbox)
    opened[0].shutdown()
    wait_until(lambda: not parking.native(sandbox)["parked"], SOON, "woken by the end of a connection")
    count = "python3 -c 'print(sum(line.split()[3] == \"01\" and line.split()[1].endswith(\":1F40\") for line in open(\"/proc/net/tcp\")))'"
    wait_until(lambda: sandbox.commands.run(count).stdout == "0\n", SOON, "closed inside")
    parking.wait(sandbox)
    echoes(opened[1], "the other goes on")


def test_new_network_rules_hold_after_the_wake(parking, sandbox, opened):
    parking.wait(sandbox)
    path = f"/sandboxes/{sandbox.sandbox_id}/network"
    status, told = Call(parking.server).put(path, {"allow_internet_access": False})
    assert status in (200, 204), told
    assert parking.native(sandbox)["parked"], "new rules do not wake it"
    echoes(opened[0], "still")
    # No server is at this address. A rule refuses it at once; without one, nothing would answer.
    probe = "timeout 5 bash -c 'exec 3<>/dev/tcp/198.51.100.1/80'; echo $?"
    assert sandbox.commands.run(probe).stdout == "1\n"


def test_a_pause_ends_a_websocket_of_a_parked_sandbox(parking, sandbox, opened):
    parking.wait(sandbox)
    sandbox.pause()
    for socket in opened:
        with pytest.raises((WebSocketException, OSError)):
            socket.recv()
    assert Sandbox.connect(sandbox.sandbox_id, **parking.server.options()).is_running()


def test_a_clone_gets_rid_of_connections_that_only_its_source_has(parking, sandbox, opened):
    snapshot = sandbox.create_snapshot()
    echoes(opened[0], "the source goes on")
    clone = parking.create(template=snapshot.snapshot_id)
    push(clone)
    broken = "test -s /tmp/broken && echo yes || echo no"
    wait_until(lambda: clone.commands.run(broken).stdout == "yes\n", SOON, "reset")
    assert sandbox.commands.run(broken).stdout == "no\n"
    clone.kill()


def test_a_restart_of_the_server_ends_websockets_and_the_sandbox_wakes(parking, sandbox, opened):
    parking.wait(sandbox)
    parking.server.crash()
    parking.server.start()
    for socket in opened:
        with pytest.raises((WebSocketException, OSError)):
            socket.recv()
    assert parking.is_parked(sandbox)
    assert sandbox.commands.run("echo it wakes").stdout == "it wakes\n"
