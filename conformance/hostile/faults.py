"""A server with injected failures of system calls: out of descriptors, out of memory."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
NUMBERS = struct.Struct("=iiii")


class Faults:
    """What makes one call of a server that opens something fail."""

    def __init__(self, directory: Path):
        library, file = directory / "faults.so", directory / "faults"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        file.write_bytes(bytes(NUMBERS.size))
        with file.open("r+b") as opened:
            self.numbers = mmap.mmap(opened.fileno(), NUMBERS.size)
        #: What a server is run under.
        self.under = ["env", f"LD_PRELOAD={library}", f"FAULTS={file}"]

    def _read(self) -> tuple[int, int, int, int]:
        return NUMBERS.unpack(self.numbers[:])

    @property
    def calls(self) -> int:
        """How many calls have opened something until now."""
        return self._read()[3]

    @property
    def failed(self) -> int:
        return self._read()[2]

    def fail(self, after: int, error: int) -> None:
        """Lets the call that comes after so many others fail, once."""
        self.numbers[:8] = struct.pack("=ii", after, error)

    def stop(self) -> None:
        self.numbers[:8] = struct.pack("=ii", 0, 0)
