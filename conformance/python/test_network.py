"""What a sandbox reaches: a public address of this machine's making, allowed and denied."""

from __future__ import annotations

import subprocess
import sys

import pytest
from e2b import ALL_TRAFFIC, CommandExitException

from .halves import done
from .wire import fails

#: Documentation addresses (RFC 5737): public to every rule, and nobody's.
HERE, THERE, OTHER = "198.51.100.201", "198.51.100.202", "198.51.100.206"
NAMESPACE, LINK, PORT = "shoal-python-net", "pynet0", 7070


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def outside():
    """Two public addresses, behind a link of their own, that answer HTTP."""
    for words in (("link", "del", LINK), ("netns", "del", NAMESPACE)):
        subprocess.run(["ip", *words], check=False, capture_output=True)
    ip("netns", "add", NAMESPACE)
    ip("link", "add", LINK, "type", "veth", "peer", "name", "wan0", "netns", NAMESPACE)
    ip("address", "add", f"{HERE}/30", "dev", LINK)
    ip("link", "set", LINK, "up")
    for words in (
        ("address", "add", f"{THERE}/30", "dev", "wan0"), ("address", "add", f"{OTHER}/32", "dev", "lo"),
        ("link", "set", "wan0", "up"), ("link", "set", "lo", "up"), ("route", "add", "default", "via", HERE),
    ):
        ip("-n", NAMESPACE, *words)
    ip("route", "add", f"{OTHER}/32", "via", THERE, "dev", LINK)
    serving = (
        "import http.server as h\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'outside')\n"
        "    def log_message(self, *a): pass\n"
        f"s = h.ThreadingHTTPServer(('0.0.0.0', {PORT}), A)\n"
        "print('ready', flush=True)\n"
        "s.serve_forever()\n"
    )
    command = ["ip", "netns", "exec", NAMESPACE, sys.executable, "-c", serving]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    yield
    server.kill()
    server.wait(10)
    ip("link", "del", LINK)
    ip("netns", "del", NAMESPACE)


async def reaches(box, address: str) -> bool:
    try:
        ran = await done(box.commands.run(f"curl -s -m 2 --connect-timeout 2 http://{address}:{PORT}/"))
        return ran.stdout == "outside"
    except CommandExitException:
        return False


@pytest.fixture
async def made(sdk, options, outside):
    """Makes sandboxes with the rules given."""
    boxes = []

    async def make(**more):
        boxes.append(await done(sdk.create(timeout=120, **more, **options)))
        return boxes[-1]

    yield make
    for box in boxes:
        await done(box.kill())


async def test_the_internet_is_open(made):
    box = await made()
    assert await reaches(box, THERE) and await reaches(box, OTHER)


async def test_no_internet(made):
    box = await made(allow_internet_access=False)
    assert not await reaches(box, THERE)
    # The SDK itself goes on.
    assert (await done(box.commands.run("echo hi"))).stdout == "hi\n"
    assert (await done(box.get_info())).allow_internet_access is False


async def test_deny_one(made):
    box = await made(network={"deny_out": [OTHER]})
    assert await reaches(box, THERE) and not await reaches(box, OTHER)


async def test_deny_a_range(made):
    box = await made(network={"deny_out": ["198.51.100.204/30"]})
    assert await reaches(box, THERE) and not await reaches(box, OTHER)


async def test_allow_one_of_none(made):
    box = await made(network={"allow_out": [THERE], "deny_out": [ALL_TRAFFIC]})
    assert await reaches(box, THERE) and not await reaches(box, OTHER)


async def test_selectors_of_the_sdk(made):
    box = await made(network={"allow_out": lambda ctx: [OTHER], "deny_out": lambda ctx: [ctx.all_traffic]})
    assert not await reaches(box, THERE) and await reaches(box, OTHER)
    info = await done(box.get_info())
    assert (info.network["allow_out"], info.network["deny_out"]) == ([OTHER], ["0.0.0.0/0"])


async def test_allow_beats_deny(made):
    box = await made(network={"allow_out": [THERE], "deny_out": [THERE]})
    assert await reaches(box, THERE)


async def test_change_while_it_runs(made, sdk, options):
    box = await made()
    assert await reaches(box, THERE)
    await done(box.update_network({"deny_out": [THERE]}))
    assert not await reaches(box, THERE) and await reaches(box, OTHER)
    # What is said replaces what was said before.
    await done(sdk.update_network(box.sandbox_id, {"deny_out": [OTHER]}, **options))
    assert await reaches(box, THERE) and not await reaches(box, OTHER)
    await done(box.update_network({"allow_internet_access": False}))
    assert not await reaches(box, THERE)
    await done(box.update_network({}))
    assert await reaches(box, THERE) and await reaches(box, OTHER)


@pytest.mark.parametrize("runtime", ["runsc", "runc"])
async def test_the_rules_do_not_depend_on_the_runtime(made, runtime):
    box = await made(metadata={"shoal/runtime": runtime}, network={"deny_out": [OTHER]})
    assert await reaches(box, THERE) and not await reaches(box, OTHER)


async def test_no_rule_opens_the_machine(made, server):
    """Private ranges stay closed whatever is allowed; the server's own port is on one of them."""
    box = await made(network={"allow_out": ["0.0.0.0/0", "10.0.0.0/8", "127.0.0.0/8"]})
    for address in ("127.0.0.1", HERE, "10.79.0.1", "169.254.169.254"):
        with pytest.raises(CommandExitException):
            await done(box.commands.run(f"curl -s -m 1 http://{address}:{server.port}/health"))


@pytest.mark.parametrize(
    "body", [{"denyOut": ["nonsense"]}, {"allowOut": ["1.2.3.4/33"]}, {"allowOut": "1.2.3.4"}, {"denyOut": ["a.example"]}]
)
def test_a_change_that_is_none(wire, sandbox, body):
    fails(wire.put(f"/sandboxes/{sandbox.sandbox_id}/network", json=body), 400)
