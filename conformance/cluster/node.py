"""A real node on this machine: kubelet and containerd, which run pods with runc and gVisor.

Both run in mount, pid and network namespaces of their own. When the first process of these is killed,
the kernel ends all containers and removes all mounts, links and rules. In the mount namespace, the
usual paths are directories of the node's state, so manifests with host paths work as on any node.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..installation import program, wait_until
from . import binaries, images
from .control_plane import API_SERVICE, ControlPlane

#: The number of the first node of this process's cluster. Clusters side by side have different ones.
FIRST = int(os.environ.get("SHOAL_TEST_NODES", "0"))
KUBELET_PORT, KUBELET_HEALTH_PORT = 16445, 16446

#: Host paths and the node's own directories that are mounted there.
OWN = {
    "/var/lib/containerd": "containerd/root",
    "/run/containerd": "containerd/run",
    "/var/lib/kubelet": "kubelet/root",
    "/var/lib/shoal/checkpoints": "checkpoints",
    "/usr/local/lib/shoal": "root/usr/local/lib/shoal",
    "/etc/containerd": "root/etc/containerd",
    "/run/shoal-runsc": "runsc",
    "/var/log/pods": "pods",
}

#: Settings of the whole machine that the kubelet would change: it finds its values here instead.
SYSCTLS = {
    "vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True)
class Link:
    """The link between the machine and a node, and the network of the node's pods. A machine has one of each number."""

    number: int

    @property
    def machine(self) -> str:
        return f"10.244.255.{4 * self.number + 1}"

    @property
    def node(self) -> str:
        return f"10.244.255.{4 * self.number + 2}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.number}.0/24"

    @property
    def of_machine(self) -> str:
        return f"shoal-k8s-{self.number}"

    @property
    def of_node(self) -> str:
        return f"shoal-k8s-n{self.number}"

    def add(self) -> None:
        """Makes it, so that the API server can listen on the machine's end."""
        self.remove()
        run("ip", "link", "add", self.of_machine, "type", "veth", "peer", "name", self.of_node)
        run("ip", "address", "add", f"{self.machine}/30", "dev", self.of_machine)
        run("ip", "link", "set", self.of_machine, "up")

    def remove(self) -> None:
        subprocess.run(["ip", "link", "delete", self.of_machine], capture_output=True)


class Node:
    """A node of a cluster whose API server listens at the machine's end of the first node's link."""

    def __init__(self, cluster: ControlPlane, number: int = 0) -> None:
        self.cluster = cluster
        self.link = Link(FIRST + number)
        self.name = f"node-{number}"
        # A node of the number may have been here before.
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=cluster.directory))
        self.directory.chmod(0o755)
        #: The cgroup of its pods: a kubelet ends what it does not know there.
        self.groups = "/" if self.link.number == 0 else f"/shoal-k8s-{self.link.number}"
        self.shim = binaries.shim()
        for part in (*OWN.values(), "cni", "images", "opt", "sysctl"):
            (self.directory / part).mkdir(parents=True)
        self._configure_containerd()
        self._configure_kubelet()
        (self.directory / "start.sh").write_text(self._script())
        images.write(self.directory / "images")

    def start(self) -> None:
        for controller in controllers() if self.groups != "/" else ():
            (controller / self.groups.strip("/")).mkdir(exist_ok=True)
        self.cluster.processes.start(
            self.name, "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child=KILL", "--mount-proc",
            "--propagation", "private", "bash", self.directory / "start.sh",
        )
        self.cluster.processes.wait_for(self.name, self.first_process, 60, "the node's namespaces")
        link = self.link
        run("ip", "link", "set", link.of_node, "netns", str(self.first_process()))
        run("ip", "route", "replace", link.pods, "via", link.node, "dev", link.of_machine)
        self.cluster.wait_for_node(self.name, self.name)

    def join(self, other: Node) -> None:
        """Links the pods of two nodes. The link ends with either of them."""
        ends = {f"shoal-k8s-p{node.link.number}": node for node in (self, other)}
        (own, _), (others, _) = ends.items()
        # The end of a node that is gone may outlive it for a moment.
        other.run("sh", "-c", f"ip link delete {others} 2>/dev/null || true")
        run("ip", "link", "add", own, "type", "veth", "peer", "name", others)
        for name, node in ends.items():
            run("ip", "link", "set", name, "netns", str(node.first_process()))
            node.run("ip", "address", "add", f"10.244.254.{node.link.number + 1}/24", "dev", name)
            node.run("ip", "link", "set", name, "up")
        for name, (node, far) in zip(ends, ((self, other), (other, self))):
            node.run("ip", "route", "add", far.link.pods, "via", f"10.244.254.{far.link.number + 1}", "dev", name)

    def stop(self) -> None:
        """Kills the node with all of its pods."""
        self.cluster.processes.kill(self.name)
        self.link.remove()
        own = "kubepods" if self.groups == "/" else self.groups.strip("/")
        for controller in controllers():
            # Empty as soon as the last process of the namespaces is gone.
            wait_until(lambda groups=controller / own: is_removed(groups), 60, f"the end of {controller / own}")

    def run(self, *command: str) -> str:
        """Runs a command in the namespaces of the node."""
        return run("nsenter", "-t", str(self.first_process()), "-m", "-p", "-n", "--", *command)

    def first_process(self) -> int:
        """The first process in the node's namespaces, 0 before there is one."""
        outer = self.cluster.processes.running[self.name].pid
        found = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        if not found or os.readlink(f"/proc/{found[0]}/ns/net") == os.readlink("/proc/self/ns/net"):
            return 0
        return int(found[0])

    # --- configuration ------------------------------------------------------------------------

    def unprepare(self) -> None:
        """Writes containerd's configuration as it is before `shoal prepare-node`."""
        text = CONTAINERD.format(directory=self.directory, pause=images.PAUSE)
        (self.directory / "root/etc/containerd/config.toml").write_text(text)

    def _configure_containerd(self) -> None:
        runsc = shutil.which("runsc")
        assert runsc, "runsc is missing: run `scripts/setup test`"
        root = self.directory / "root"
        self.unprepare()
        (self.directory / "containerd/run/runsc").mkdir()
        (self.directory / "containerd/run/runsc/config.toml").write_text(RUNSC.format(runsc=runsc))
        shim = self.shim / "containerd-shim-runsc-v1"
        run(str(program()), "prepare-node", "--root", str(root), "--runsc", runsc, "--shim", str(shim))
        ranges = {"type": "host-local", "ranges": [[{"subnet": self.link.pods}]], "dataDir": f"{self.directory}/cni-addresses"}
        network = {"type": "ptp", "ipMasq": False, "ipam": ranges | {"routes": [{"dst": "0.0.0.0/0"}]}}
        (self.directory / "cni/10-shoal.conflist").write_text(
            json.dumps({"cniVersion": "1.0.0", "name": "shoal", "plugins": [network]})
        )

    def _configure_kubelet(self) -> None:
        authority = self.cluster.authority
        certificate, key = authority.issue(self.name, f"system:node:{self.name}", "system:nodes", (self.link.node, self.name))
        self.kubeconfig = self.cluster.client_configuration(
            self.name, {"client-certificate": str(certificate), "client-key": str(key)}
        )
        (self.directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        (self.directory / "kubelet.yaml").write_text(KUBELET.format(
            directory=self.directory, certificate=certificate, key=key, authority=authority.directory / "ca.crt",
            address=self.link.node, port=KUBELET_PORT, health=KUBELET_HEALTH_PORT, groups=self.groups,
        ))

    def _script(self) -> str:
        """The script of the first process of the namespaces."""
        place = shlex.quote(str(self.directory))
        lines = [
            "set -e",
            "mount --make-rshared /",
            # runsc takes a namespace in which this directory exists for the machine's own.
            "mount -t tmpfs -o ro,size=4k none /proc/sys/net/core",
        ]
        for name, value in SYSCTLS.items():
            file = f"{place}/sysctl/{name.replace('/', '-')}"
            lines.append(f"echo {value} >{file}; mount --bind {file} /proc/sys/{name}")
        for path, own in OWN.items():
            lines.append(f"mkdir -p {path}; mount --bind {place}/{own} {path}")
        lines.append(START.format(
            place=place, link=self.link.of_node, address=self.link.node, gateway=self.link.machine, kube=self.cluster.bin,
            shim=self.shim, kubeconfig=self.kubeconfig, name=self.name, service=API_SERVICE,
            server=self.cluster.address, port=self.cluster.port,
        ))
        return "\n".join(lines)


def controllers() -> list[Path]:
    """The hierarchies of control groups that have pods: one for each controller, or one for all of them."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root]
    return [one for one in root.iterdir() if one.is_dir() and not one.is_symlink()]


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def is_removed(groups: Path) -> bool:
    """Removes a cgroup and all below it, unless one has a process."""
    try:
        for directory, _, _ in os.walk(groups, topdown=False):
            os.rmdir(directory)
    except OSError:
        return False
    return True


# The node has a copy of every mount of the machine, and one of a server's disk would keep it in use.
START = """\
awk '$1 ~ "^/dev/loop" {{ print $2 }}' /proc/self/mounts | while read -r disk; do umount --lazy "$(printf %b "$disk")" || true; done
mkdir -p /run/netns && mount -t tmpfs none /run/netns
ip link set lo up
for i in $(seq 3000); do ip link show dev {link} >/dev/null 2>&1 && break; sleep 0.02; done
ip address add {address}/30 dev {link} && ip link set {link} up && ip route add default via {gateway}
echo 1 >/proc/sys/net/ipv4/ip_forward
# There is no kube-proxy: only the API server's own service leads somewhere.
nft -f - <<RULES
table ip services {{
    chain prerouting {{
        type nat hook prerouting priority dstnat;
        ip daddr {service} tcp dport 443 dnat to {server}:{port}
    }}
    # What pods send stays on this machine, whatever network it is in.
    chain forward {{
        type filter hook forward priority filter;
        ip daddr != 10.244.0.0/16 reject
    }}
}}
RULES
export PATH="{kube}:{shim}:$PATH"
# Both start again when they are killed, as services do.
while true; do containerd --config /etc/containerd/config.toml >>{place}/containerd.log 2>&1 || sleep 0.2; done &
for i in $(seq 2000); do ctr version >/dev/null 2>&1 && break; sleep 0.05; done
for image in {place}/images/*.tar; do ctr --namespace k8s.io images import "$image"; done
# As a pull does: the image has its digest as a name, too.
ctr --namespace k8s.io images ls | awk 'NR > 1 && $1 !~ /@/ {{ name = $1; sub(/:[^:]*$/, "", name); print $1, name "@" $3 }}' |
    while read -r name digest; do ctr --namespace k8s.io images tag "$name" "$digest"; done
while true; do
    kubelet --config {place}/kubelet.yaml --kubeconfig {kubeconfig} --cert-dir {place}/kubelet/pki \\
        --hostname-override {name} --node-ip {address} --v 2 || sleep 0.2
done
"""

CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
    "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs",
]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "{directory}/opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
# Without CAP_SYS_RESOURCE, the score of the pause container cannot be lowered.
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{directory}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc]
runtime_type = "io.containerd.runsc.v1"
pod_annotations = ["dev.gvisor.*", "shoal.dev/*"]

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc.options]
TypeUrl = "io.containerd.runsc.v1.options"
ConfigPath = "/run/containerd/runsc/config.toml"

# `shoal prepare-node` writes the rest. The wrapper refuses what it sees of these annotations.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.shoal]
pod_annotations = ["dev.gvisor.*"]
"""

RUNSC = """\
binary_name = "{runsc}"
# One shim for each pod.
grouping = true

[runsc_config]
platform = "systrap"
network = "sandbox"
net-disconnect-ok = "true"
overlay2 = "root:self"
"""

KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
port: {port}
healthzBindAddress: 127.0.0.1
healthzPort: {health}
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {authority}}}}}
authorization: {{mode: Webhook}}
tlsCertFile: {certificate}
tlsPrivateKeyFile: {key}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: {groups}
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
# The machine's disk may be nearly full of other things.
evictionHard: {{memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 5s
volumePluginDir: {directory}/kubelet/plugins
serializeImagePulls: false
# Containers that end again and again start again soon.
featureGates: {{KubeletCrashLoopBackOffMax: true}}
crashLoopBackOff: {{maxContainerRestartPeriod: 2s}}
resolvConf: {directory}/resolv.conf
"""
