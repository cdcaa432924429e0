"""`shoal serve --backend kubernetes` beside a test cluster: replicas of the API and the gateway."""

from __future__ import annotations

import base64
import json
import urllib.request
from pathlib import Path

from ..installation import free_port, program
from . import manifests
from .cluster import Cluster
from .operator import service_account

#: The most seconds that a replica takes to know all sandboxes on a busy machine.
START_SECONDS = 120

#: The chart's service account of the API.
ACCOUNT = f"{manifests.RELEASE}-api"


class Replica:
    """One replica, outside the cluster, with the rights of its service account."""

    def __init__(self, cluster: Cluster, name: str, configuration: Path | None = None) -> None:
        self.cluster = cluster
        self.name = name
        self.port = free_port()
        #: How it reaches the API server; with its service account, if nothing else is given.
        self.configuration = configuration

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *settings: str) -> None:
        configuration = self.configuration or service_account(self.cluster, ACCOUNT)
        always = ("audit.enabled=false", f"kubernetes.namespace={manifests.NAMESPACE}")
        given = [word for setting in (*always, *settings) for word in ("--set", setting)]
        self.cluster.processes.start(
            self.name, "env", f"KUBECONFIG={configuration}", program(), "serve", "--backend", "kubernetes",
            "--listen", f"127.0.0.1:{self.port}", "--data", self.cluster.directory / self.name, *given,
        )
        self.cluster.processes.wait_for(self.name, self.is_ready, START_SECONDS, f"the replica {self.name}")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 204 or answer.status == 200
        except OSError:
            return False

    def kill(self) -> None:
        self.cluster.processes.kill(self.name)


def first_key(cluster: Cluster) -> str:
    """The first API key, as the operator of the installation reads it."""
    secret = json.loads(cluster.kubectl("get", "secret", "-n", manifests.NAMESPACE, "shoal-api-key", "-o", "json"))
    return base64.b64decode(secret["data"]["key"]).decode()
