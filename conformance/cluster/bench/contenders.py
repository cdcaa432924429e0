"""The controllers that are measured: `shoal operator`, and a reference beside it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

from ...installation import free_port, program, wait_until
from ..cluster import Cluster

#: The most seconds until definitions are served.
ESTABLISHED_SECONDS = 60


class Contender:
    """A controller, on a cluster of its own."""

    name = ""

    def __init__(self, cluster: Cluster, one_version: bool) -> None:
        self.cluster = cluster
        self.one_version = one_version
        self.webhook = free_port()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.webhook}/convert"

    @property
    def pid(self) -> int:
        return self.cluster.processes.running[self.name].pid

    def definitions(self) -> list[dict]:
        """The definitions, with a conversion at `url`."""
        raise NotImplementedError

    def command(self) -> list[object]:
        raise NotImplementedError

    def install(self) -> None:
        definitions = self.definitions()
        if self.one_version:
            definitions = [with_one_version(definition) for definition in definitions]
        self.cluster.kubectl(
            "apply", "--server-side", "-f", "-",
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}),
        )
        established = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
        wait_until(lambda: self.cluster.answers(*established), ESTABLISHED_SECONDS, "the definitions")

    def start(self) -> None:
        """Starts it without waiting until it works."""
        self.cluster.processes.start(self.name, "env", f"KUBECONFIG={self.cluster.admin}", *self.command())

    def stop(self) -> None:
        self.cluster.processes.kill(self.name)


def with_one_version(definition: dict) -> dict:
    """A definition without `v1alpha1`, so that the API server converts nothing. Others stay as they are."""
    spec = definition["spec"]
    versions = [version for version in spec["versions"] if version["name"] == "v1beta1"]
    if not versions:
        return definition
    return definition | {"spec": spec | {"versions": versions, "conversion": {"strategy": "None"}}}


class Shoal(Contender):
    """`shoal operator`."""

    name = "shoal"

    def definitions(self) -> list[dict]:
        printed = subprocess.run(
            [program(), "crds", "--webhook-url", self.url], capture_output=True, text=True, check=True, timeout=60
        )
        return read_with_kubectl(self.cluster, printed.stdout)

    def command(self) -> list[object]:
        # With one version there is nothing to convert, and the operator must not add a webhook.
        webhook = ["--enable-webhook=false"] if self.one_version else []
        return [
            program(), "operator", "--leader-elect=false", f"--health-probe-bind-address=127.0.0.1:{free_port()}",
            f"--metrics-bind-address=127.0.0.1:{free_port()}", f"--webhook-port={self.webhook}",
            f"--webhook-url={self.url}", *webhook,
        ]


class Reference(Contender):
    """The reference controller of `agents.x-k8s.io`, from a checkout of its repository in which it is built."""

    name = "reference"

    def __init__(self, cluster: Cluster, one_version: bool, checkout: Path) -> None:
        super().__init__(cluster, one_version)
        self.checkout = checkout
        self.certificates = cluster.directory / "reference-webhook"
        self.certificates.mkdir()
        files = cluster.authority.issue("reference-webhook", "webhook", hosts=("127.0.0.1", "localhost"))
        for file, name in zip(files, ("tls.crt", "tls.key"), strict=True):
            shutil.copy(file, self.certificates / name)

    def definitions(self) -> list[dict]:
        authority = (self.cluster.authority.directory / "ca.crt").read_bytes()
        client = {"url": self.url, "caBundle": base64.b64encode(authority).decode()}
        found = []
        for file in sorted((self.checkout / "k8s" / "crds").glob("*.yaml")):
            found += read_with_kubectl(self.cluster, file.read_text())
        for definition in found:
            definition.pop("status", None)
            conversion = definition["spec"].get("conversion", {})
            if conversion.get("strategy") == "Webhook":
                conversion["webhook"]["clientConfig"] = client
        return found

    def command(self) -> list[object]:
        return [
            self.checkout / "bin" / "agent-sandbox-controller", "--extensions", "--leader-elect=false",
            f"--health-probe-bind-address=127.0.0.1:{free_port()}",
            f"--metrics-bind-address=127.0.0.1:{free_port()}", f"--webhook-port={self.webhook}",
            f"--webhook-cert-dir={self.certificates}", "--manage-webhook-certs=false",
            *(["--enable-webhook=false"] if self.one_version else []),
        ]


def read_with_kubectl(cluster: Cluster, yaml: str) -> list[dict]:
    """The objects of a YAML text."""
    text = cluster.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", input=yaml)
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        one, end = decoder.raw_decode(text)
        found += one["items"] if one["kind"] == "List" else [one]
        text = text[end:]
    return found
