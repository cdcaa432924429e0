"""The SDK has two halves with the same methods; a case is written once for both."""

from __future__ import annotations

import asyncio
import inspect
import time


async def done(value):
    """What a call came to, whether it has to be awaited or not."""
    return await value if inspect.isawaitable(value) else value


async def eventually(condition, what: str, seconds: float = 20):
    """The first true answer of `condition`, which is asked again until then."""
    end = time.monotonic() + seconds
    while True:
        value = await done(condition())
        if value:
            return value
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.05)
