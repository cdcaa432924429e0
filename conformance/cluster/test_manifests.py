"""The chart, and the file for `kubectl apply` that is made of it."""

from __future__ import annotations

import os
import subprocess

import pytest
import yaml

from ..installation import program
from . import binaries, manifests, schemas

#: Values that turn on what is off, and off what is on.
OTHERWISE = """
createNamespace: true
replicas: 1
image: {digest: "sha256:%s"}
imagePullSecrets: [{name: registry}]
operator: {extensions: false, claimEvents: false, extraArgs: [--kube-api-qps=5]}
definitions: {keep: false}
serviceAccount: {name: other, annotations: {example.org/role: shoal}}
metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}}
networkPolicy: {metricsFrom: [{namespaceSelector: {}}], apiServerPorts: [16443]}
podDisruptionBudget: {maxUnavailable: 50%%}
podLabels: {team: agents}
podAnnotations: {example.org/note: text}
priorityClassName: system-cluster-critical
runtimeClassName: gvisor
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{operator: Exists}]
""" % ("0" * 64)


@pytest.fixture
def otherwise(tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text(OTHERWISE)
    return path


def objects(text: str) -> list[dict]:
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def of_kind(text: str, kind: str) -> list[dict]:
    return [one for one in objects(text) if one["kind"] == kind]


def test_the_definitions_of_the_chart_are_the_programs():
    assert manifests.DEFINITIONS.read_text() == manifests.definitions(), "run `make manifests`"


def test_the_file_for_kubectl_is_the_chart():
    assert manifests.RENDERED.read_text() == manifests.for_kubectl(), "run `make manifests`"


def test_helm_finds_no_fault_with_the_chart(otherwise):
    for options in ([], ["--values", otherwise]):
        done = manifests.helm("lint", "--strict", manifests.CHART, *options)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("value, told", [
    ("replica=3", "replica"), ("replicas=-1", "replicas"), ("operator.logLevel=loud", "logLevel"),
    ("webhook.port=70000", "port"), ("image.digest=latest", "digest"),
])
def test_wrong_values_are_refused(value, told):
    done = manifests.helm("template", manifests.CHART, "--set", value)
    assert done.returncode != 0
    assert told in done.stderr


def test_definitions_differ_from_the_programs_by_labels_only():
    """The webhook is in the namespace of the release."""
    made = of_kind(manifests.rendered("--namespace", "other"), "CustomResourceDefinition")
    printed = objects(manifests.definitions("--webhook-namespace", "other"))
    assert len(made) == len(printed) == 4
    by_name = {one["metadata"]["name"]: one for one in printed}
    for one in made:
        assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert one["spec"] == by_name[one["metadata"]["name"]]["spec"]


def test_the_program_knows_the_flags(otherwise, tmp_path):
    """It gets as far as to look for a cluster."""
    for options in ([], ["--values", otherwise]):
        deployment, = of_kind(manifests.rendered(*options), "Deployment")
        arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        environment = {"KUBECONFIG": str(tmp_path / "missing"), "PATH": os.environ["PATH"]}
        ran = subprocess.run([program(), *arguments], env=environment, capture_output=True, text=True, timeout=60)
        assert ran.stderr.startswith("shoal: no cluster is configured"), ran.stderr


def test_the_api_server_accepts_everything(cluster):
    """It refuses unknown fields. Nothing is stored but the namespace."""
    text = manifests.RENDERED.read_text()
    cluster.apply(*of_kind(text, "Namespace"))
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text)


def test_kubeconform_accepts_everything(cluster, otherwise, tmp_path):
    """Its schemas are those of the API server, but for a kind that the server does not know."""
    known = tmp_path / "schemas"
    known.mkdir()
    for name, options in (("default", []), ("otherwise", ["--values", otherwise])):
        text = manifests.rendered(*options)
        kinds = {(one["apiVersion"], one["kind"]) for one in objects(text)}
        schemas.write(cluster, known, {kind for kind in kinds if kind[1] != "ServiceMonitor"})
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        done = kubeconform(known, file)
        assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(text.replace("containerPort:", "containerPorts:"))
    assert "containerPorts" in kubeconform(known, file).stdout


def kubeconform(known, file) -> subprocess.CompletedProcess:
    return subprocess.run(
        [binaries.kubeconform() / "kubeconform", "-strict", "-summary", "-skip", "ServiceMonitor",
         "-schema-location", f"{known}/{schemas.LOCATION}", file],
        capture_output=True, text=True, timeout=120,
    )
