"""The machine of a session: what it is, what is on it, and what does not end it."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from e2b import Sandbox

from ..built import build
from ..installation import wait_until
from ..sdk.test_native import Native
from ..sdk.test_pool import full, limits, pool, put
from ..sdk.test_sessions import events, machine, run
from .server import DATA, TEMPLATE

#: The build's message when no mirror has Ubuntu.
WITHOUT_UBUNTU = "is not available from the package mirrors of this machine"


def output(native, session: str, command: str) -> str:
    told, end = run(native, session, command)
    assert end == {"type": "exit", "code": 0}, (told, end)
    return told


def test_r2_002_it_is_ubuntu_or_says_that_it_is_not(native, session):
    identity = output(native, session, ". /etc/os-release; echo $ID; echo $PRETTY_NAME")
    identity, name = identity.splitlines()
    system = native("GET", f"/sessions/{session}")["system"]
    if WITHOUT_UBUNTU in (DATA / "build.log").read_text():
        assert identity == "debian" and system == f"{name} (its template has no Ubuntu)"
    else:
        assert identity == "ubuntu" and system == name


def test_r2_003_r2_004_r2_005_and_r2_009_its_user_is_sandbox_at_home_and_may_be_root(native, session):
    told = output(native, session, "pwd; uname -m; id -un; id -u user; sudo -n id -un; echo $HOME $0")
    assert told.splitlines()[1:] == ["x86_64", "sandbox", "1000", "root", "/home/sandbox /bin/bash"]
    # A window begins at home.
    assert run(native, session, "pwd", "another")[0] == "/home/sandbox\n"
    assert output(native, session, "id -u; stat -c %U /home/sandbox").splitlines() == ["1001", "sandbox"]


def test_r2_006_and_r2_007_it_has_two_processors_and_seven_gigabytes(server, native, session):
    output(native, session, "true")
    # gVisor shows the processors that a sandbox may ever get: four times its own, or those of the machine.
    assert int(output(native, session, "nproc")) == max(2, min(8, os.cpu_count()))
    total = int(output(native, session, "awk '/MemTotal/ {print $2}' /proc/meminfo"))
    assert 6.5 < total / (1 << 20) < 7.5, total
    assert limits(server, machine(native, session), "runsc") == (2000, 7 << 30)


def test_r2_007_and_r2_080_what_needs_more_memory_fails_inside_on_the_same_system(native, session):
    made = native("POST", "/sessions", 201, json={"machine": {"memory_gb": 1}})["id"]
    try:
        told, end = run(native, made, "echo kept > kept; python3 -c 'print(len(bytes(1 << 20) * 3000))'")
        assert end["code"] != 0 and "3145728000" not in told, (told, end)
        assert output(native, made, "cat kept") == "kept\n"
        # R2-080: it is the same system as without a size of its own.
        identity = ". /etc/os-release; echo $ID"
        assert output(native, made, identity) == output(native, session, identity)
    finally:
        native("DELETE", f"/sessions/{made}")


def test_r2_029_and_r2_030_python_has_an_environment_of_its_own(native, session):
    assert output(native, session, "/usr/bin/python3 -c 'print(6 * 7)'") == "42\n"
    told = output(native, session, "python -c 'import sys; print(sys.prefix)'; command -v python pip; echo $VIRTUAL_ENV")
    venv = "/home/sandbox/user_venv"
    assert told.splitlines() == [venv, f"{venv}/bin/python", f"{venv}/bin/pip", venv]


def test_r2_031_it_compiles(native, session):
    source = "echo 'int puts(const char *); int main() { return puts(\"compiled\") < 0; }' > one.c"
    told = output(native, session, f"{source} && printf 'one: one.c\\n\\tgcc -o one one.c\\n' > Makefile && make -s && ./one")
    assert told == "compiled\n"
    output(native, session, "g++ --version && git --version && curl --version")


def trust(server, native, session: str) -> str:
    """Gives a machine the authorities of this one, which its mirrors of packages may have; the line that uses them."""
    output(native, session, "true")
    bundle = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt")
    Sandbox.connect(machine(native, session), **server.options()).files.write("/tmp/authorities.pem", bundle.read_bytes())
    return "export PIP_CERT=/tmp/authorities.pem NPM_CONFIG_CAFILE=/tmp/authorities.pem"


def test_r2_022_r2_032_r2_033_r2_034_and_r2_100_packages_are_installed_and_gone_with_the_machine(server, native, own):
    output(native, own, trust(server, native, own))
    output(native, own, "sudo apt-get update -qq && sudo apt-get install -qq hello >/dev/null 2>&1 && hello")
    output(native, own, "pip install -q six && pip show -q six && npm install --silent --global is-odd && npm ls -g is-odd")
    question = native("POST", f"/sessions/{own}/reset", 202, json={})
    native("POST", f"/sessions/{own}/reset", json={"token": question["token"]})
    for gone in ("dpkg -s hello", "pip show six", "npm ls -g is-odd"):
        assert run(native, own, gone)[1]["code"] != 0, gone


def test_r2_034_and_r2_035_npm_and_pnpm_work(native, session):
    built = (DATA / "build.log").read_text().splitlines()
    assert not [line for line in built if line.startswith("left out:")]
    package = "mkdir -p own && cd own && echo '{\"name\": \"own\", \"scripts\": {\"say\": \"echo said\"}}' > package.json"
    told = output(native, session, f"{package} && npm run -s say && pnpm run -s say; cd ~; rm -r own; node --version >/dev/null")
    assert told == "said\nsaid\n"


def test_r2_036_and_r2_099_it_runs_no_containers(native, session):
    assert output(native, session, "command -v docker podman runc containerd; ls /var/run/docker.sock 2>&1 | grep -c 'No such'") == "1\n"
    # Nor would they run if they were installed: root may not mount, and has no network to divide.
    assert run(native, session, "sudo mount -t tmpfs none /mnt")[1]["code"] != 0
    assert run(native, session, "sudo unshare --mount --net true")[1]["code"] != 0


def test_r2_027_a_reboot_ends_it_and_the_next_command_gets_another(native, own):
    output(native, own, "echo kept > kept; echo left > /tmp/left")
    # Its files are on this side now. Writes of a machine's last moment would be lost.
    assert [file["path"] for file in native("GET", f"/sessions/{own}/files")] == ["kept"]
    assert "only root" in run(native, own, "/usr/local/sbin/reboot")[0]
    for line in ("sudo reboot", "sudo shutdown -h now"):
        before = machine(native, own)
        ended = run(native, own, f"{line}; sleep 60")[1]
        assert ended["type"] == "lost", ended
        assert output(native, own, "test -e /tmp/left || echo gone; echo *") == "gone\nkept user_venv\n"
        assert machine(native, own) != before
        native("GET", f"/sandbox/{before}", 404)


@pytest.mark.parametrize("line", ["kill -9 -1", "sudo sh -c 'kill -9 -1'"], ids=["as sandbox", "as root"])
def test_r2_028_killing_all_processes_does_not_lose_it(native, own, line):
    output(native, own, "echo kept > kept; sleep 1000 &")
    before = machine(native, own)
    for window in ("main", "other"):
        run(native, own, line, window)
        # The shells of its windows may have ended too.
        assert run(native, own, "cat kept", window) == ("kept\n", {"type": "exit", "code": 0})
    assert run(native, own, "pgrep -x sleep")[1]["code"] == 1
    assert machine(native, own) == before


def test_a_pool_gives_a_session_its_machine(server, native, own):
    put(server, {"name": TEMPLATE, "template": TEMPLATE, "description": "Warm", "pool": {"size": 1}})
    try:
        (member,) = full(server, TEMPLATE, 1)
        assert output(native, own, "id -un; pwd") == "sandbox\n/home/sandbox\n"
        assert machine(native, own) == member
        seen = native("GET", f"/sandbox/{member}")
        assert seen["metadata"]["shoal.session"] == own, seen
        assert limits(server, member, "runsc") == (2000, 7 << 30)
        assert pool(server, TEMPLATE)["misses"] == 0
    finally:
        put(server)


def test_r2_002_without_ubuntu_and_a_registry_of_npm_it_is_base_with_the_user(another, monkeypatch):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/")
    settings = ["disk.size=2GiB", f"sessions.template={TEMPLATE}", "images.ubuntu_mirror=file:/nonexistent"]
    server = another("debian", settings)
    built = build(server, TEMPLATE)
    assert built.returncode == 0, built.stderr[-2000:]
    told = (built.stdout + built.stderr).splitlines()
    assert any(WITHOUT_UBUNTU in line for line in told), told
    assert any(line.startswith("left out: pnpm@10") for line in told), told
    assert "mmdebstrap failed" in server.log_tail(8000)
    native = Native(server)
    made = native("POST", "/sessions", 201, json={})["id"]
    line = "id -un; pwd; command -v python; npm --version >/dev/null && ! command -v pnpm; . /etc/os-release; echo $ID"
    expected = ["sandbox", "/home/sandbox", "/home/sandbox/user_venv/bin/python", "debian"]
    assert output(native, made, line).splitlines() == expected
    assert native("GET", f"/sessions/{made}")["system"].endswith("(its template has no Ubuntu)")
    native("DELETE", f"/sessions/{made}")


def test_while_it_is_not_built_a_machine_of_base_says_so(another):
    """A key without admin rights, whose sessions begin the build."""
    server = another("unbuilt", [f"sessions.template={TEMPLATE}"])
    native = Native(server, server.add_team("team"))
    made = native("POST", "/sessions", 201, json={})["id"]
    first, *rest = events(native, made, "id -un")
    assert first["type"] == "notice" and "being built" in first["message"], first
    assert rest == [{"type": "output", "data": "user\n"}, {"type": "exit", "code": 0}]
    system = native("GET", f"/sessions/{made}")["system"]
    assert "'base'" in system and "being built" in system, system
    assert [event["type"] for event in events(native, made, "true")] == ["exit"]
    builds = lambda: native("GET", "/templates")  # noqa: E731
    wait_until(lambda: any(TEMPLATE in str(one) for one in builds()), 30, "the build")
    native("DELETE", f"/sessions/{made}")
