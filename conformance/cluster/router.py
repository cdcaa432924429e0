"""`shoal router` beside a test cluster."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from ..installation import free_port, program, wait_until
from . import manifests
from .cluster import Cluster
from .images import RUNTIME
from .operator import service_account

#: The most seconds that the router takes to know all sandboxes on a busy machine.
START_SECONDS = 120

#: The chart's service account of the router, and its ClusterRole for users of sandboxes.
ACCOUNT = f"{manifests.RELEASE}-router"
USER = f"{manifests.RELEASE}-sandbox-user"

#: A container that serves the runtime API.
SERVING = {
    "name": "main", "image": RUNTIME, "env": [{"name": "SANDBOX_BASE_DIR", "value": "/tmp/work"}],
    "readinessProbe": {"httpGet": {"path": "/", "port": 8888}, "periodSeconds": 1},
}
#: Its answer to a health check.
SERVES = {"status": "ok", "message": "Sandbox Runtime is active."}


def token_of(cluster: Cluster, account: str, role: str = "") -> str:
    """The token of a service account of the default namespace, which has the rights of a ClusterRole there."""
    objects = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}]
    if role:
        group = "rbac.authorization.k8s.io"
        objects.append({
            "apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": account},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account}],
        })
    cluster.apply(*objects)
    if role:
        # Rights come into force a little later, and a router keeps a refusal for seconds.
        user = f"--as=system:serviceaccount:default:{account}"
        asked = ("auth", "can-i", "create", "sandboxes.agents.x-k8s.io", "--subresource=proxy", user)
        wait_until(lambda: cluster.answers(*asked), 60, f"the rights of {account}")
    return cluster.kubectl("create", "token", account).strip()


class Router:
    """A router outside the cluster, with the rights of its service account."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.port = free_port()
        self.health = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *flags: str) -> None:
        configuration = service_account(self.cluster, ACCOUNT)
        self.cluster.processes.start(
            "router", "env", f"KUBECONFIG={configuration}", program(), "router",
            f"--http-bind-address=127.0.0.1:{self.port}", "--metrics-bind-address=0",
            f"--health-probe-bind-address=127.0.0.1:{self.health}", *flags,
        )
        self.cluster.processes.wait_for("router", self.is_ready, START_SECONDS, "the router")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def kill(self) -> None:
        self.cluster.processes.kill("router")

    def ask(self, path: str, token: str | None = None, **headers: str) -> tuple[int, object]:
        """The status and the JSON of an answer. Underscores in names of headers stand for hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=sent), timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)
