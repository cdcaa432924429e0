"""The rights of the operator are the chart's, and no others. All tests of the operator run with them.

The API server protects owner references, as some clusters do.
"""

from __future__ import annotations

import json

import pytest
import yaml

from ..installation import wait_until
from . import manifests
from .operator import RIGHTS, Operator, service_account, wait_for_reason
from .test_operator_pool import CLAIMS, GROUP, claim, pool, template
from .test_operator_sandbox import BETA, sandbox

ADOPTABLE = {"agents.x-k8s.io/adoptable": "true"}


@pytest.fixture(scope="module")
def operator(cluster):
    operator = Operator(cluster)
    operator.install()
    operator.start()
    yield operator
    operator.kill()


@pytest.fixture(scope="module")
def account(cluster):
    return service_account(cluster)


def owner(found: dict) -> str:
    return next((one["kind"] for one in found["metadata"].get("ownerReferences", []) if one["controller"]), "")


def test_no_rule_grants_everything():
    objects = yaml.load_all(manifests.RENDERED.read_text(), yaml.CSafeLoader)
    rules = [rule for one in objects if one["kind"] in RIGHTS for rule in one.get("rules", [])]
    assert rules
    assert not [rule for rule in rules if "*" in rule["apiGroups"] + rule["resources"] + rule["verbs"]]


@pytest.mark.parametrize("namespace", ["default", manifests.NAMESPACE])
def test_secrets_cannot_be_listed(cluster, account, namespace):
    with pytest.raises(AssertionError, match="cannot list resource"):
        cluster.kubectl("--kubeconfig", str(account), "--namespace", namespace, "get", "secrets")


@pytest.mark.parametrize("verb, resource", [
    ("get", "secret/agent-sandbox-webhook-certs"), ("create", "secrets"), ("create", "leases.coordination.k8s.io"),
    ("create", "pods --subresource=exec"), ("get", "pods --subresource=log"), ("update", "pods"), ("deletecollection", "pods"),
    ("get", "configmaps"), ("list", "nodes"), ("list", "namespaces"), ("create", "serviceaccounts --subresource=token"),
    ("impersonate", "users"), ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("escalate", "clusterroles.rbac.authorization.k8s.io"),
    ("delete", "customresourcedefinitions.apiextensions.k8s.io/sandboxes.agents.x-k8s.io"),
    ("patch", "customresourcedefinitions.apiextensions.k8s.io/others.example.org"),
    ("create", f"sandboxclaims.{GROUP}"), ("patch", f"sandboxtemplates.{GROUP}"), ("delete", f"sandboxwarmpools.{GROUP}"),
    ("patch", f"sandboxwarmpools.{GROUP}"),
])
def test_what_the_operator_does_not_need_is_refused(cluster, account, verb, resource):
    """In the namespaces of others."""
    asked = ("auth", "can-i", verb, *resource.split(), "--namespace", "default")
    assert not cluster.answers("--kubeconfig", str(account), *asked)


def test_what_the_operator_needs_is_granted(cluster, account):
    """Otherwise the refusals above might be those of an account without any right."""
    asked = ("auth", "can-i", "create", "pods", "--namespace", "default")
    assert cluster.answers("--kubeconfig", str(account), *asked)


def test_a_volume_claim_is_adopted(operator, cluster):
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    present = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": wanted}
    cluster.apply(present | {"metadata": {"name": "data-adopts", "labels": ADOPTABLE}})
    cluster.apply(sandbox("adopts", volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": wanted}]))
    wait_until(lambda: owner(cluster.get("pvc", "data-adopts")) == "Sandbox", 60, "the adoption")


def test_a_service_is_adopted(operator, cluster):
    present = {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "selector": {"app": "x"}}}
    cluster.apply(present | {"metadata": {"name": "adopts-service", "labels": ADOPTABLE}})
    cluster.apply(sandbox("adopts-service", service=True))
    wait_until(lambda: owner(cluster.get("service", "adopts-service")) == "Sandbox", 60, "the adoption")


def test_a_network_policy_follows_its_template(operator, cluster):
    def policy() -> dict:
        found = ("networkpolicy", "follows-network-policy")
        return cluster.get(*found) if cluster.answers("get", *found) else {}

    cluster.apply(template("follows"))
    wait_until(policy, 60, "the policy")
    rules = {"ingress": [{"ports": [{"port": 80}]}]}
    change = json.dumps({"spec": {"networkPolicy": rules}})
    cluster.kubectl("patch", f"sandboxtemplates.v1beta1.{GROUP}", "follows", "--type=merge", "-p", change)
    wait_until(lambda: "ports" in policy()["spec"].get("ingress", [{}])[0], 60, "the changed policy")


def test_a_network_policy_of_someone_else_stays(operator, cluster):
    foreign = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}}
    cluster.apply(foreign | {"metadata": {"name": "foreign-network-policy"}})
    cluster.apply(template("foreign"))
    log = cluster.processes.log(operator.name)
    wait_until(lambda: "foreign-network-policy" in log.read_text(), 60, "the refusal")
    assert owner(cluster.get("networkpolicy", "foreign-network-policy")) == ""
    cluster.kubectl("delete", f"sandboxtemplates.v1beta1.{GROUP}", "foreign")


def test_events_are_published(operator, cluster):
    cluster.apply(template("tells"), pool("tells", "tells", 0), claim("tells", "tells"))
    wait_for_reason(cluster, CLAIMS, "tells", "DependenciesReady")
    selected = ("--field-selector", "involvedObject.name=tells,reason=SandboxProvisioned")
    wait_until(lambda: cluster.get("events", *selected)["items"], 60, "the event")


def test_an_old_certificate_is_replaced(operator, cluster):
    secret = ("secret", "agent-sandbox-webhook-certs", "--namespace", manifests.NAMESPACE)
    before = cluster.get(*secret)["data"]["tls.crt"]
    operator.kill()
    cluster.kubectl("annotate", *secret, "--overwrite", "shoal.dev/renew-at=2020-01-01T00:00:00Z")
    operator.start()
    assert cluster.get(*secret)["data"]["tls.crt"] != before
    # The API server trusts it.
    cluster.apply(sandbox("converted", "v1alpha1"))
    wait_for_reason(cluster, BETA, "converted", "DependenciesReady")
