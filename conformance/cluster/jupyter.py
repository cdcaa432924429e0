"""Pods in which `run_code` works: this machine's Python, with Jupyter's kernel and the settings of our template."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from ..installation import ROOT
from ..shared import WORK

#: The template, of which Python alone is used: its other languages and packages are not on this machine.
TEMPLATE = ROOT / "templates" / "code-interpreter-v1"

#: The directories of a pod, by those below the place.
MOUNTED = {"shoal": "/etc/shoal", "ipython": "/etc/ipython"}


def installed() -> Path:
    """The place of the kernel and its settings, made by the first call."""
    place = WORK / "jupyter"
    if not (place / "shoal" / "interpreter.json").exists():
        install(place)
    return place


def install(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    (place / "ipython").mkdir(parents=True)
    shutil.copy(TEMPLATE / "ipython_kernel_config.py", place / "ipython")
    kernel = place / "shoal" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = json.loads((TEMPLATE / "kernels" / "python3.json").read_text())
    spec["argv"][0] = "/usr/bin/python3"
    spec["env"] = {"PYTHONPATH": "/etc/shoal/site"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", place / "shoal" / "site", "ipykernel>=7,<8"]
    subprocess.run(pip, check=True, timeout=300)
    settings = {"kernels": ["/etc/shoal/kernels"], "cwd": "/"}
    (place / "shoal" / "interpreter.json").write_text(json.dumps(settings))


def add_kernel(pool: dict) -> dict:
    """Mounts the kernel in the pods of a pool."""
    spec = pool["spec"]["template"]["spec"]
    [container] = spec["containers"]
    for name, path in MOUNTED.items():
        spec["volumes"].append({"name": name, "hostPath": {"path": str(installed() / name)}})
        container["volumeMounts"].append({"name": name, "mountPath": path, "readOnly": True})
    return pool
