"""Network policies of sandboxes; other suites attack them."""

import pytest
from e2b import InvalidArgumentException, SandboxException

from .conftest import done

#: Whether a rule rejects a connection immediately; no server is at these addresses.
PROBE = "timeout 5 bash -c 'exec 3<>/dev/tcp/{}/{}' 2>&1"


async def test_the_internet_is_off_when_it_is_said(sdk, runtime):
    made = await sdk.create(runtime=runtime, allow_internet_access=False)
    info = await done(made.get_info())
    assert info.allow_internet_access is False
    result = await done(made.commands.run(PROBE.format("198.51.100.1", 80) + " && echo open || echo closed"))
    assert result.stdout.endswith("closed\n")
    # Its own ports stay reachable from inside.
    assert (await done(made.commands.run("echo own"))).stdout == "own\n"
    await done(made.kill())


async def test_rules_are_told_as_they_were_given(sdk):
    network = {"allow_out": ["1.1.1.1", "8.8.8.0/24"], "deny_out": ["0.0.0.0/0"]}
    made = await sdk.create(network=network)
    told = (await done(made.get_info())).network
    assert (told["allow_out"], told["deny_out"]) == (network["allow_out"], network["deny_out"])
    await done(made.kill())


async def test_rules_are_replaced_as_a_whole(sdk):
    made = await sdk.create(network={"deny_out": ["8.8.8.8"]})
    await done(made.update_network({"allow_out": ["1.1.1.1"], "deny_out": ["0.0.0.0/0"]}))
    told = (await done(made.get_info())).network
    assert (told["allow_out"], told["deny_out"]) == (["1.1.1.1"], ["0.0.0.0/0"])
    await sdk.call("update_network", made.sandbox_id, {})
    told = (await done(made.get_info())).network or {}
    assert not told.get("allow_out") and not told.get("deny_out")
    await done(made.kill())


@pytest.mark.parametrize(
    "network",
    [
        {"deny_out": ["not an address"]},
        {"deny_out": ["1.2.3.4/33"]},
        {"deny_out": ["example.com"]},
        {"allow_out": ["1.2.3.4/-1"]},
        {"mask_request_host": "-https://abcd"},
    ],
)
async def test_a_rule_that_cannot_be_is_refused(sdk, network):
    with pytest.raises((SandboxException, InvalidArgumentException)) as raised:
        await sdk.create(network=network)
    assert raised.value.status_code == 400


async def test_private_addresses_are_never_reached(sdk, runtime):
    made = await sdk.create(runtime=runtime, network={"allow_out": ["10.0.0.0/8", "192.168.0.0/16"]})
    for address in ("10.79.0.1", "192.168.0.1", "169.254.169.254", "172.16.0.1"):
        said = await done(made.commands.run(PROBE.format(address, 80) + " && echo open || echo closed"))
        assert said.stdout.endswith("closed\n"), address
    await done(made.kill())


async def test_names_inside_are_resolved(sdk, runtime):
    made = await sdk.create(runtime=runtime)
    result = await done(made.commands.run("getent hosts localhost; hostname; getent hosts $(hostname)"))
    assert "localhost" in result.stdout
    await done(made.kill())
