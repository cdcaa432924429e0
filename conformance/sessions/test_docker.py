"""Privileged machines of sessions: Docker in them, and commands in a container."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from e2b import Sandbox, Template

from ..built import BUILD_SECONDS, build
from ..installation import wait_until
from ..sdk.test_native import Native
from ..sdk.test_session_files import arrives, put
from ..sdk.test_sessions import machine, run
from .docker_images import save
from .server import DOCKER_TEMPLATE, OWN_DOCKER_TEMPLATE

#: Programs start programs that start programs here, on a machine that is busy with other suites.
pytestmark = pytest.mark.timeout(600)

#: An image with bash, and one without.
IMAGE, BARE = "made/here:1", "made/bare:1"

REGISTRY = """version: 0.1
storage:
  filesystem:
    rootdirectory: /tmp/registry
http:
  addr: 127.0.0.1:5000
"""


@pytest.fixture(scope="module")
def native(server, tmp_path_factory):
    """A client that waits, of a server whose privileged machines have two images from the start."""
    built = build(server, DOCKER_TEMPLATE)
    assert built.returncode == 0, built.stderr[-4000:]
    context = tmp_path_factory.mktemp("images")
    for number, name in enumerate((IMAGE, BARE)):
        save(context / f"{number}.tar", name, bash=name == IMAGE)
    template = Template(file_context_path=str(context)).from_template(DOCKER_TEMPLATE)
    for number in range(2):
        template = template.copy(f"{number}.tar", "/usr/local/share/docker-images/", user="root")
    options = {name: value for name, value in server.options().items() if name != "sandbox_url"}
    Template.build(template, OWN_DOCKER_TEMPLATE, cpu_count=2, memory_mb=2048, **options)
    client = Native(server)
    client.http.timeout = BUILD_SECONDS
    return client


def session_of(native, **parameters) -> str:
    return native("POST", "/sessions", 201, json={"machine": {"privileged": True} | parameters})["id"]


@pytest.fixture(scope="module")
def privileged(native):
    made = session_of(native)
    yield made
    native("DELETE", f"/sessions/{made}")


@pytest.fixture(scope="module")
def contained(native):
    made = session_of(native, docker_image=IMAGE)
    yield made
    native("DELETE", f"/sessions/{made}")


def output(native, session: str, command: str) -> str:
    told, end = run(native, session, command)
    assert end == {"type": "exit", "code": 0}, (told, end)
    return told


@pytest.mark.timeout(BUILD_SECONDS + 600)
def test_r2_085_and_r2_086_a_privileged_machine_runs_containers_on_the_same_system(native, privileged):
    told = output(native, privileged, f"id -un; pwd; docker run --rm {IMAGE}; . /etc/os-release; echo $ID")
    assert told.splitlines()[:3] == ["sandbox", "/home/sandbox", "ran"]
    system = native("GET", f"/sessions/{privileged}")["system"]
    assert ("ubuntu" in told) == ("no Ubuntu" not in system), (told, system)
    # Files of a container are not in the machine.
    assert "kept" not in output(native, privileged, f"docker run --rm {IMAGE} touch /kept; ls /")


def test_r2_008_a_session_says_what_isolates_its_machine(native, privileged):
    output(native, privileged, "true")
    assert native("GET", f"/sessions/{privileged}")["isolation"] == "gvisor"
    assert "gVisor" in output(native, privileged, "sudo dmesg")


def test_r2_085_images_are_built_pushed_to_a_registry_and_pulled(server, native, privileged):
    output(native, privileged, "true")
    sandbox = Sandbox.connect(machine(native, privileged), **server.options())
    sandbox.files.write("/tmp/docker-registry", Path("/usr/bin/docker-registry").read_bytes())
    sandbox.files.write("/tmp/registry.yml", REGISTRY)
    serve = "chmod +x /tmp/docker-registry; /tmp/docker-registry serve /tmp/registry.yml >/tmp/registry.log 2>&1 &"
    output(native, privileged, serve)
    output(native, privileged, "curl -sf --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:5000/v2/")
    name = "127.0.0.1:5000/built:1"
    steps = f"FROM {IMAGE}\\nRUN echo by a build >/said\\nCMD [\"cat\", \"/said\"]\\n"
    output(native, privileged, f"mkdir -p b && printf '{steps}' >b/Dockerfile && docker build -q -t {name} b && docker push -q {name}")
    output(native, privileged, f"docker rmi {name} && ! docker image inspect {name} >/dev/null 2>&1")
    assert output(native, privileged, f"docker run --rm {name} 2>/dev/null").splitlines()[-1] == "by a build"


def test_r2_085_containers_have_a_network_behind_the_machine(native, privileged):
    """On the bridge: a port of a container at the machine, and the rules of the sandbox around both."""
    serve = f"docker run -d --name web -p 8081:80 {IMAGE} busybox sh -c 'echo served >/index.html; exec httpd -f -p 80 -h /'"
    output(native, privileged, serve)
    assert output(native, privileged, "curl -sf --retry 60 --retry-delay 1 --retry-all-errors localhost:8081/") == "served\n"
    refused = f"docker run --rm {IMAGE} busybox wget -q -T 5 -O - http://169.254.169.254/; echo $?"
    assert output(native, privileged, refused).splitlines()[-1] != "0"
    output(native, privileged, "docker rm -f web")


def test_r2_089_and_r2_091_commands_run_in_the_container_with_the_files_at_workspace(native, contained):
    put(native, contained, "from/session.txt", "from the session\n")
    told = output(native, contained, "pwd; cat from/session.txt; echo $OF_IMAGE; ls /usr/bin | grep -c busybox; test -e /usr/bin/python3 || echo bare")
    assert told.splitlines() == ["/workspace", "from the session", "yes", "1", "bare"]
    output(native, contained, "mkdir -p made; echo from the container > made/inside.txt; export COLOUR=blue; cd made")
    arrives(native, contained, "made/inside.txt", b"from the container\n")
    # A window is a shell here too.
    assert output(native, contained, "pwd; echo $COLOUR; echo $PUBLIC_HOSTNAME").splitlines()[:2] == ["/workspace/made", "blue"]
    assert run(native, contained, "pwd; exit 3", "other") == ("/workspace\nexit\n", {"type": "exit", "code": 3})
    put(native, contained, "made/inside.txt", "changed in the session\n")
    changed = lambda: run(native, contained, "cat /workspace/made/inside.txt")[0] == "changed in the session\n"  # noqa: E731
    wait_until(changed, 60, "the change")


def test_r2_089_a_command_in_a_container_is_cancelled(native, contained):
    import threading

    output(native, contained, "true")
    ends = []
    waiting = threading.Thread(target=lambda: ends.append(run(native, contained, "sleep 1000", "long")))
    waiting.start()
    busy = lambda: any(one.get("running") for one in native("GET", f"/sessions/{contained}")["windows"])  # noqa: E731
    wait_until(busy, 300, "the command")
    native("POST", f"/sessions/{contained}/windows/long/cancel")
    waiting.join(120)
    assert [end for _, end in ends] == [{"type": "cancelled"}]
    assert run(native, contained, "ps | grep '[s]leep 1000'")[1]["code"] == 1


#: A file of the host, and what attackers would leave on the host.
SECRET, MARK = Path("/root/shoal-secret-of-the-host"), "only-the-host-knows-this"
ESCAPED = Path("/tmp/shoal-escaped-from-a-privileged-machine")

#: What root of a privileged container does to leave it. Nothing of this may show the secret, or change the host.
ATTACKS = f"""
mkdir -p /tmp/devices /tmp/more
mount -t tmpfs none /tmp/more && for major in 8 254; do mknod /tmp/more/$major b $major 0; done
for major in 7 8 252 253 254 259; do mknod /tmp/devices/$major b $major 0; done
mknod /tmp/devices/mem c 1 1
for device in /tmp/devices/* /tmp/more/*; do head -c 4096 $device; mount $device /mnt && cat /mnt{SECRET}; umount /mnt; done
cat /proc/1/root{SECRET} /proc/*/root{SECRET} /proc/*/cwd{SECRET}
nsenter --target 1 --mount --pid --net -- cat {SECRET}
for kind in proc sysfs devtmpfs debugfs securityfs cgroup2 cgroup tmpfs 9p; do
    mount -t $kind none /mnt && cat /mnt/1/root{SECRET} /mnt{SECRET} && head -c 64 /mnt/vda; umount /mnt
done
mount -t cgroup -o memory none /mnt && mkdir -p /mnt/x && echo 1 > /mnt/x/notify_on_release
printf '#!/bin/sh\ncp {SECRET} {ESCAPED}; touch {ESCAPED}\n' > /tmp/agent; chmod +x /tmp/agent
echo /tmp/agent > /mnt/release_agent; sh -c 'echo $$ > /mnt/x/cgroup.procs'; umount /mnt
echo '|/tmp/agent' > /proc/sys/kernel/core_pattern; (ulimit -c unlimited; sh -c 'kill -SEGV $$')
echo /tmp/agent > /proc/sys/kernel/modprobe; echo /tmp/agent > /sys/kernel/uevent_helper
echo h > /proc/sysrq-trigger; head -c 64 /proc/kcore; cat /sys/kernel/debug/*
"""

#: System calls that only the machine's own kernel could carry out.
CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(4096)
calls = {"init_module": 175, "kexec_load": 246, "bpf": 321, "perf_event_open": 298, "open_by_handle_at": 304, "reboot": 169, "iopl": 172}
for name, number in calls.items():
    # `reboot` gets wrong magic numbers.
    print(name, libc.syscall(number, 0, buffer, 64, 0, 0) < 0)
"""


@pytest.fixture
def host():
    """The host's secret. Afterwards, nothing of the host has changed."""
    settings = [Path("/proc/sys/kernel") / name for name in ("core_pattern", "modprobe")]
    # A kernel without modules has one of them alone.
    kept = {path: path.read_text() for path in settings if path.exists()}
    SECRET.write_text(MARK)
    yield
    SECRET.unlink()
    assert not ESCAPED.exists() and {path: path.read_text() for path in kept} == kept


def test_root_of_a_privileged_machine_does_not_leave_it(native, privileged, host):
    told, _ = run(native, privileged, f"sudo bash -c {shlex.quote(ATTACKS)}; true", "attack")
    assert "Operation not permitted" in told and MARK not in told and "GRUB" not in told, told[-4000:]
    refused = output(native, privileged, f"sudo python3 -c {shlex.quote(CALLS)}")
    assert set(refused.splitlines()) == {f"{name} True" for name in (
        "init_module", "kexec_load", "bpf", "perf_event_open", "open_by_handle_at", "reboot", "iopl"
    )}, refused
    # Containers of its Docker are no further out.
    inside = f"docker run --rm --privileged --pid host -v /:/host {IMAGE} busybox cat /host{SECRET} /proc/1/root{SECRET}"
    assert MARK not in run(native, privileged, inside)[0]
    assert "shoal serve" not in output(native, privileged, "sudo cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert output(native, privileged, "echo alive") == "alive\n"


def test_processes_of_a_privileged_machine_have_the_rights_of_others_on_the_host(server, native, privileged):
    output(native, privileged, "true")
    plain = Sandbox.create(timeout=600, **server.options())
    try:
        rights = {}
        for kind, sandbox in (("privileged", machine(native, privileged)), ("plain", plain.sandbox_id)):
            statuses = [Path(f"/proc/{pid}/status").read_text() for pid in server.processes(sandbox)]
            assert statuses
            fields = [dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line) for status in statuses]
            rights[kind] = {(one["Name"], one["CapEff"], one["CapBnd"], one["Seccomp"], one["Uid"]) for one in fields}
        assert rights["privileged"] == rights["plain"]
        assert all(seccomp == "2" for *_, seccomp, _ in rights["privileged"])
    finally:
        plain.kill()


@pytest.mark.parametrize(
    ("image", "reason"),
    [("127.0.0.1:9/none:1", "cannot be pulled"), (BARE, "has no /bin/bash")],
    ids=["no registry", "no shell"],
)
def test_r2_089_an_image_that_does_not_serve_is_the_error_of_the_first_command(native, image, reason):
    made = session_of(native, docker_image=image)
    try:
        told = native("POST", f"/sessions/{made}/exec", 400, json={"command": "true"})
        assert f"the image {image} {reason}" in told, told
    finally:
        native("DELETE", f"/sessions/{made}")
