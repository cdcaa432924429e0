"""The programs of the test cluster, compiled from the Go modules beside this file.

    python -m conformance.cluster.binaries

compiles what is missing. Programs are kept outside of the checkout, in a directory named after the
digest of their sources, so later checkouts find them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: The parts of the binary `kube`. A part is started by the name of its link.
PARTS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "fake-node"]

#: Debug information and inlining are a third of the compile time. The standard library is inlined: otherwise
#: the programs spend half of their time in small functions of the runtime.
QUICK = ["-gcflags=all=-dwarf=false -l", "-gcflags=std=-dwarf=false"]


def cache() -> Path:
    """The directory of compiled programs: `SHOAL_TEST_CACHE`, otherwise the user's cache directory."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal"
    return Path(os.environ.get("SHOAL_TEST_CACHE") or default)


def kube() -> Path:
    """The directory with Kubernetes' programs, compiled if they are missing."""
    version = f"v{required('kube', 'k8s.io/kubernetes')}"
    major, minor = version.removeprefix("v").split(".")[:2]
    place = "k8s.io/component-base/version"
    # Without a version, nodes report a placeholder that clients refuse to compare.
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linked = " ".join(["-s -w", *(f"-X {place}.{name}={value}" for name, value in stamps.items())])
    directory = compiled("kube", "kube", [*QUICK, f"-ldflags={linked}"])
    for part in PARTS:
        link = directory / part
        if not link.is_symlink():
            link.symlink_to("kube")
    return directory


def shim() -> Path:
    """The directory with gVisor's containerd shim, compiled if it is missing."""
    return compiled("shim", "containerd-shim-runsc-v1", ["-ldflags=-s -w"])


def helm() -> Path:
    """The directory with Helm, compiled if it is missing."""
    return compiled("helm", "helm", [*QUICK, "-ldflags=-s -w"])


def kubeconform() -> Path:
    """The directory with kubeconform, compiled if it is missing."""
    package = "github.com/yannh/kubeconform/cmd/kubeconform"
    return compiled("kubeconform", "kubeconform", ["-ldflags=-s -w"], package)


def required(module: str, dependency: str) -> str:
    """The version of a dependency of a module, without the `v`."""
    for line in (HERE / module / "go.mod").read_text().splitlines():
        words = line.split()
        if words[:1] == [dependency]:
            return words[1].removeprefix("v")
    raise RuntimeError(f"{module}/go.mod does not require {dependency}")


def compiled(module: str, program: str, options: list[str], package: str = ".") -> Path:
    """The directory of a program, which is compiled unless this digest of its sources is there."""
    digest = hashlib.sha256(repr(options).encode())
    for source in sorted((HERE / module).iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    directory = cache() / f"{module}-{digest.hexdigest()[:16]}"
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        # Another run may be compiling it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / program).exists():
            compile_into(directory, module, program, options, package)
    return directory


def compile_into(directory: Path, module: str, program: str, options: list[str], package: str) -> None:
    print(f"cluster: compiling {program}", file=sys.stderr, flush=True)
    unfinished = directory / f"{program}.unfinished"
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "auto"}
    subprocess.run(
        ["go", "build", "-trimpath", *options, "-o", str(unfinished), package],
        cwd=HERE / module, env=environment, check=True,
    )
    unfinished.rename(directory / program)


if __name__ == "__main__":
    kube()
    shim()
    helm()
    kubeconform()
    if os.environ.get("CI"):
        # Nothing is compiled after this, and gigabytes are better left to the tests.
        subprocess.run(["go", "clean", "-cache", "-modcache"], check=True)
