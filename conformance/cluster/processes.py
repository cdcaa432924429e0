"""The processes of a test cluster. They end with the test run, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ..installation import wait_until


@dataclass
class Processes:
    """Named processes, each with a log file in a directory."""

    directory: Path
    running: dict[str, subprocess.Popen] = field(default_factory=dict)

    def start(self, name: str, *command: object, **environment: str) -> None:
        assert name not in self.running, f"{name} runs already"
        with open(self.log(name), "ab") as log:
            # The kernel ends the process when the process of the tests ends, even if that is killed.
            self.running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=os.environ | environment,
            )

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def wait_for(self, name: str, condition, seconds: float, what: str) -> None:
        """Waits until a condition holds. Fails at once when the process ends before."""

        def holds():
            status = self.running[name].poll()
            assert status is None, f"{name} ended with {status}:\n{self.tail(name)}"
            return condition()

        try:
            wait_until(holds, seconds, what)
        except AssertionError as mistake:
            raise AssertionError(f"{mistake}; the end of {self.log(name)}:\n{self.tail(name)}") from None

    def state(self) -> str:
        """The state of the processes, for the report of a failure."""
        return "\n".join(f"{name}: {self._state(name)}" for name in self.running)

    def _state(self, name: str) -> str:
        status = self.running[name].poll()
        if status is not None:
            return f"ended with {status}:\n{self.tail(name)}"
        try:
            fields = Path(f"/proc/{self.running[name].pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return "ended"
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        megabytes = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") >> 20
        return f"{fields[0]}, {seconds:.0f} s of a processor, {megabytes} MiB; {self.tail(name, 200)!r}"

    def tail(self, name: str, size: int = 3000) -> str:
        return self.log(name).read_bytes()[-size:].decode(errors="replace")

    def kill(self, *names: str) -> None:
        """Kills processes, and waits until they have ended. Unknown names are ignored."""
        self._end(signal.SIGKILL, names)

    def stop(self, *names: str) -> None:
        """Asks processes to end, and waits until they have. Unknown names are ignored."""
        self._end(signal.SIGTERM, names)

    def _end(self, how: signal.Signals, names: tuple[str, ...]) -> None:
        found = [process for name in names if (process := self.running.pop(name, None))]
        for process in found:
            process.send_signal(how)
        for process in found:
            process.wait(60)
