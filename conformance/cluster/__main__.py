"""A Kubernetes cluster to try things on, until it is interrupted:

    python -m conformance.cluster [--node]

prints what to export. `--node` adds a real node, which needs root.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from .cluster import Cluster


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="shoal-cluster-") as scratch:
        cluster = Cluster(Path(scratch) / "state", node="--node" in sys.argv[1:])
        try:
            cluster.start()
            print(f"export KUBECONFIG={cluster.admin} PATH={cluster.bin}:$PATH", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
