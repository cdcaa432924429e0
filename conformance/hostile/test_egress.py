"""The egress of a sandbox, observed where packets would arrive."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from e2b import Sandbox

from .conftest import create
from .fake_internet import HOST, HOST_V6, NEVER, PORT, PUBLIC, RESOLVER, ROUTER_V6
from ..installation import wait_until
from .machine import Call, run

PROBE = Path(__file__).with_name("probe.py").read_text()


def probe(sandbox, wanted: list[tuple], root: bool = False) -> dict[tuple, tuple[str, str]]:
    """The attempts in `wanted` that succeed from inside; an attempt is `(kind, address, port)`."""
    sandbox.files.write("/tmp/probe.py", PROBE, user="root")
    sandbox.files.write("/tmp/wanted.json", json.dumps(wanted), user="root")
    said = run(sandbox, "RES_OPTIONS=\"timeout:1 attempts:1\" python3 /tmp/probe.py < /tmp/wanted.json", root=root, timeout=180)
    assert said.code == 0, said
    return {tuple(one): tuple(found) for one, found in zip(wanted, json.loads(said.out))}


def opened(results: dict) -> set[tuple]:
    return {one for one, (state, _) in results.items() if state == "open"}


def reached(sandbox, wanted: list[tuple], expected: set[tuple]) -> dict[tuple, tuple[str, str]]:
    """As `probe`. An attempt that is expected to succeed is repeated: a busy machine may answer too late."""
    results = probe(sandbox, wanted)

    def all_expected() -> bool:
        late = [one for one in wanted if one in expected - opened(results)]
        results.update(probe(sandbox, late) if late else {})
        return expected <= opened(results)

    try:
        wait_until(all_expected, 60, "what is open")
    except AssertionError:
        assert expected <= opened(results), (expected - opened(results), results)
    return results


def both(addresses, port: int = PORT) -> list[tuple]:
    return [(kind, address, port) for address in addresses for kind in ("tcp", "udp")]


def put(server, sandbox, **rules) -> None:
    status, answer = Call(server).put(f"/sandboxes/{sandbox.sandbox_id}/network", rules)
    assert status == 204, answer


@pytest.fixture(autouse=True)
def open_again(request, server):
    """Each test starts with the policy of a new sandbox."""
    yield
    if "sandbox" in request.fixturenames:
        put(server, request.getfixturevalue("sandbox"))


def own_addresses() -> list[str]:
    """Every address of this machine, of both families."""
    said = subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True)
    found = []
    for link in json.loads(said.stdout):
        # Of the many slots of other installations one is enough.
        if link["ifname"].startswith("shl") and len(found) > 40:
            continue
        found += [one["local"] for one in link["addr_info"] if one.get("local")]
    return found


def test_the_machine_reaches_all_addresses_of_these_tests(internet):
    """Otherwise a refusal would prove nothing."""
    for address in [*PUBLIC, *NEVER.values(), RESOLVER, ROUTER_V6]:
        with socket.create_connection((address, PORT), timeout=5) as out:
            assert out.recv(64)


def test_public_addresses_are_open_and_private_ones_are_not(sandbox, internet):
    never = [*NEVER.values(), RESOLVER, "127.0.0.2", "0.0.0.0", "224.0.0.251", "239.1.2.3",
             "255.255.255.255", "240.0.0.1", "192.0.0.9"]
    before = len(internet.packets())
    results = reached(sandbox, both(PUBLIC) + both(never), set(both(PUBLIC)))
    assert opened(results) == set(both(PUBLIC)), results
    assert {found for _, found in results.values() if found == HOST}, "the machine's own address"
    arrived = {packet["to"] for packet in internet.packets()[before:] if packet["port"] == PORT}
    assert not arrived & set(NEVER.values()), arrived


def test_a_private_address_has_no_other_spelling(sandbox):
    """IPv6 forms that carry an IPv4 address, and IPv6 itself."""
    forms = ["::ffff:{}", "64:ff9b::{}", "::{}"]
    wanted = [("tcp6", form.format(a), PORT) for form in forms for a in NEVER.values()]
    wanted += [("tcp6", "2002:ac8:5::1", PORT), ("tcp6", "fd00::2", PORT), ("tcp6", "fe80::1", PORT)]
    wanted += [("tcp6", ROUTER_V6, PORT), ("udp6", ROUTER_V6, PORT), ("udp6", HOST_V6, PORT)]
    wanted += [("udp6", "ff02::1", PORT), ("tcp6", "::", PORT)]
    assert opened(probe(sandbox, wanted)) == set()
    # Numbers that a resolver interprets as addresses.
    spelled = [("tcp", text, PORT) for text in ("0xa.200.5", "012.0310.0.5", "180879365", "10.200.5")]
    assert opened(probe(sandbox, spelled)) == set()


def test_without_internet_nothing_is_reachable(server, runtime, internet):
    closed = create(server, runtime, allow_internet_access=False)
    try:
        wanted = both([*PUBLIC, *NEVER.values(), RESOLVER, "10.11.0.1"])
        wanted += [("ping", PUBLIC[0], 0), ("icmp", PUBLIC[0], 0), ("raw", PUBLIC[0], 0)]
        wanted += [("name", "example.com", 0), ("udp", "10.11.0.1", 53), ("tcp", "10.11.0.1", 53)]
        wanted += [("udp", RESOLVER, 53), ("tcp", PUBLIC[0], 443), ("tcp6", ROUTER_V6, 443)]
        results = probe(closed, wanted) | probe(closed, wanted, root=True)
        assert opened(results) == set(), results
        run(closed, f"printf nothing-leaves | timeout 2 nc -u {PUBLIC[0]} {PORT} || "
            f"printf nothing-leaves > /dev/udp/{PUBLIC[0]}/{PORT}")
        assert internet.heard("nothing-leaves") == []
        assert run(closed, "echo works").out == "works\n", "its tenant reaches it all the same"
    finally:
        closed.kill()


def test_the_machine_is_unreachable(sandbox, server):
    """Neither the machine's loopback nor its addresses, although the server listens on all of them."""
    listener = socket.create_server(("0.0.0.0", 0))
    try:
        ports = [server.port, listener.getsockname()[1], 22, 53]
        addresses = own_addresses()
        assert HOST in addresses
        wanted = [
            ("tcp6" if ":" in address else "tcp", address, port)
            for address in addresses for port in ports
        ]
        # The sandbox has its own loopback, with its own listeners.
        wanted = [one for one in wanted if one[1] not in ("127.0.0.1", "::1")]
        assert opened(probe(sandbox, wanted)) == set()
        inside = [("tcp", "127.0.0.1", server.port), ("tcp", "10.11.0.1", server.port)]
        assert opened(probe(sandbox, inside)) == set()
    finally:
        listener.close()


def slots(server) -> list[str]:
    """The outer addresses of all slots, which are reserved for the gateway."""
    routes = subprocess.run(["ip", "-json", "route"], capture_output=True, text=True, check=True)
    found = []
    for route in json.loads(routes.stdout):
        if route.get("dev", "").startswith(f"shl{server.instance}-"):
            head, _, last = route["dst"].split("/")[0].rpartition(".")
            found += [f"{head}.{int(last) + n}" for n in (1, 2)]
    return found


def test_other_sandboxes_are_out_of_reach(sandbox, bystander, server):
    addresses = slots(server)
    assert len(addresses) >= 4
    bystander.commands.run("python3 -m http.server 8000 --bind 0.0.0.0", background=True)
    reached = []

    def answers() -> bool:
        for address in addresses:
            try:
                socket.create_connection((address, 8000), timeout=0.5).close()
                reached.append(address)
            except OSError:
                pass
        return bool(reached)

    wait_until(answers, 60, "the bystander's server, asked by the machine")
    wanted = [("tcp", address, port) for address in addresses for port in (49983, 8000)]
    assert opened(probe(sandbox, wanted)) == set()


@pytest.fixture
def machine_of_a_session(server):
    """A session's machine, as the SDK sees it."""
    sessions = "/api/v1/sessions"
    session = Call(server).post(sessions, {})[1]["data"]["id"]
    assert Call(server).post(f"{sessions}/{session}/exec", {"command": "true"})[0] == 200
    machine = Call(server).get(f"{sessions}/{session}")[1]["data"]["sandboxId"]
    yield Sandbox.connect(machine, **server.options())
    assert Call(server).delete(f"{sessions}/{session}")[0] == 200


def test_r2_067_and_r2_068_the_machine_of_a_session_reaches_what_a_sandbox_does(
    machine_of_a_session, bystander, server, internet
):
    peers = [("tcp", address, 49983) for address in slots(server)]
    assert len(peers) >= 4
    wanted = both(PUBLIC) + both(NEVER.values()) + peers + [("tcp", HOST, server.port)]
    results = reached(machine_of_a_session, wanted, set(both(PUBLIC)))
    assert opened(results) == set(both(PUBLIC)), results


def test_rules_by_address_and_range(sandbox, server, internet):
    first, second, third = PUBLIC
    cases = [
        ({"denyOut": [first]}, {second, third}),
        ({"denyOut": ["198.51.100.0/24"]}, {third}),
        ({"denyOut": ["0.0.0.0/0"]}, set()),
        ({"denyOut": ["0.0.0.0/0"], "allowOut": [second]}, {second}),
        ({"denyOut": ["198.51.100.0/24"], "allowOut": ["198.51.100.8/32"]}, {second, third}),
        ({"allowOut": ["198.51.100.0/24"], "allow_internet_access": False}, {first, second}),
        # No rule opens a blocked address, in any notation.
        ({"allowOut": [*NEVER.values(), RESOLVER, "10.0.0.0/8", "0.0.0.0/0"]}, set(PUBLIC)),
        ({"allowOut": ["0.0.0.0/1", "128.0.0.0/1"], "denyOut": ["0.0.0.0/0"]}, set(PUBLIC)),
        ({"allowOut": ["::/0"], "denyOut": ["0.0.0.0/0"]}, set()),
    ]
    for rules, expected in cases:
        put(server, sandbox, **rules)
        results = reached(sandbox, both([*PUBLIC, *NEVER.values(), RESOLVER]), set(both(expected)))
        assert opened(results) == set(both(expected)), rules


def test_a_silent_name_server_is_followed_by_the_next(sandbox, server, internet):
    asked = ("name", "any.example", 0)
    # The machine itself is never a sandbox's name server, at any position of the list.
    for servers in ([PUBLIC[0]], [HOST, PUBLIC[1]], [HOST, HOST, PUBLIC[2]]):
        put(server, sandbox, dnsServers=servers)
        assert opened(reached(sandbox, [asked], {asked})) == {asked}, servers
    put(server, sandbox, dnsServers=[HOST])
    assert opened(probe(sandbox, [asked])) == set()
    body = {"dnsServers": [*PUBLIC, HOST]}
    status, answer = Call(server).put(f"/sandboxes/{sandbox.sandbox_id}/network", body)
    assert status == 400 and "name servers: at most 3" in answer["message"], answer
    put(server, sandbox)


def test_a_new_rule_cuts_open_connections(sandbox, server, internet):
    """A TCP connection and a UDP flow end when a new rule forbids them."""
    # The internet of all tests still knows what other sandboxes sent.
    marker = f"lasting-{sandbox.sandbox_id}"
    talk = (
        "import socket,time\n"
        f"t=socket.create_connection(('{PUBLIC[0]}',{PORT}),5)\n"
        "u=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
        # Longer than any wait below; the test ends it.
        "for n in range(6000):\n"
        " for send in (lambda m:t.sendall(m), lambda m:u.sendto(m,('%s',%d))):\n"
        "  try: send(b'%s %%d;' %% n)\n"
        "  except OSError: pass\n"
        " time.sleep(.05)\n"
    ) % (PUBLIC[0], PORT, marker)
    sandbox.files.write("/tmp/talk.py", talk)
    talking = sandbox.commands.run("python3 /tmp/talk.py", background=True, timeout=0)
    kinds = lambda: {packet["protocol"] for packet in internet.heard(marker)}  # noqa: E731
    wait_until(lambda: kinds() == {6, 17}, 60, "the talk to be heard")
    put(server, sandbox, denyOut=[PUBLIC[0]])
    before = len(internet.heard(marker))
    threading.Event().wait(1)
    assert len(internet.heard(marker)) == before, "packets arrived after the rule"
    put(server, sandbox)
    wait_until(lambda: len(internet.heard(marker)) > before, 60, "the datagrams to continue")
    talking.kill()


def test_source_addresses_cannot_be_spoofed(sandbox, internet):
    wanted = [("spoofed", PUBLIC[0], PORT), ("raw", PUBLIC[0], PORT)]
    # The reply to a forwarded packet may come from the forwarder only.
    wanted += [("routed", address, PORT) for address in NEVER.values()]
    before = len(internet.packets())
    for root in (False, True):
        results = probe(sandbox, wanted, root=root)
        assert ("raw", PUBLIC[0], PORT) not in opened(results), results
    arrived = internet.packets()[before:]
    assert {packet["from"] for packet in arrived} <= {HOST}
    assert not {packet["to"] for packet in arrived} & set(NEVER.values())


def test_ping_follows_the_rules_too(sandbox, server, internet):
    pings = [("ping", address, 0) for address in [*PUBLIC, *NEVER.values(), RESOLVER]]
    assert {one[1] for one in opened(probe(sandbox, pings))} <= set(PUBLIC)
    raw = [("icmp", PUBLIC[0], 0)]
    assert opened(probe(sandbox, raw) | probe(sandbox, raw, root=True)) == set()
    put(server, sandbox, denyOut=["0.0.0.0/0"])
    assert opened(probe(sandbox, pings)) == set()


def test_dns_works_through_the_router_only(sandbox, server, internet):
    asked = ("name", "any.example", 0)
    assert reached(sandbox, [asked], {asked})[asked] == ("open", PUBLIC[0])
    # The machine's name server has a private address, which is open for nothing but DNS.
    around = [("udp", RESOLVER, 53), ("tcp", RESOLVER, 53), ("tcp", RESOLVER, PORT)]
    around += [("tcp", "10.11.0.1", PORT), ("udp", "10.11.0.1", PORT), ("tcp", "10.11.0.1", 22)]
    assert opened(probe(sandbox, around)) == set()


def test_a_hosts_file_opens_nothing(sandbox, internet):
    lines = "".join(f"{address} friendly{n}.example\n" for n, address in enumerate(NEVER.values()))
    run(sandbox, "cp /etc/hosts /tmp/hosts.saved", root=True)
    try:
        sandbox.files.write("/tmp/more", lines, user="root")
        assert run(sandbox, "cat /tmp/more >> /etc/hosts", root=True).code == 0
        wanted = [("tcp", f"friendly{n}.example", PORT) for n in range(len(NEVER))]
        assert opened(probe(sandbox, wanted)) == set()
    finally:
        run(sandbox, "cat /tmp/hosts.saved > /etc/hosts", root=True)


def test_root_inside_cannot_change_rules_or_addresses(sandbox, internet):
    for command in (
        "ip address add 203.0.113.77/24 dev eth0", "ip link set eth0 down",
        "ip route replace default via 10.11.0.3", "ip link add x type dummy",
        "ip -6 address add 2001:db8:53::77/64 dev eth0", "nft flush ruleset",
        "echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6",
    ):
        assert run(sandbox, command, root=True).code != 0, command
    wanted = both(NEVER.values()) + [("tcp6", ROUTER_V6, PORT)]
    assert opened(probe(sandbox, wanted, root=True)) == set()
    still = set(both(PUBLIC[:1]))
    assert opened(reached(sandbox, both(PUBLIC[:1]), still)) == still, "it still works"


def test_rules_outlive_the_server(sandbox, server):
    put(server, sandbox, denyOut=["198.51.100.0/24"])
    expected = set(both(PUBLIC[2:]))
    server.crash()
    server.start()
    results = reached(sandbox, both([*PUBLIC, *NEVER.values()]), expected)
    assert opened(results) == expected
    status, answer = Call(server).get(f"/sandboxes/{sandbox.sandbox_id}")
    assert status == 200 and answer["network"]["denyOut"] == ["198.51.100.0/24"]


def test_rules_hold_after_a_pause(server, runtime, internet):
    first, second, third = PUBLIC
    made = create(server, runtime, timeout=600)
    try:
        put(server, made, denyOut=[first])
        status, answer = Call(server).post(f"/sandboxes/{made.sandbox_id}/pause", {"memory": runtime == "runsc"})
        assert status == 204, answer
        made.connect()
        expected = set(both([second, third]))
        assert opened(reached(made, both(PUBLIC), expected)) == expected
        # Also a rule that is set afterwards.
        put(server, made, denyOut=[second])
        expected = set(both([first, third]))
        assert opened(reached(made, both(PUBLIC), expected)) == expected
    finally:
        made.kill()
