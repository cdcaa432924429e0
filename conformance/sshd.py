"""An external machine for tests: OpenSSH's server with one account, which no other program on this machine sees.

Each connection gets a server process of its own, in a mount namespace that has the account. See `crates/ssh/src/tests/sshd.sh`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "crates/ssh/src/tests/sshd.sh"

#: The account `tester`.
ACCOUNT = 64242


class Sshd:
    """A server on a loopback address. Its account has the directory `home`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-sshd-"))
        self.directory.chmod(0o755)
        self.home = self.directory / "home"
        self.home.mkdir()
        os.chown(self.home, ACCOUNT, ACCOUNT)
        self.make_key("host_key")
        self.make_key("key")
        shutil.copy(self.directory / "key.pub", self.directory / "authorized_keys")
        self.connections: list[subprocess.Popen] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"tester@127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.directory / "key").read_text()

    def make_key(self, name: str, *options: str) -> None:
        path = self.directory / name
        path.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", *options, "-f", str(path)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def write(self, name: str, text: str) -> None:
        """Writes a file as the account would."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for made in [path, *path.parents]:
            if made == self.home:
                break
            os.chown(made, ACCOUNT, ACCOUNT)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            with connection:
                self.connections.append(subprocess.Popen(
                    [SCRIPT, self.directory], stdin=connection, stdout=connection, stderr=subprocess.DEVNULL,
                    start_new_session=True,
                ))

    def cut(self) -> None:
        """Ends all connections as they are."""
        while self.connections:
            process = self.connections.pop()
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def stop(self) -> None:
        # A thread that accepts is woken by this, not by a close.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        shutil.rmtree(self.directory, ignore_errors=True)
