"""Terminals: `sandbox.pty`."""

from __future__ import annotations

import pytest
from e2b import CommandExitException, NotFoundException, PtySize

from .halves import done, eventually


class Terminal:
    """A terminal of either half, with what it has shown so far."""

    def __init__(self, box, flavour: str):
        self.box, self.flavour, self.shown = box, flavour, bytearray()

    async def open(self, **more):
        if self.flavour == "async":
            self.handle = await self.box.pty.create(PtySize(24, 80), on_data=self.shown.extend, **more)
        else:
            self.handle = self.box.pty.create(PtySize(24, 80), **more)
        self.pid = self.handle.pid
        return self

    async def type(self, text: str):
        await done(self.box.pty.send_stdin(self.pid, text.encode()))

    async def end(self) -> str:
        """What it has shown when it is over; a shell's own code does not matter here."""
        try:
            if self.flavour == "async":
                await self.handle.wait()
            else:
                self.handle.wait(on_pty=self.shown.extend)
        except CommandExitException:
            pass
        return self.shown.decode(errors="replace")


@pytest.fixture
def terminal(box, flavour):
    return Terminal(box, flavour)


async def test_a_terminal_is_one(terminal):
    await terminal.open()
    await terminal.type("tty; stty size; echo $TERM $LANG; whoami; pwd; exit\n")
    shown = await terminal.end()
    for part in ("/dev/pts/", "24 80", "xterm-256color C.UTF-8", "user", "/home/user"):
        assert part in shown, shown


async def test_resize(terminal):
    await terminal.open()
    await done(terminal.box.pty.resize(terminal.pid, PtySize(rows=50, cols=132)))
    await terminal.type("stty size; exit\n")
    assert "50 132" in await terminal.end()


async def test_user_cwd_and_envs(terminal):
    await terminal.open(user="root", cwd="/usr/share", envs={"OWN": "one two"})
    await terminal.type('echo "$(whoami)|$(pwd)|$OWN"; exit\n')
    assert "root|/usr/share|one two" in await terminal.end()


async def test_exit_code(terminal):
    await terminal.open()
    await terminal.type("exit 42\n")
    with pytest.raises(CommandExitException) as failed:
        await done(terminal.handle.wait())
    assert failed.value.exit_code == 42


async def test_kill(terminal):
    await terminal.open(timeout=0)
    assert await done(terminal.box.pty.kill(terminal.pid)) is True
    with pytest.raises(CommandExitException):
        await done(terminal.box.commands.run(f"kill -0 {terminal.pid}"))
    assert await done(terminal.box.pty.kill(terminal.pid)) is False


async def test_the_interrupt_key(terminal):
    await terminal.open()
    await terminal.type("sleep 1000\n")
    running = terminal.box.commands

    async def asleep():
        try:
            return await done(running.run(f"pgrep -P {terminal.pid} sleep"))
        except CommandExitException:
            return None

    await eventually(asleep, "the command's start")
    await terminal.type("\x03")
    await terminal.type("echo after$((1+1)); exit\n")
    assert "after2" in await terminal.end()


async def test_what_is_typed_as_a_stream(terminal):
    await terminal.open()
    if terminal.flavour == "sync":
        terminal.box.pty.stream_input(terminal.pid, [b"echo a$((40+2))b\n", b"exit\n"])
    else:
        async with terminal.box.pty.stream_input(terminal.pid) as stream:
            await stream.send(b"echo a$((40+2))b\n")
            await stream.send(b"exit\n")
    assert "a42b" in await terminal.end()


async def test_another_client_connects(terminal, box, flavour):
    await terminal.open(timeout=0)
    shown = bytearray()
    if flavour == "async":
        other = await box.pty.connect(terminal.pid, on_data=shown.extend)
    else:
        other = box.pty.connect(terminal.pid)
    await terminal.type("echo for$((2*2)); exit\n")
    if flavour == "async":
        await other.wait()
    else:
        other.wait(on_pty=shown.extend)
    assert b"for4" in shown
    assert "for4" in await terminal.end()


async def test_a_terminal_that_is_not_there(box):
    assert await done(box.pty.kill(999_999)) is False
    with pytest.raises(NotFoundException):
        await done(box.pty.send_stdin(999_999, b"x"))
    with pytest.raises(NotFoundException):
        await done(box.pty.resize(999_999, PtySize(1, 1)))
