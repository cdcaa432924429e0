"""One installation of the server, owned by a test: started, killed, searched for leftovers."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]

#: The memory of the runtime itself, which a sandbox's cgroup has in addition to the sandbox's, in bytes.
OVERHEAD = {"runsc": 64 << 20, "runc": 0}

#: The timeout of a start, including the build of a missing image.
START_SECONDS = 600

#: The units of `disk.size`, in bytes.
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


def program() -> Path:
    """The server under test: `SHOAL_BIN`, otherwise the newest build of this checkout."""
    named = os.environ.get("SHOAL_BIN")
    if named:
        return Path(named)
    built = [ROOT / "target" / kind / "shoal" for kind in ("release", "debug")]
    built = [path for path in built if path.exists()]
    if not built:
        raise RuntimeError("there is no server: run `make build` or set SHOAL_BIN")
    return max(built, key=lambda path: path.stat().st_mtime)


#: Ports for listeners that start at once.
SOON = range(20000, 30000)
#: Ports for listeners that may start much later: nothing else chooses one of them.
LATER = range(30000, 32000)

#: A file for each port that a run of tests has chosen. A server may listen on it much later, or stop and start again.
CHOSEN = Path("/run/lock/shoal-test-ports")
#: The files of this process, which are locked until it ends.
chosen: list[IO] = []


def free_port(among: range = SOON) -> int:
    """A port below the range that the system assigns to clients.

    A client that tries a port of its own range without a listener may be given that very port
    and reach itself, and a server that comes back finds it taken. No other suite that runs is given it.
    """
    CHOSEN.mkdir(parents=True, exist_ok=True)
    for port in random.sample(among, 100):
        mine = open(CHOSEN / str(port), "w")  # noqa: SIM115
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("0.0.0.0", port))
        except OSError:
            mine.close()
            continue
        chosen.append(mine)
        return port
    raise RuntimeError("no port is free")


def unverified_tls(plain: socket.socket) -> ssl.SSLSocket:
    """A TLS connection without verification, to check that a server answers."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname="localhost")


def share_images(source: Path, data: Path) -> None:
    """Gives a data directory the images of another, which were built before.

    Layers are never written to, so their files are shared, if both are on one file system; the
    little that is written is copied.
    """
    target = data / "images"
    if target.exists() or not (source / "layers").is_dir():
        return
    target.mkdir(parents=True, mode=0o700)
    linked = "-al" if source.stat().st_dev == target.stat().st_dev else "-a"
    for part, how in (("layers", linked), ("images", "-a")):
        subprocess.run(["cp", how, str(source / part), str(target / part)], check=True)


def sparse_disk(data: Path, settings: list[str]) -> None:
    """Makes the disk that a server would make, without the space that a server allocates in advance.

    Many servers run side by side, and few of them fill their disk. The last `disk.size` counts; a server without one
    makes its disk itself.
    """
    sizes = [setting.split("=")[1] for setting in settings if setting.startswith("disk.size=")]
    disk = data / "disk.btrfs"
    if not sizes or disk.exists():
        return
    number, unit = sizes[-1][:-3], sizes[-1][-3:]
    beside = data / "disk.made"
    beside.touch(mode=0o600)
    os.truncate(beside, int(number) * UNITS[unit])
    # It gives up when another file system goes while it looks at all of them.
    command = ["mkfs.btrfs", "--quiet", "--nodiscard", str(beside)]
    wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, 60, "mkfs.btrfs")
    beside.rename(disk)


def wait_until(condition, seconds: float, what: str):
    """The first true value of `condition`; fails when there is none before the timeout.

    The pauses between two looks grow with the time waited, which leaves the processors of a busy machine to others.
    """
    begun = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        taken = time.monotonic() - begun
        assert taken < seconds, f"{what}: not within {seconds} s"
        time.sleep(min(max(taken / 20, 0.02), 0.3))


def instance_of(data: Path) -> str:
    """The short name that the server uses for all resources of this data directory."""
    digest = hashlib.sha256(str(data.resolve()).encode()).digest()
    return "".join("0123456789abcdefghijklmnopqrstuv"[byte % 32] for byte in digest[:5])


@dataclass
class Installation:
    """A data directory and, at times, a server that runs on it."""

    data: Path
    settings: list[str] = field(default_factory=list)
    port: int = 0
    process: subprocess.Popen | None = None
    #: Keys by team name.
    keys: dict[str, str] = field(default_factory=dict)
    #: The command prefix of the server, for example `prlimit …`.
    under: list[str] = field(default_factory=list)
    #: The address that it listens on; the API is always reachable on loopback.
    listen: str = "127.0.0.1"
    #: Whether it serves TLS (`tls` is among the settings).
    tls: bool = False

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def instance(self) -> str:
        return instance_of(self.data)

    @property
    def key(self) -> str:
        return self.keys["default"]

    def options(self, team: str = "default") -> dict:
        """The environment with which the SDK uses this server."""
        return {"api_key": self.keys[team], "api_url": self.url, "sandbox_url": self.url}

    # --- life -----------------------------------------------------------------------------

    def start(self) -> None:
        """Starts a server and waits until it answers."""
        self.launch()
        wait_until(self._answers, START_SECONDS, "the server's start")
        self.keys["default"] = (self.data / "api-key").read_text().strip()

    def launch(self) -> None:
        """Starts a server without waiting."""
        assert self.process is None
        self.port = self.port or free_port()
        self.data.mkdir(parents=True, exist_ok=True)
        sparse_disk(self.data, self.settings)
        command = [*self.under, str(program()), "serve", "--data", str(self.data)]
        command += ["--listen", f"{self.listen}:{self.port}"]
        # The template of sessions takes minutes to build: a suite that needs it sets it.
        for setting in ["sessions.template=base", *self.settings]:
            command += ["--set", setting]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "E2B_"))}
        with open(self.data / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended:\n{self.log_tail()}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain:
                probe = unverified_tls(plain) if self.tls else plain
                probe.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return probe.recv(64).startswith(b"HTTP/1.1 204")
        except OSError:
            return False

    def log_tail(self, size: int = 4000) -> str:
        return (self.data / "server.log").read_bytes()[-size:].decode(errors="replace")

    def stop(self) -> None:
        """Stops the server as an operator would."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise AssertionError(f"the server did not end:\n{self.log_tail()}") from None
        finally:
            self.process = None

    def crash(self) -> None:
        """Kills the server abruptly, as a crash would."""
        self.process.kill()
        self.process.wait(30)
        self.process = None

    def remove(self) -> None:
        """Stops everything and removes the data directory."""
        if self.process is not None:
            self.stop()
        below = [m for m in mount_points() if m.startswith(f"{self.data}/")]
        assert not below, f"still mounted: {below}"
        shutil.rmtree(self.data)

    # --- what an admin makes -----------------------------------------------------------------

    def add_team(self, slug: str) -> str:
        """Creates another team, with a key without admin rights."""
        made = self._admin("POST", "/api/v1/keys", {"name": slug, "team": slug})
        self.keys[slug] = made["secret"]
        return made["secret"]

    def add_template(self, name: str, **limits: int) -> None:
        """Creates a public twin of `base` with other limits: `cpuMilli`, `memoryMB`, …"""
        base = self._admin("GET", "/api/v1/templates/base")
        twin = {key: base[key] for key in ("image", "user", "workdir", "env") if base.get(key)}
        self._admin("POST", "/api/v1/templates", twin | {"name": name, "public": True} | limits)

    def _admin(self, method: str, path: str, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status in (200, 201), said
        return said["data"]

    # --- what it has on the machine --------------------------------------------------------

    def groups(self) -> list[Path]:
        """Its cgroups, in every hierarchy."""
        root, found = Path("/sys/fs/cgroup"), []
        # A cgroup that disappears during the search counts as gone.
        for hierarchy in [root, *(root / name for name in os.listdir(root))]:
            parent = hierarchy / "shoal" / self.instance
            try:
                found += [parent / name for name in os.listdir(parent) if (parent / name).is_dir()]
            except (FileNotFoundError, NotADirectoryError):
                pass
        return found

    def processes(self, sandbox: str | None = None) -> set[int]:
        """The processes of its sandboxes, or of one."""
        found = set()
        for group in self.groups():
            if sandbox in (None, group.name):
                try:
                    found |= {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
                except OSError:
                    # It has exited meanwhile.
                    pass
        return found

    def leftovers(self, server: bool = False) -> list[str]:
        """All resources of this installation's sandboxes on the machine.

        What belongs to the server itself (its disk, its table, the slots it keeps ready) counts
        when `server` is set: after a clean end without sandboxes none of it may be there.
        """
        left = [f"process {pid}" for pid in self.processes()]
        left += [f"cgroup {group}" for group in self.groups()]
        for directory in ("sandboxes", "disk", "disk/.paused"):
            left += [str(path) for path in (self.data / directory).glob("[!.]*")]
        state = Path("/run/shoal") / self.instance
        roots = (f"{state}/roots/", f"{self.data}/disk/")
        left += [f"mount {point}" for point in mount_points() if point.startswith(roots)]
        left += [str(path) for path in (state / "roots").glob("*")]
        # The runtimes' own records. Mounts below `roots` are not searched for them.
        for runtime in (entry for entry in state.glob("*") if entry.name != "roots"):
            for directory, _, names in os.walk(runtime):
                left += [os.path.join(directory, name) for name in names if "_sandbox:" in name]
        if server:
            left += [f"mount {p}" for p in mount_points() if p.startswith((f"{self.data}/", f"{state}/"))]
            left += [f"link {name}" for name in os.listdir("/sys/class/net") if self.instance in name]
            tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
            left += [line for line in tables.stdout.splitlines() if self.instance in line]
            left += [str(state)] if state.exists() else []
            left += [line for line in loop_devices() if str(self.data) in line]
            left += [line for line in programs() if f"{self.data}/" in line or f"{state}/" in line]
        return left

    def all_gone(self) -> list[str]:
        """The leftovers after a clean stop without sandboxes; after a moment, none."""
        try:
            wait_until(lambda: not self.leftovers(server=True), 60, "the end")
        except AssertionError:
            return self.leftovers(server=True)
        return []

    def counts(self) -> dict[str, int]:
        """Counts of its resources on the machine, to be compared over time."""
        state = Path("/run/shoal") / self.instance
        links = [name for name in os.listdir("/sys/class/net") if self.instance in name]
        pid = self.process.pid
        return {
            "processes": len(self.processes()),
            "threads": len(os.listdir(f"/proc/{pid}/task")),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "mounts": len([m for m in mount_points() if self.instance in m or str(self.data) in m]),
            "namespaces": len(list((state / "netns").glob("*"))),
            "links": len(links),
            "groups": len(self.groups()),
            "resident_kib": resident_kib(pid),
        }


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def mount_points() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4].encode().decode("unicode_escape") for line in lines]


def loop_devices() -> list[str]:
    """The loop devices that are attached until a program detaches them, each with its file.

    The kernel detaches the others with their last user, which need not be ours: a program with a
    mount namespace of its own, such as the bootstrap of another server, has a copy of every mount.
    Users that are ours are found as processes.
    """
    found = []
    for device in Path("/sys/block").glob("loop*/loop"):
        try:
            if (device / "autoclear").read_text().strip() == "0":
                found.append(f"{device.parent.name} {(device / 'backing_file').read_text().strip()}")
        except OSError:
            # It has been detached meanwhile.
            pass
    return found


def programs() -> list[str]:
    """All processes of the machine, each with its arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            # It has exited meanwhile.
            continue
        found.append(f"process {process.name}: {arguments.replace(bytes(1), b' ').decode(errors='replace')}")
    return found
