"""A server with injected failures of system calls: out of descriptors, out of memory."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
NUMBERS = struct.Struct("=iiii")


class Faults:
    """Makes one call of a server fail that opens a descriptor."""

    def __init__(self, directory: Path):
        library, file = directory / "faults.so", directory / "faults"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        file.write_bytes(bytes(NUMBERS.size))
        with file.open("r+b") as opened:
            self.numbers = mmap.mmap(opened.fileno(), NUMBERS.size)
        #: The command prefix of the server.
        self.under = ["env", f"LD_PRELOAD={library}", f"FAULTS={file}"]

    def _read(self) -> tuple[int, int, int, int]:
        return NUMBERS.unpack(self.numbers[:])

    @property
    def calls(self) -> int:
        """How many calls have opened a descriptor so far."""
        return self._read()[3]

    @property
    def failed(self) -> int:
        return self._read()[2]

    def fail(self, after: int, error: int) -> None:
        """Makes the call after this many others fail, once."""
        self.numbers[:8] = struct.pack("=ii", after, error)

    def stop(self) -> None:
        self.numbers[:8] = struct.pack("=ii", 0, 0)
