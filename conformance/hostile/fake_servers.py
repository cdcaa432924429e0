"""The servers of the fake internet; run inside its namespace.

TCP and UDP answer who asked. Names have one address. Every packet that arrives is written down.
"""

import json
import socket
import struct
import sys
import threading

PORTS = [int(sys.argv[1]), 80, 443, 22]
LOG = "/run/shoal-fake-internet.log"


def tcp(port, family):
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(("", port))
    listener.listen(128)
    while True:
        connection, peer = listener.accept()
        threading.Thread(target=echo, args=(connection, peer), daemon=True).start()


def echo(connection, peer):
    try:
        connection.sendall(f"{peer[0]}\n".encode())
        while data := connection.recv(4096):
            connection.sendall(data)
    except OSError:
        pass
    finally:
        connection.close()


def udp(port, family):
    server = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    else:
        # The reply must come from the address that was asked.
        server.setsockopt(socket.IPPROTO_IP, 8, 1)
    server.bind(("", port))
    while True:
        data, extra, _, peer = server.recvmsg(4096, 256)
        server.sendmsg([peer[0].encode()], extra if family == socket.AF_INET else [], 0, peer)


def names():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.IPPROTO_IP, 8, 1)
    server.bind(("", 53))
    while True:
        query, extra, _, peer = server.recvmsg(4096, 256)
        end = query.index(b"\0", 12) + 5
        question, kind = query[12:end], query[end - 4 : end - 2]
        known = kind == b"\0\1"
        answer = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if known else b"\0\0") + b"\0\0\0\0" + question
        if known:
            answer += b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton("198.51.100.7")
        server.sendmsg([answer], extra, 0, peer)


def listen(log):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    wire.bind(("wan0", 0))
    while True:
        data, (_, kind, way, *_) = wire.recvfrom(4096)
        # 4: packets that this end sends itself.
        if kind != 0x800 or way == 4 or len(data) < 20:
            continue
        size, protocol = (data[0] & 15) * 4, data[9]
        port = struct.unpack("!H", data[size + 2 : size + 4])[0] if protocol in (6, 17) else 0
        entry = {
            "from": socket.inet_ntoa(data[12:16]), "to": socket.inet_ntoa(data[16:20]),
            "protocol": protocol, "port": port, "payload": data[size:].decode("latin-1"),
        }
        log.write(json.dumps(entry) + "\n")
        log.flush()


threads = [threading.Thread(target=names, daemon=True)]
for port in PORTS:
    for family in (socket.AF_INET, socket.AF_INET6):
        threads.append(threading.Thread(target=tcp, args=(port, family), daemon=True))
        threads.append(threading.Thread(target=udp, args=(port, family), daemon=True))
threads.append(threading.Thread(target=listen, args=(open(LOG, "w"),), daemon=True))  # noqa: SIM115
for thread in threads:
    thread.start()
print("ready", flush=True)
threads[0].join()
