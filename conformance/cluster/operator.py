"""`shoal operator` beside a test cluster."""

from __future__ import annotations

import functools
import urllib.request
from pathlib import Path

import yaml

from ..installation import free_port, program, wait_until
from . import manifests
from .cluster import Cluster

#: The most seconds that the operator takes to start on a machine that compiles at the same time.
START_SECONDS = 120

#: Kinds whose objects have pods; claims and pools come before what they would replace.
SERVED = [
    *(f"{kind}.extensions.agents.x-k8s.io" for kind in ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates")),
    *(f"{kind}.agents.kruise.io" for kind in ("poolautoscalers", "sandboxupdateops", "checkpoints", "sandboxclaims", "sandboxsets", "sandboxes")),
    "sandboxes.agents.x-k8s.io",
]

#: The kinds that give the chart's programs their rights.
RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@functools.cache
def service_account(cluster: Cluster, name: str = manifests.RELEASE) -> Path:
    """The client configuration of one of the chart's service accounts, the operator's for example, with the rights
    that users give it."""
    objects = yaml.load_all(manifests.RENDERED.read_text(), yaml.CSafeLoader)
    cluster.apply(*(one for one in objects if one["kind"] in RIGHTS))
    return cluster.service_account(manifests.NAMESPACE, name)


class Operator:
    """One replica, outside the cluster, with the rights of its service account."""

    def __init__(self, cluster: Cluster, name: str = "operator", configuration: Path | None = None) -> None:
        self.cluster = cluster
        self.name = name
        #: How it reaches the API server; with its service account, if nothing else is given.
        self.configuration = configuration
        self.health = free_port()
        self.metrics = free_port()
        #: One port for all modules: definitions that stay the same cost the API server nothing.
        self.webhook = cluster.webhook_port

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.webhook}/convert"

    def install(self) -> None:
        """Applies the definitions, and waits until they are served."""
        wanted = yaml.load_all(manifests.definitions("--webhook-url", self.url), yaml.CSafeLoader)
        applied = [self.cluster.objects.apply(one) for one in wanted]
        names = [one["metadata"]["name"] for one in applied]
        wait_until(lambda: self.are_established(names), START_SECONDS, "the definitions")

    def are_established(self, names: list[str]) -> bool:
        found = {one["metadata"]["name"]: one for one in self.cluster.get("customresourcedefinitions")["items"]}
        return all(condition(found[name], "Established").get("status") == "True" for name in names)

    def start(self, *flags: str, **environment: str) -> None:
        """Starts it, and waits until it reconciles.

        Without a flag it needs no lease: one that cannot renew it in time ends, and no kubelet would start it again
        here. A replica with a lease is ready while it waits for it, so tests of leaders look for reconciles.
        """
        if not any(flag.startswith("--leader-elect") for flag in flags):
            flags = (*flags, "--leader-elect=false")
        configuration = self.configuration or service_account(self.cluster)
        self.cluster.processes.start(
            self.name, "env", f"KUBECONFIG={configuration}", *(f"{key}={value}" for key, value in environment.items()),
            program(), "operator",
            f"--health-probe-bind-address=127.0.0.1:{self.health}", f"--metrics-bind-address=127.0.0.1:{self.metrics}",
            f"--webhook-port={self.webhook}", f"--webhook-url={self.url}", *flags,
        )
        self.cluster.processes.wait_for(self.name, self.is_ready, START_SECONDS, "the operator")

    def is_ready(self) -> bool:
        return "ok" in self.read(self.health, "/readyz")

    def read(self, port: int, path: str) -> str:
        """The body of an endpoint; empty when it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def counter(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.read(self.metrics, "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def clear(self) -> None:
        """Deletes what users have made in the default namespace, so that its names are free."""
        for kind in SERVED:
            self.cluster.delete_all(kind)

    def stop(self) -> None:
        """Stops it as Kubernetes does: it releases its lease."""
        self.cluster.processes.stop(self.name)

    def kill(self) -> None:
        """Kills it at once, as a failure of its node would."""
        self.cluster.processes.kill(self.name)


def condition(seen: dict, kind: str = "Ready") -> dict:
    """A condition of an object; empty if it has none of that type."""
    # The API server writes null for a definition that is new.
    conditions = seen.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def leads(operator: Operator) -> bool:
    """Whether an operator reconciles."""
    return operator.counter("shoal_operator_reconciles_total") > 0


def wait_for_reason(cluster: Cluster, kind: str, name: str, reason: str, seconds: float = 120) -> dict:
    """Waits until the object's `Ready` condition has a reason, and returns the object."""

    def seen():
        found = cluster.get(kind, name)
        return found if condition(found).get("reason") == reason else None

    return wait_until(seen, seconds, f"{kind}/{name}: {reason}")


def apply_in_time(cluster: Cluster, wanted: dict, seconds: float = 60) -> None:
    """Applies an object of a version that a webhook converts. The API server may not know the webhook's newest
    certificate, or its pods, yet."""

    def applied() -> bool:
        try:
            cluster.apply(wanted)
        except AssertionError as refused:
            if "conversion webhook" not in str(refused):
                raise
            return False
        return True

    wait_until(applied, seconds, "a conversion")


def state_of(cluster: Cluster, name: str) -> str:
    """The sandboxes, pods and events with this part in their names: what a failed wait shows."""
    listed = [cluster.kubectl("get", kind, "-o", "wide").splitlines() for kind in ("sandboxes", "pods", "events")]
    return "\n".join(line for lines in listed for number, line in enumerate(lines) if number == 0 or name in line)
