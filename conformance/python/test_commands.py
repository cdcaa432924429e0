"""Commands: `sandbox.commands` in all its forms."""

from __future__ import annotations


def test_run_says_what_the_command_said(sandbox):
    done = sandbox.commands.run("echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.exit_code, done.error) == ("out\n", "err\n", 0, None)


async def test_run_async(asandbox):
    done = await asandbox.commands.run("echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.exit_code, done.error) == ("out\n", "err\n", 0, None)
