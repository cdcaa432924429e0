"""Files that are generated for Kubernetes: the chart's definitions, and the chart as one file for `kubectl apply`.

    python3 -m conformance.cluster.manifests

writes both (`make manifests`). Helm is one of the test cluster's programs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..installation import ROOT, program
from . import binaries

CHART = ROOT / "deploy" / "helm" / "shoal"
#: The output of `shoal crds`.
DEFINITIONS = CHART / "files" / "definitions.yaml"
#: The chart as `kubectl apply` takes it.
RENDERED = ROOT / "deploy" / "kubernetes" / "shoal.yaml"

#: The release of the rendered file.
RELEASE, NAMESPACE = "shoal", "agent-sandbox-system"

HEADER = "# Generated from deploy/helm/shoal by `make manifests`.\n"


def definitions(*flags: str) -> str:
    return subprocess.run(
        [program(), "crds", *flags], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def helm(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    command = [binaries.helm() / "helm", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


def template(release: str, *options: object) -> subprocess.CompletedProcess:
    # A Helm that its own makefile did not build takes a cluster of long ago for granted.
    version = binaries.required("kube", "k8s.io/kubernetes")
    return helm("template", release, CHART, "--namespace", NAMESPACE, "--kube-version", version, *options)


def rendered(*options: object) -> str:
    """The chart's objects. Fails when the chart or its values are invalid."""
    done = template(RELEASE, *options)
    assert done.returncode == 0, f"helm template: {done.stderr}"
    return done.stdout


def for_kubectl() -> str:
    """The rendered file. Without Helm, nothing reads its annotation."""
    return HEADER + rendered("--set", "createNamespace=true,definitions.keep=false")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    write(DEFINITIONS, definitions())
    write(RENDERED, for_kubectl())
