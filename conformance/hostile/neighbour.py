"""Another user of the machine, as a program: finds the slots of an installation and knocks.

    python3 neighbour.py PREFIX ANSWERS PORT…

Reads the addresses of all slots whose interface begins with PREFIX from the table of routes, which
everybody may read, again and again, connects to each port, and asks what an open daemon would grant.
Ends when its standard input does, but not before it was answered ANSWERS times, if another minute is
enough for that. Says `answered` when every request has been answered, and in the end prints what it
tried, reached and was answered, as JSON. It stands alone: it is run by
whatever Python the machine has, as whatever user.
"""

import errno
import itertools
import json
import select
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ENVELOPE = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "id > /tmp/by-neighbour"]}}).encode()
ENVELOPE = struct.pack(">BI", 0, len(ENVELOPE)) + ENVELOPE


def request(method, path, kind, body):
    head = "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Basic cm9vdDo=\r\n" % (method, path)
    head += "Content-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
    return head.encode() + body


#: The requests that an unprotected daemon would grant, one after the other.
KNOCKS = [
    ("start", request("POST", "/process.Process/Start", "application/connect+json", ENVELOPE)),
    ("files", request("POST", "/files?path=/tmp/by-neighbour&username=root", "application/octet-stream", b"x")),
    ("init", request("POST", "/init", "application/json", b'{"accessToken":"neighbour"}')),
    ("open", request("POST", "/init", "application/json", b'{"open":true}')),
    ("list", request("POST", "/process.Process/List", "application/json", b"{}")),
    ("get", request("GET", "/", "text/plain", b"")),
]


#: Which request comes next.
TURNS = itertools.count()


def slots(prefix):
    """The interface of each slot, and the address of its sandbox."""
    found = []
    with open("/proc/net/route") as routes:
        for line in routes.readlines()[1:]:
            name, network = line.split()[:2]
            if name.startswith(prefix):
                address = socket.inet_ntoa(struct.pack("<I", int(network, 16) + (2 << 24)))
                found.append((name, address))
    return found


def ask(connection, wanted):
    """The response's status, or its first bytes, or none."""
    connection.settimeout(2)
    try:
        connection.sendall(wanted)
        said = connection.recv(4096)
    except OSError:
        return None
    return said.decode("latin-1")[:200]


def attempt(slot, port):
    """Connects to a port of a slot and makes the next request: why it was refused, or the request and its answer."""
    name, address = slot
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.settimeout(0.2)
    try:
        # After the slot is removed, its address belongs to a stranger.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode() + b"\0")
        connection.connect((address, port))
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__), None
    else:
        knock, asked = KNOCKS[next(TURNS) % len(KNOCKS)]
        return None, (knock, ask(connection, asked))
    finally:
        connection.close()


def main():
    prefix, wanted, ports = sys.argv[1], int(sys.argv[2]), [int(port) for port in sys.argv[3:]]
    tried, reached, answers, refused, given_up, is_told = 0, [], [], {}, None, False
    print("ready", flush=True)

    def is_over():
        nonlocal given_up
        if not select.select([sys.stdin], [], [], 0)[0]:
            return False
        given_up = given_up or time.monotonic() + 60
        if time.monotonic() > given_up:
            return True
        # Each slot is tried once, however short the time is.
        return sum(bool(said) for _, _, said in answers) >= wanted and (tried > 0 or not slots(prefix))

    # All slots at once: one that does not answer takes no time from those that start.
    with ThreadPoolExecutor(32) as attempts:
        while not is_over():
            targets = [(slot, port) for slot in slots(prefix) for port in ports]
            if not targets:
                time.sleep(0.001)
            outcomes = attempts.map(lambda target: attempt(*target), targets)
            for ((_, address), port), (why, answer) in zip(targets, outcomes):
                tried += 1
                if answer is None:
                    refused[why] = refused.get(why, 0) + 1
                    continue
                reached.append([address, port])
                answers.append([port, *answer])
            if not is_told and {knock for _, knock, said in answers if said} == set(dict(KNOCKS)):
                is_told = True
                print("answered", flush=True)
    print(json.dumps({"tried": tried, "reached": reached, "answers": answers, "refused": refused}))


if __name__ == "__main__":
    main()
