"""A Kubernetes control plane on this machine: etcd, the API server, the controllers and the scheduler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from ..installation import LATER, free_port
from . import binaries
from .certificates import Authority
from .processes import Processes

#: The garbage collector is a third of the time of an API server, and tests have memory.
QUICK = {"GOGC": "200"}

#: The most seconds that a component takes to start on a machine that compiles at the same time.
START_SECONDS = 120

SERVICES = "10.96.0.0/16"
#: The address of the service `kubernetes`: the first of the services' network.
API_SERVICE = "10.96.0.1"


class ControlPlane:
    """The control plane of one cluster, with its state in a directory that must not exist yet."""

    def __init__(self, directory: Path, address: str = "127.0.0.1", hosts: tuple[str, ...] = ()) -> None:
        self.directory = directory
        #: The address on which the API server listens.
        self.address = address
        self.port = free_port()
        self.etcd_port = free_port()
        #: For the conversion webhook of an operator beside this cluster.
        self.webhook_port = free_port(LATER)
        self.bin = binaries.kube()
        directory.mkdir(parents=True)
        self.processes = Processes(directory)
        self.authority = Authority(directory / "pki")
        known = ("127.0.0.1", "localhost", address, API_SERVICE, "kubernetes.default.svc", *hosts)
        self.api_certificate = self.authority.issue("apiserver", "kube-apiserver", hosts=tuple(dict.fromkeys(known)))
        self.service_account_keys = self.authority.service_account_keys()
        self.admin = self.kubeconfig("admin", "admin", "system:masters")

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    def kubeconfig(self, name: str, user: str, group: str = "") -> Path:
        """The client configuration of a new user."""
        certificate, key = self.authority.issue(name, user, group)
        return self.client_configuration(name, {"client-certificate": str(certificate), "client-key": str(key)})

    def service_account(self, namespace: str, name: str) -> Path:
        """The client configuration of a service account, with its namespace as default, as in a pod of it."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "8h")
        return self.client_configuration(f"{namespace}-{name}", {"token": token}, namespace=namespace)

    def client_configuration(self, name: str, credentials: dict, url: str = "", namespace: str = "default") -> Path:
        """A client configuration with the given credentials. `url` is for a proxy in front of the API server."""
        cluster = {"server": url or self.url, "certificate-authority": str(self.authority.directory / "ca.crt")}
        path = self.directory / f"{name}.kubeconfig"
        # JSON is YAML.
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "shoal",
            "clusters": [{"name": "shoal", "cluster": cluster}],
            "contexts": [{"name": "shoal", "context": {"cluster": "shoal", "user": name, "namespace": namespace}}],
            "users": [{"name": name, "user": credentials}],
        }))
        path.chmod(0o600)
        return path

    # --- life -----------------------------------------------------------------------------

    def start(self) -> None:
        self.start_etcd()
        self.start_api_server()
        self._start_controllers()
        self.processes.wait_for(
            "kube-controller-manager", lambda: self.answers("get", "serviceaccount", "default"),
            START_SECONDS, "the default service account",
        )

    def start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{free_port()}"
        client = f"http://127.0.0.1:{self.etcd_port}"
        self.processes.start(
            "etcd", self.bin / "etcd", "--name=test", f"--data-dir={self.directory}/etcd", "--unsafe-no-fsync",
            "--log-level=warn", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}",
            **QUICK,
        )

    def start_api_server(self) -> None:
        certificate, key = self.api_certificate
        public, private = self.service_account_keys
        kubelet_certificate, kubelet_key = self.authority.issue(
            "apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"
        )
        authority = self.authority.directory / "ca.crt"
        self.processes.start(
            "kube-apiserver", self.bin / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--bind-address={self.address}", f"--secure-port={self.port}", "--endpoint-reconciler-type=none",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", f"--client-ca-file={authority}",
            "--authorization-mode=Node,RBAC",
            # Some clusters protect owner references, so the operator's rights must suffice there.
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-cluster-ip-range={SERVICES}",
            f"--service-account-key-file={public}", f"--service-account-signing-key-file={private}",
            f"--kubelet-client-certificate={kubelet_certificate}", f"--kubelet-client-key={kubelet_key}",
            f"--kubelet-certificate-authority={authority}", "--kubelet-preferred-address-types=InternalIP",
            # There is no kube-proxy: webhooks behind a Service are called at their endpoints.
            "--enable-aggregator-routing", "--allow-privileged", "--profiling=false",
            # The limits of a test of many sandboxes are not the API server's.
            "--enable-priority-and-fairness=false", "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
            **QUICK,
        )
        self.processes.wait_for(
            "kube-apiserver", lambda: self.answers("get", "--raw", "/readyz"), START_SECONDS, "the API server"
        )

    def stop_api_server(self) -> None:
        """Kills the API server, as a failure of its node would."""
        self.processes.kill("kube-apiserver")

    def _start_controllers(self) -> None:
        _, private = self.service_account_keys
        authority = self.authority.directory
        self.processes.start(
            "kube-controller-manager", self.bin / "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('controller-manager', 'system:kube-controller-manager')}",
            "--bind-address=127.0.0.1", f"--secure-port={free_port()}", "--leader-elect=false",
            "--use-service-account-credentials", f"--service-account-private-key-file={private}",
            f"--root-ca-file={authority}/ca.crt", "--profiling=false", "--kube-api-qps=200", "--kube-api-burst=400",
            # A quota of a kind that is new to the controllers has no sums before the next of these.
            "--resource-quota-sync-period=5s",
            **QUICK,
        )
        self.processes.start(
            "kube-scheduler", self.bin / "kube-scheduler",
            f"--kubeconfig={self.kubeconfig('scheduler', 'system:kube-scheduler')}", "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}", "--leader-elect=false", "--profiling=false",
            "--kube-api-qps=200", "--kube-api-burst=400",
        )

    def add_fake_node(self, name: str = "fake-0") -> None:
        """Adds a node whose pods are running and ready at once (`kube/fakenode.go`)."""
        process = f"node-{name}"
        self.processes.start(process, self.bin / "fake-node", f"--kubeconfig={self.admin}", f"--name={name}")
        self.wait_for_node(process, name)

    def wait_for_node(self, process: str, name: str) -> None:
        """Waits until a node is ready; `process` is the one that makes it so."""
        ready = ("wait", "--for=condition=Ready", f"node/{name}", "--timeout=5s")
        self.processes.wait_for(process, lambda: self.answers(*ready), START_SECONDS, f"the node {name}")

    def stop(self) -> None:
        """Kills all processes and removes the state. Nothing of it is worth an orderly end."""
        self.processes.kill(*list(self.processes.running))
        shutil.rmtree(self.directory)

    # --- use --------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """The environment of commands that talk to this cluster."""
        return os.environ | {"KUBECONFIG": str(self.admin), "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def kubectl(self, *arguments: str, input: str = "", timeout: float = 180) -> str:
        """Runs kubectl as the cluster's administrator, and returns its output. Fails when it does."""
        done = self._kubectl(*arguments, input=input, timeout=timeout)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def answers(self, *arguments: str) -> bool:
        """Whether a kubectl command succeeds, within 30 s."""
        try:
            return self._kubectl(*arguments, timeout=30).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _kubectl(self, *arguments: str, input: str = "", timeout: float) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.bin / "kubectl", *arguments], env=self.environment(), input=input, timeout=timeout,
            capture_output=True, text=True,
        )
