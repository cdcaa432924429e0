"""The chart prepares nodes that have nothing but gVisor: `shoal prepare-node` in an init container of the agent.

The test's nodes have no systemd. A stand-in for `systemctl` has containerd restarted, and fails at first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading

import pytest

from ..installation import program, wait_until
from .kills import CONTAINERD, kill
from .test_checkpoints_elsewhere import clean  # noqa: F401
from .test_checkpoints_node import (  # noqa: F401
    NODE_NAMESPACE, VALUES, agent_of, agent_ready, number, operator, ready, sandbox, saved,
)
from .test_install import imported  # noqa: F401

#: Returns when the file `restart` is gone, as systemctl does when a unit has restarted.
SYSTEMCTL = """\
#!/bin/sh
cd "${0%/*}" || exit
echo "$@" >>asked
if [ ! -e failed ]; then
    : >failed
    echo "Failed to restart containerd.service: no bus" >&2
    exit 1
fi
: >restart
while [ -e restart ]; do sleep 0.1; done
"""


def restart_containerd(node) -> None:
    kill(node, CONTAINERD)
    node.run("sh", "-c", "for i in $(seq 600); do ctr version >/dev/null 2>&1 && exit; sleep 0.05; done; exit 1")


@pytest.fixture
def bare(imported, real_cluster):  # noqa: F811
    """The node with runsc in its usual directory, the stand-in, and no trace of Shoal."""
    node = real_cluster.node
    programs, systemd = (node.directory / name for name in ("usual", "systemd"))
    for directory in (programs, systemd):
        directory.mkdir()
    shutil.copy(shutil.which("runsc"), programs)
    (systemd / "systemctl").write_text(SYSTEMCTL)
    (systemd / "systemctl").chmod(0o755)
    node.run("mount", "--bind", str(programs), "/usr/local/bin")
    node.run("mount", "--bind", str(systemd), "/usr/local/sbin")
    node.unprepare()
    node.run("rm", "/usr/local/lib/shoal/runsc", "/usr/local/lib/shoal/shoal-runsc", "/etc/containerd/shoal.toml")
    restart_containerd(node)
    ended = threading.Event()

    def unit() -> None:
        while not ended.wait(0.05):
            if (systemd / "restart").exists():
                restart_containerd(node)
                os.unlink(systemd / "restart")

    restarts = threading.Thread(target=unit, daemon=True)
    restarts.start()
    yield systemd
    ended.set()
    restarts.join(60)
    node.run("umount", "/usr/local/bin", "/usr/local/sbin")


@pytest.fixture
def prepared(bare, operator, real_cluster):  # noqa: F811
    shim = real_cluster.node.shim / "containerd-shim-runsc-v1"
    yield from agent_of(real_cluster, *VALUES, "--set", f"node.prepare.enabled=true,node.prepare.shim={shim}")


def test_the_agent_prepares_its_node(prepared, bare, real_cluster, clean):  # noqa: F811
    """The first restart fails. The next try of the init container finds all files in place, and still restarts."""
    pod, = real_cluster.get("pods", namespace=NODE_NAMESPACE)["items"]
    state, = pod["status"]["initContainerStatuses"]
    assert state["restartCount"] >= 1
    assert (bare / "asked").read_text().splitlines() == ["restart -- containerd"] * 2
    assert "restart-due" not in prepared.run("ls", "/run/containerd")
    # The handler works.
    real_cluster.apply(sandbox("first"))
    ready(real_cluster, "first")
    drawn = number(real_cluster, "first")
    saved(real_cluster, "of-first", "first")
    real_cluster.apply(sandbox("second", restore="of-first"))
    ready(real_cluster, "second")
    assert number(real_cluster, "second") == drawn
    # A new pod of the agent finds nothing to do.
    asked = (bare / "asked").read_text()
    real_cluster.delete("pod", pod["metadata"]["name"], namespace=NODE_NAMESPACE)
    agent_ready(real_cluster)
    pod, = wait_until(lambda: real_cluster.get("pods", namespace=NODE_NAMESPACE)["items"], 60, "the new pod")
    log = real_cluster.kubectl("logs", pod["metadata"]["name"], "-n", NODE_NAMESPACE, "-c", "prepare")
    assert "written" not in log and "restart" not in log, log
    assert (bare / "asked").read_text() == asked


def test_a_restart_that_fails_is_still_due(tmp_path):
    """The root of this node has no systemctl."""
    for name in ("runsc", "shim", "wrapper"):
        (tmp_path / name).write_text("")
    flags = [f"--{name}={tmp_path / name}" for name in ("runsc", "shim", "wrapper")]

    def prepare(*more: str) -> subprocess.CompletedProcess:
        command = [program(), "prepare-node", "--root", str(tmp_path / "root"), *flags, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    for _ in range(2):
        ran = prepare("--restart=containerd")
        assert ran.returncode == 1, ran.stdout
        assert "containerd did not restart: the node has no systemctl" in ran.stderr, ran.stderr
    ran = prepare()
    assert ran.returncode == 0 and "Then restart containerd" in ran.stdout and "written" not in ran.stdout, ran.stdout
