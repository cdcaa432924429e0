"""Drives a program in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

#: The timeout for output on the terminal.
SECONDS = 90


class Terminal:
    """A program whose three standard streams are a terminal of this size."""

    def __init__(self, command: list[str], env: dict[str, str], columns: int = 80, rows: int = 24):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=env,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, text: str) -> None:
        """Waits until the text is on the screen, and discards everything before its end."""
        end = time.monotonic() + SECONDS
        while text.encode() not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} does not come: {self.seen[-2000:]!r}"
            if select.select([self.master], [], [], min(left, 0.5))[0]:
                self.seen += os.read(self.master, 65536)
            else:
                assert self.process.poll() is None, f"it ended without {text!r}: {self.seen!r}"
        self.seen = self.seen.split(text.encode(), 1)[1]

    def wait(self) -> int:
        """Its exit status. Reads the output until then, as a terminal does."""
        end = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end: {self.seen[-2000:]!r}"
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Whether the terminal's mode was restored."""
        return termios.tcgetattr(self.slave) == self.before

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & (termios.ECHO | termios.ICANON)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
        os.close(self.master)
        os.close(self.slave)
