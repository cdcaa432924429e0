"""Templates of images that a registry serves."""

from __future__ import annotations

import pytest
from e2b.exceptions import BuildException

from ..registry import ACCOUNT, Registry, bare_debian, small_debian
from .builder import Builder, out
from .conftest import done


@pytest.fixture(scope="module")
def builder(sdk):
    made = Builder(sdk)
    yield made
    made.end()


@pytest.fixture(scope="module")
def registries(tmp_path_factory):
    """Two registries with a small Debian: a public one, and one that requires an account."""
    layer = small_debian().read_bytes()
    both = [Registry(tmp_path_factory.mktemp("registry"), guarded) for guarded in (False, True)]
    for registry in both:
        registry.start()
        registry.push("small/debian", "12", [layer], Env=["PATH=/usr/bin:/bin", "OF=image"])
    both[0].push("bare/debian", "12", [bare_debian().read_bytes()], Env=["PATH=/usr/bin:/bin"])
    both[0].push("small/foreign", "1", [layer], architecture="s390x")
    yield both
    for registry in both:
        registry.stop()


@pytest.mark.timeout(400)
@pytest.mark.server
async def test_a_bare_image_gets_the_programs_that_clients_of_e2b_expect(sdk, builder, registries):
    image = f"{registries[0].address}/bare/debian:12"
    await builder.build(builder.Template().from_image(image).run_cmd("true"), "expected")
    sandbox = await sdk.create(builder.name("expected"), timeout=300)
    programs = "sudo curl git jq less ss pgrep /usr/sbin/sshd"
    assert await out(sandbox, f"for p in {programs}; do command -v $p >/dev/null || echo $p; done") == ""
    roots = "grep -c BEGIN /etc/ssl/certs/ca-certificates.crt"
    before = await out(sandbox, roots)
    assert int(before) > 50
    # Also after a reboot from its files alone.
    assert await done(sandbox.pause(keep_memory=False)) is True
    await sdk.call("connect", sandbox.sandbox_id, timeout=300)
    assert await out(sandbox, roots) == before


async def test_an_image_of_a_registry_is_made_fit_for_use(sdk, builder, registries, runtime):
    image = f"{registries[0].address}/small/debian:12"
    template = builder.Template().from_image(image).run_cmd("echo $OF > ~/of; id -un")
    await builder.build(template, "pulled")
    sandbox = await sdk.create(builder.name("pulled"), runtime, timeout=60)
    assert await out(sandbox, "cat ~/of; pwd; id -un") == "image\n/home/user\nuser\n"


@pytest.mark.server
async def test_steps_become_root_and_others_as_they_say(sdk, builder, registries):
    # The image has no such user, so it is created.
    image = f"{registries[0].address}/small/debian:12"
    template = (
        builder.Template().from_image(image)
        .run_cmd("sudo -n id -un > ~/root")
        .set_user("fresh")
        .run_cmd("id -un > /tmp/fresh; echo ~ >> /tmp/fresh; touch ~/own")
    )
    await builder.build(template, "accounts")
    sandbox = await sdk.create(builder.name("accounts"), timeout=60)
    assert await out(sandbox, "cat /home/user/root /tmp/fresh; id -un; stat -c %U ~/own") == (
        "root\nfresh\n/home/fresh\nfresh\nfresh\n"
    )
    # This template defines neither a user nor a working directory.
    name = builder.name("rooted")
    made = builder.api("POST", "/api/v1/templates", {"name": name, "image": image})
    assert made.status_code == 201, made.text
    builder.made.add(name)
    upper = builder.Template().from_template(name).run_cmd("pwd > /tmp/where; id -un >> /tmp/where")
    await builder.build(upper, "over-root")
    sandbox = await sdk.create(builder.name("over-root"), timeout=60)
    assert await out(sandbox, "cat /tmp/where") == "/root\nroot\n"


@pytest.mark.server
async def test_a_registry_that_asks_is_told(sdk, builder, registries):
    image = f"{registries[1].address}/small/debian:12"
    with pytest.raises(BuildException, match="credentials"):
        await builder.build(builder.Template().from_image(image), "guarded")
    with pytest.raises(BuildException, match="credentials"):
        wrong = builder.Template().from_image(image, username="alice", password="open")
        await builder.build(wrong, "guarded")
    right = builder.Template().from_image(image, username=ACCOUNT[0], password=ACCOUNT[1])
    await builder.build(right.run_cmd("echo in > ~/in"), "guarded")
    sandbox = await sdk.create(builder.name("guarded"), timeout=60)
    assert await out(sandbox, "cat ~/in") == "in\n"
    # The image is present now, but not for callers without an account.
    with pytest.raises(BuildException, match="credentials"):
        await builder.build(builder.Template().from_image(image), "unguarded")
    foreign = builder.Template().from_image(f"{registries[0].address}/small/foreign:1")
    with pytest.raises(BuildException, match="no variant for linux"):
        await builder.build(foreign, "foreign")
    missing = builder.Template().from_image(f"{registries[0].address}/small/missing:1")
    with pytest.raises(BuildException, match="was not found"):
        await builder.build(missing, "missing")
