"""Terminals: a shell with a size, input, output and an end."""

import asyncio

import pytest
from e2b import CommandExitException, PtySize
from e2b.exceptions import NotFoundException

from .conftest import done


class Terminal:
    """A terminal of either SDK."""

    def __init__(self, sdk, sandbox):
        self.sdk, self.pty = sdk, sandbox.pty
        self.seen = bytearray()

    async def open(self, cols=80, rows=24, **more):
        if self.sdk.name == "async":
            self.handle = await self.pty.create(PtySize(rows, cols), self.seen.extend, **more)
        else:
            self.handle = self.pty.create(PtySize(rows, cols), **more)
        return self

    async def say(self, line: str):
        await done(self.pty.send_stdin(self.handle.pid, line.encode() + b"\n"))

    async def wait_for(self, text: str):
        """Reads until the text is shown."""
        if self.sdk.name == "sync":
            events = iter(self.handle)
            while text.encode() not in self.seen:
                self.seen += next(events)[2] or b""
        else:
            async with asyncio.timeout(60):
                while text.encode() not in self.seen:
                    await asyncio.sleep(0.01)
        assert text.encode() in self.seen, self.seen

    async def end(self):
        """The exit of the terminal."""
        return await done(self.handle.wait())


@pytest.fixture
async def terminal(sdk, sandbox):
    made = Terminal(sdk, sandbox)
    yield made
    await done(sandbox.pty.kill(made.handle.pid))


async def test_a_terminal_is_a_login_shell(terminal):
    await terminal.open()
    await terminal.say("echo term=$TERM lang=$LANG; tty; shopt -q login_shell && echo lo''gin; pwd")
    await terminal.wait_for("term=xterm-256color lang=C.UTF-8")
    await terminal.wait_for("/dev/pts/")
    await terminal.wait_for("login")


async def test_a_terminal_has_the_size_that_was_asked(terminal):
    await terminal.open(cols=123, rows=45)
    await terminal.say("stty size")
    await terminal.wait_for("45 123")


async def test_a_terminal_is_resized(terminal, sandbox):
    await terminal.open()
    await done(sandbox.pty.resize(terminal.handle.pid, PtySize(cols=111, rows=33)))
    await terminal.say("stty size")
    await terminal.wait_for("33 111")


async def test_a_terminal_has_variables_a_user_and_a_place(terminal):
    await terminal.open(envs={"MINE": "yes"}, cwd="/tmp", user="root")
    await terminal.say("echo =$MINE=$(id -un)=$PWD=")
    await terminal.wait_for("=yes=root=/tmp=")


async def test_a_terminal_ends_as_its_shell_says(terminal):
    await terminal.open()
    await terminal.say("exit 5")
    with pytest.raises(CommandExitException) as raised:
        await terminal.end()
    assert raised.value.exit_code == 5


async def test_control_c_interrupts(terminal):
    await terminal.open()
    # The terminal echoes input before the command runs, so wait for output. Only output of a separate
    # program shows that it has the terminal, and not the shell.
    await terminal.say("sh -c 'echo be\"\"gun; exec sleep 1000'; echo after=$?")
    await terminal.wait_for("begun")
    await done(terminal.pty.send_stdin(terminal.handle.pid, b"\x03"))
    await terminal.say("echo st''ill")
    await terminal.wait_for("still")


async def test_a_terminal_is_killed(terminal, sandbox):
    await terminal.open()
    assert await done(terminal.handle.kill()) is True
    with pytest.raises(CommandExitException) as raised:
        await terminal.end()
    assert raised.value.exit_code == -1
    assert await done(sandbox.pty.kill(terminal.handle.pid)) is False


async def test_a_terminal_is_found_again(terminal, sdk, sandbox):
    await terminal.open()
    seen = bytearray()
    more = {"on_data": seen.extend} if sdk.name == "async" else {}
    await done(terminal.handle.disconnect())
    again = Terminal(sdk, sandbox)
    again.seen = seen
    again.handle = await done(sandbox.pty.connect(terminal.handle.pid, **more))
    await again.say("echo ag''ain")
    await again.wait_for("again")


async def test_what_is_no_terminal_is_not_found(sandbox):
    with pytest.raises(NotFoundException):
        await done(sandbox.pty.resize(999_999, PtySize(24, 80)))
    with pytest.raises(NotFoundException):
        await done(sandbox.pty.send_stdin(999_999, b"x"))
    assert await done(sandbox.pty.kill(999_999)) is False
