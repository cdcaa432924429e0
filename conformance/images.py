"""Makes the images of the builtin templates once, for all suites.

`python -m conformance.images DIRECTORY`: an installation in that directory is started and ended.
Takes a second if the images exist already.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .installation import Installation


def main() -> None:
    installation = Installation(Path(sys.argv[1]).resolve(), settings=["disk.backend=plain", "network.warm_slots=0"])
    installation.start()
    installation.stop()


if __name__ == "__main__":
    main()
