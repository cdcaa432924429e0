"""Kernel state after a pause, in a clone, and in a fork."""

from __future__ import annotations

import pytest

from .conftest import done

RANDOM = """
import random, uuid, secrets
import numpy as np
[random.random(), np.random.rand(), str(uuid.uuid4()), secrets.token_hex(8)]
"""


async def test_state_survives_a_pause(sdk):
    sandbox = await sdk.create(timeout=300)
    await done(sandbox.run_code("x = [1, 2]; f = lambda: sum(x)"))
    await done(sandbox.run_code("let y = 5", language="js"))
    for _ in range(2):
        assert await done(sandbox.pause())
        sandbox = await sdk.call("connect", sandbox.sandbox_id)
        assert (await done(sandbox.run_code("f()"))).text == "3"
        assert (await done(sandbox.run_code("y", language="js"))).text == "5"
    await done(sandbox.kill())


async def test_clones_start_from_the_same_state_and_are_independent(sdk):
    original = await sdk.create(timeout=300, envs={"WHO": "original"})
    await done(original.run_code("x = 1; import os"))
    taken = await done(original.create_snapshot())
    one = await sdk.create(taken.snapshot_id, timeout=300, envs={"WHO": "one"})
    two = await sdk.create(taken.snapshot_id, timeout=300, envs={"WHO": "two"})
    for clone, who in ((one, "one"), (two, "two"), (original, "original")):
        execution = await done(clone.run_code("x += 1; [x, os.environ['WHO']]"))
        assert execution.results[0].json == [2, who], execution
    for clone in (one, two, original):
        await done(clone.kill())
    await sdk.call("delete_snapshot", taken.snapshot_id)


#: Draws from every random generator of a language, in separate words.
DRAW = {
    "javascript": "[Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint32Array(2))].join('-')].join(' ')",
    "r": "cat(runif(1), sample.int(2^30, 1))",
    "bash": "echo $RANDOM-$RANDOM-$RANDOM $SRANDOM",
    "java": "Math.random() + \" \" + java.util.concurrent.ThreadLocalRandom.current().nextLong()"
            " + \" \" + java.util.UUID.randomUUID()",
}


def drawn(execution) -> list[str]:
    assert execution.error is None, execution.error
    assert not execution.logs.stderr, execution.logs.stderr
    return (execution.text or "".join(execution.logs.stdout)).split()


@pytest.mark.kernel
async def test_clones_have_other_random_numbers_in_every_language(sdk):
    original = await sdk.create(timeout=300)
    for language, draw in DRAW.items():
        drawn(await done(original.run_code(draw, language=language)))
    taken = await done(original.create_snapshot())
    sandboxes = [await sdk.create(taken.snapshot_id, timeout=300) for _ in range(2)]
    said = {language: [] for language in DRAW}
    for sandbox in (*sandboxes, original):
        for language, draw in DRAW.items():
            said[language].append(drawn(await done(sandbox.run_code(draw, language=language))))
    for language, draws in said.items():
        for column in zip(*draws, strict=True):
            assert len(set(column)) == len(draws), (language, draws)
    for sandbox in (*sandboxes, original):
        await done(sandbox.kill())
    await sdk.call("delete_snapshot", taken.snapshot_id)


@pytest.mark.kernel
async def test_openssl_is_reseeded_in_a_clone(sdk):
    original = await sdk.create(timeout=300)
    draw = "import ssl; ssl.RAND_bytes(16).hex()"
    await done(original.run_code(draw))
    taken = await done(original.create_snapshot())
    sandboxes = [await sdk.create(taken.snapshot_id, timeout=300) for _ in range(2)]
    said = [(await done(sandbox.run_code(draw))).text for sandbox in (*sandboxes, original)]
    assert len(set(said)) == 3, said
    for sandbox in (*sandboxes, original):
        await done(sandbox.kill())
    await sdk.call("delete_snapshot", taken.snapshot_id)


@pytest.mark.kernel
async def test_no_two_sandboxes_share_random_numbers(sdk):
    original = await sdk.create(timeout=300)
    # Its generators are seeded before the snapshot is taken.
    await done(original.run_code(RANDOM))
    taken = await done(original.create_snapshot())
    drawn = []
    for _ in range(2):
        clone = await sdk.create(taken.snapshot_id, timeout=300)
        drawn.append((await done(clone.run_code(RANDOM))).results[0].json)
        await done(clone.kill())
    # Nor are two that start from the template, which is a snapshot as well.
    for _ in range(2):
        fresh = await sdk.create(timeout=120)
        drawn.append((await done(fresh.run_code(RANDOM))).results[0].json)
        await done(fresh.kill())
    drawn.append((await done(original.run_code(RANDOM))).results[0].json)
    for column in zip(*drawn):
        assert len(set(column)) == len(drawn), drawn
    script = "[Math.random(), crypto.randomUUID()].join(' ')"
    words = []
    for _ in range(2):
        fresh = await sdk.create(timeout=120)
        words.append((await done(fresh.run_code(script, language="js"))).text)
        await done(fresh.kill())
    assert not set(words[0].split()) & set(words[1].split()), words
    await done(original.kill())
    await sdk.call("delete_snapshot", taken.snapshot_id)
