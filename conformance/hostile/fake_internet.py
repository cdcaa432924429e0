"""A network that looks like the internet and is a namespace of this machine.

It has documentation addresses (RFC 5737, RFC 3849), which no rule of the server treats as
anything but public, and beside them the private ones that a careless router would reach too. All
of them answer the machine itself, so that a refusal which a test sees is the sandbox's own.
"""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

NAMESPACE = "shoal-fake-internet"
#: The machine's end. Its name differs from those of slots, by which the server recognises them.
LINK = "fakenet0"

# Only these two: a machine may reach its package registry in the same range.
#: The machine's own public address, which a sandbox must not reach either.
HOST = "203.0.113.1"
HOST_V6 = "2001:db8:53::1"
ROUTER = "203.0.113.2"
ROUTER_V6 = "2001:db8:53::2"

#: Public addresses, which a sandbox with internet access reaches.
PUBLIC = ["198.51.100.7", "198.51.100.8", "203.0.113.9"]
#: Addresses that no rule allows: one of each kind.
NEVER = {
    "private 10/8": "10.200.0.5",
    "private 172.16/12": "172.20.0.5",
    "private 192.168/16": "192.168.77.5",
    "carrier-grade NAT": "100.64.7.7",
    "metadata": "169.254.169.254",
    "link-local": "169.254.7.7",
    "benchmarking": "198.18.0.5",
}
#: The machine's name server, at a private address like most.
RESOLVER = "10.200.0.53"

#: The ports on which every address answers, over TCP and UDP.
PORT = 7777


def inside(namespace: str, *command: str) -> list[str]:
    """A command that runs in a network namespace, in the mount namespace of this machine.

    `ip netns exec` makes a mount namespace, a copy of all mounts. While it exists, the disk of another
    installation stays in use after that installation has unmounted it.
    """
    return ["nsenter", f"--net=/run/netns/{namespace}", *command]


class FakeInternet:
    """The namespace, its routes and its servers; removed at the end of the block."""

    def __enter__(self) -> "FakeInternet":
        # Names and routes belong to the machine, so one at a time.
        self.lock = open("/run/lock/shoal-fake-internet", "w")  # noqa: SIM115
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.remove()
        self.make()
        servers = str(Path(__file__).with_name("fake_servers.py"))
        command = inside(NAMESPACE, sys.executable, "-u", servers, str(PORT))
        self.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.server.stdout.readline() == b"ready\n"
        self.log = open(f"/run/{NAMESPACE}.log", errors="replace")  # noqa: SIM115
        self.seen, self.rest = [], ""
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait(10)
        self.log.close()
        self.remove()
        self.lock.close()

    def make(self) -> None:
        here = ["ip"]
        there = ["ip", "-n", NAMESPACE]
        steps = [
            ["ip", "netns", "add", NAMESPACE],
            [*here, "link", "add", LINK, "type", "veth", "peer", "name", "wan0", "netns", NAMESPACE],
            [*here, "address", "add", f"{HOST}/30", "dev", LINK],
            [*here, "address", "add", f"{HOST_V6}/64", "dev", LINK, "nodad"],
            [*here, "link", "set", LINK, "up"],
            [*there, "address", "add", f"{ROUTER}/30", "dev", "wan0"],
            [*there, "address", "add", f"{ROUTER_V6}/64", "dev", "wan0", "nodad"],
            [*there, "link", "set", "wan0", "up"],
            [*there, "link", "set", "lo", "up"],
            [*there, "route", "add", "default", "via", HOST],
        ]
        for address in [*PUBLIC, *NEVER.values(), RESOLVER]:
            steps.append([*there, "address", "add", f"{address}/32", "dev", "lo"])
            steps.append([*here, "route", "add", f"{address}/32", "via", ROUTER, "dev", LINK])
        for step in steps:
            subprocess.run(step, check=True, capture_output=True)

    @staticmethod
    def remove() -> None:
        for step in (["ip", "link", "del", LINK], ["ip", "netns", "del", NAMESPACE]):
            subprocess.run(step, check=False, capture_output=True)

    def packets(self) -> list[dict]:
        """Every packet that has reached this internet: from, to, protocol, port, payload."""
        # Packets in flight have a moment to arrive; here nothing takes longer.
        time.sleep(0.1)
        # The recorder may be late. It has written all earlier packets when it writes this one.
        mark = f"mark-{uuid.uuid4()}"
        end = again = time.monotonic()
        while not any(mark in packet["payload"] for packet in self._read()):
            assert time.monotonic() < end + 60, "the packets of the fake internet are not written down"
            if time.monotonic() >= again:
                # A flood may have left no room for the last one.
                again = time.monotonic() + 1
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                    out.sendto(mark.encode(), (ROUTER, PORT))
            time.sleep(0.01)
        return list(self.seen)

    def _read(self) -> list[dict]:
        """The packets that were written down since the last call. Those of this class are not kept."""
        *lines, self.rest = (self.rest + self.log.read()).split("\n")
        new = [json.loads(line) for line in lines]
        self.seen += [packet for packet in new if "mark-" not in packet["payload"]]
        return new

    def heard(self, marker: str) -> list[dict]:
        """The packets whose payload contains `marker`."""
        return [packet for packet in self.packets() if marker in packet["payload"]]
