"""Run inside a sandbox: tries many ways out at once, and says which answered.

Takes a list of `[kind, address, port]` as JSON on its standard input.
"""

import json
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

PATIENCE = 1.5


def tcp(family, address, port):
    with socket.socket(family, socket.SOCK_STREAM) as out:
        out.settimeout(PATIENCE)
        out.connect((address, port))
        return out.recv(64).decode().strip()


def udp(family, address, port, prepare=None):
    with socket.socket(family, socket.SOCK_DGRAM) as out:
        out.settimeout(PATIENCE)
        if prepare:
            prepare(out)
        out.sendto(b"probe", (address, port))
        return out.recv(64).decode().strip()


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def icmp(kind, address):
    with socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as out:
        out.settimeout(PATIENCE)
        head = struct.pack("!BBHHH", 8, 0, 0, 1, 1)
        out.sendto(struct.pack("!BBHHH", 8, 0, checksum(head), 1, 1), (address, 0))
        return out.recvfrom(256)[1][0]


def raw(address):
    """A datagram with a forged source and our own IP header."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        data = struct.pack("!HHHH", 9, 7777, 8 + 7, 0) + b"spoofed"
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(data), 1, 0, 64, 17, 0,
                           socket.inet_aton("203.0.113.200"), socket.inet_aton(address))
        out.sendto(head + data, (address, 0))
        return "sent"


def spoofed(address, port):
    """A datagram from an address that is not ours, with options that need no privilege."""
    def prepare(out):
        out.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
        out.bind(("203.0.113.200", 5353))
    return udp(socket.AF_INET, address, port, prepare)


def routed(address, port):
    """A datagram to an allowed address with a loose source route to another."""
    def prepare(out):
        option = bytes([131, 7, 4]) + socket.inet_aton(address) + b"\0"
        out.setsockopt(socket.IPPROTO_IP, 4, option)  # IP_OPTIONS
    return udp(socket.AF_INET, "198.51.100.7", port, prepare)


KINDS = {
    "tcp": lambda a, p: tcp(socket.AF_INET, a, p),
    "tcp6": lambda a, p: tcp(socket.AF_INET6, a, p),
    "udp": lambda a, p: udp(socket.AF_INET, a, p),
    "udp6": lambda a, p: udp(socket.AF_INET6, a, p),
    "ping": lambda a, p: icmp(socket.SOCK_DGRAM, a),
    "icmp": lambda a, p: icmp(socket.SOCK_RAW, a),
    "raw": lambda a, p: raw(a),
    "spoofed": spoofed,
    "routed": routed,
    "name": lambda a, p: socket.gethostbyname(a),
}


def attempt(one):
    kind, address, port = one
    try:
        return ["open", KINDS[kind](address, port)]
    except (OSError, UnicodeError) as error:
        return ["closed", str(error)]


wanted = json.load(sys.stdin)
with ThreadPoolExecutor(48) as pool:
    print(json.dumps(list(pool.map(attempt, wanted))))
