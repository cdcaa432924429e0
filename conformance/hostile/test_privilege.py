"""Capabilities and system calls of the server and of every program that it starts."""

from __future__ import annotations

import json
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from .conftest import create, furnished
from .machine import Call, run

UNIT = Path(__file__).parents[2] / "packaging/shoal.service"

#: Begins as an OCI runtime does, where the server starts one: tries what an attacker would there,
#: and continues as the runtime.
WRAPPER = """#!{python}
import ctypes, json, os, sys
if "run" in sys.argv and not os.path.exists({report!r}):
    libc = ctypes.CDLL(None, use_errno=True)
    def call(number, *arguments):
        done = libc.syscall(number, *(ctypes.c_long(a) for a in arguments))
        return ctypes.get_errno() if done < 0 else 0
    said = {{name: call(number, 0, 0, 0, 0, 0) for name, number in {calls!r}.items()}}
    said["x32 reboot"] = call(169 | 1 << 30, 0, 0, 0, 0, 0)
    said["unshare"] = call(272, 0)
    with open("/proc/self/status") as status:
        said["status"] = dict(line.split(":\\t", 1) for line in status.read().splitlines() if line.startswith(("Cap", "Seccomp", "NoNew")))
    with open({report!r}, "w") as out:
        json.dump(said, out)
os.execv({runc!r}, [{runc!r}, *sys.argv[1:]])
"""

#: System call numbers on x86-64; each has invalid arguments, so that it has no effect.
CALLS = {
    "acct": 163, "add_key": 248, "clock_settime": 227, "delete_module": 176, "finit_module": 313,
    "init_module": 175, "io_uring_setup": 425, "ioperm": 173, "iopl": 172, "kexec_file_load": 320,
    "kexec_load": 246, "open_by_handle_at": 304, "perf_event_open": 298, "quotactl": 179, "reboot": 169,
    "request_key": 249, "settimeofday": 164, "swapoff": 168, "swapon": 167, "syslog": 103,
}


def status_of(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def kept() -> int:
    """The capabilities in the unit file, which a test in Rust compares with the code's."""
    names = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.M)
    header = Path("/usr/include/linux/capability.h").read_text()
    bits = {name: int(bit) for name, bit in re.findall(r"#define (CAP_\w+)\s+(\d+)$", header, re.M)}
    return sum(1 << bits[name] for line in names for name in line.split())


def test_the_server_has_only_what_it_needs(server):
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            said = status_of(f"{server.process.pid}/task/{task.name}")
        except (FileNotFoundError, ProcessLookupError):
            # The thread has ended meanwhile.
            continue
        for name in ("CapPrm", "CapEff", "CapBnd"):
            assert int(said[name], 16) & ~kept() == 0, (name, said[name])
        assert int(said["CapInh"], 16) == 0 and int(said["CapAmb"], 16) == 0
        assert said["Seccomp"] == "2"


def test_helper_processes_have_no_more_privileges(server, sandbox):
    for pid in server.processes(sandbox.sandbox_id):
        try:
            said = status_of(pid)
            namespace = Path(f"/proc/{pid}/ns/user").readlink()
        except (FileNotFoundError, ProcessLookupError):
            # It has ended meanwhile.
            continue
        assert said["Seccomp"] == "2", said
        # In a user namespace, a capability set has no effect on the machine.
        if namespace == Path("/proc/self/ns/user").readlink():
            assert int(said["CapBnd"], 16) & ~kept() == 0, said


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("runc"), reason="needs runc")
def test_started_programs_inherit_the_system_call_filter(scratch):
    report, wrapper = scratch / "refused.json", scratch / "runc-that-tries"
    wrapper.write_text(WRAPPER.format(python=sys.executable, report=str(report), calls=CALLS, runc=shutil.which("runc")))
    wrapper.chmod(stat.S_IRWXU)
    with furnished(scratch, "privilege", f"runtime.runc={wrapper}") as installation:
        trusted = create(installation, "runc")
        # The runtime itself, and `sudo` inside, still work.
        assert "uid=0(root)" in run(trusted, "sudo id").out
        trusted.kill()
        said = json.loads(report.read_text())
        status = said.pop("status")
        assert said.pop("unshare") == 0
        assert said == dict.fromkeys(said, 1), "EPERM is 1"
        assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "0"
        assert int(status["CapEff"], 16) & ~kept() == 0
        assert Call(installation).ids() == []
