"""Drives a program in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

#: How long output may take to appear, in seconds.
PATIENCE = 90


class Terminal:
    """A command in a terminal, and its whole output."""

    def __init__(self, command: list[str], environment: dict[str, str], rows: int = 24, columns: int = 80):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment | {"TERM": "xterm-256color"})
        self.resize(rows, columns)
        self.shown = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, seconds: float) -> bool:
        """Reads output until a timeout; false when the terminal is closed."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            part = os.read(self.master, 65536)
        except OSError:
            return False
        self.shown += part.decode(errors="replace")
        return bool(part)

    def shows(self, pattern: str) -> re.Match:
        end = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < end, f"{pattern!r} is not shown, but:\n{self.shown}"
            if not self.read(0.2):
                found = re.search(pattern, self.shown)
                assert found, f"it ended without {pattern!r}:\n{self.shown}"
                return found
        return found

    def ends(self) -> int:
        """The exit status of the command."""
        end = time.monotonic() + PATIENCE
        while self.read(0.2):
            assert time.monotonic() < end, f"it does not end:\n{self.shown}"
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        os.close(self.master)
