"""A pool of the template: kernels that already run when a sandbox is claimed."""

from __future__ import annotations

import time

import pytest
from e2b_code_interpreter import Sandbox

from ..installation import wait_until
from ..sdk.test_pool import full, is_frozen, pool, post, put
from .server import TEMPLATE

SIZE = 2


def entry(**more) -> dict:
    """The name that the SDKs request."""
    return {
        "name": TEMPLATE,
        "template": TEMPLATE,
        "description": "Six languages, ready",
        "pool": {"size": SIZE} | more,
    }


@pytest.fixture(autouse=True)
def without_pools(server):
    yield
    put(server)
    wait_until(lambda: not server.groups(), 120, "every member is gone")


@pytest.fixture
def pooled(server):
    put(server, entry())
    return full(server, TEMPLATE, SIZE)


def test_the_sdk_gets_a_member_with_a_running_kernel(server, pooled):
    drawn = set()
    for member in pooled:
        with Sandbox.create(timeout=120, metadata={"own": "1"}, **server.options()) as sandbox:
            assert sandbox.sandbox_id in pooled
            assert sandbox.get_info().metadata["sbx-pool"] == "false"
            assert sandbox.run_code("x = 1; x += 1; x").text == "2"
            drawn.add(sandbox.run_code("import random, uuid; (random.random(), uuid.uuid4())").text)
            environment = "import os; os.environ['E2B_SANDBOX_ID']"
            assert sandbox.run_code(environment).text == sandbox.sandbox_id
    assert len(drawn) == len(pooled)
    assert pool(server, TEMPLATE)["misses"] == 0


def test_frozen_kernels_answer_after_a_claim(server, pooled):
    frozen = lambda: all(is_frozen(server, member) for member in pooled)  # noqa: E731
    wait_until(frozen, 60, "the members are frozen")
    with Sandbox.create(timeout=120, **server.options()) as sandbox:
        assert sandbox.sandbox_id in pooled
        assert sandbox.run_code("x = 1; x += 1; x").text == "2"
        assert sandbox.run_code("const n: number = 42; n", language="ts").text == "42"
        asked = time.time()
        clock = sandbox.run_code("import time; time.time()").text
        assert asked - 5 < float(clock) < time.time() + 5


def test_variables_and_other_languages_reach_a_member(server, pooled):
    options = server.options()
    with Sandbox.create(timeout=120, envs={"OWN": "2"}, **options) as sandbox:
        assert sandbox.sandbox_id in pooled
        assert sandbox.run_code("import os; os.environ['OWN']").text == "2"
        assert sandbox.run_code("const n: number = 42; n", language="ts").text == "42"


def test_a_claimed_member_has_its_owners_token_or_none(server, pooled):
    options = server.options()
    with Sandbox.create(timeout=120, secure=False, **options) as sandbox:
        assert sandbox.sandbox_id in pooled
        assert sandbox.run_code("1 + 1").text == "2"
        assert sandbox.commands.run("echo hello").stdout == "hello\n"


def test_every_member_has_the_warmed_up_state(server):
    put(server, entry(size=1, warmupCmd="touch,/tmp/warm"))
    for _ in range(2):
        member = full(server, TEMPLATE, 1)
        with Sandbox.create(timeout=120, **server.options()) as sandbox:
            assert sandbox.sandbox_id in member
            assert sandbox.files.exists("/tmp/warm")


def test_an_entry_needs_an_existing_template(server):
    put(server, {"name": "odd", "template": "never-built", "description": "d"})
    status, answer = post(server, {"templateID": "odd", "timeout": 60})
    assert status == 404
    assert "is based on 'never-built', which does not exist" in answer["message"]
