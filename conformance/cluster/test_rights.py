"""The rights of operator, router and API are the chart's, and no others. All tests of the three run with them.

The API server protects owner references, as some clusters do.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request

import pytest
import yaml

from ..installation import wait_until
from . import manifests
from .operator import RIGHTS, apply_in_time, service_account, wait_for_reason
from .router import ACCOUNT, USER, token_of
from .serving import ACCOUNT as API_ACCOUNT
from .serving import Replica, first_key
from .test_operator_pool import CLAIMS, GROUP, claim, pool, template
from .test_operator_sandbox import BETA, sandbox

SANDBOXES = "sandboxes.agents.x-k8s.io"
KRUISE = "agents.kruise.io"
ADOPTABLE = {"agents.x-k8s.io/adoptable": "true"}


@pytest.fixture(scope="module")
def account(cluster):
    return service_account(cluster)


@pytest.fixture(scope="module")
def router_account(cluster):
    return service_account(cluster, ACCOUNT)


@pytest.fixture(scope="module")
def api_account(cluster):
    return service_account(cluster, API_ACCOUNT)


def owner(found: dict) -> str:
    return next((one["kind"] for one in found["metadata"].get("ownerReferences", []) if one["controller"]), "")


def may(cluster, account, verb: str, resource: str, namespace: str = "default") -> bool:
    """Whether an account may do something, in the words of `kubectl auth can-i`."""
    kind, _, options = resource.partition(" ")
    kind, _, name = kind.partition("/")
    plural, _, group = kind.partition(".")
    asked = {
        "verb": verb, "group": group, "resource": "secrets" if plural == "secret" else plural, "name": name,
        "subresource": options.removeprefix("--subresource="), "namespace": namespace,
    }
    token = json.loads(account.read_text())["users"][0]["user"]["token"]
    review = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    request = urllib.request.Request(
        f"{cluster.url}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json.dumps(review).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=cluster.authority.directory / "ca.crt")
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        return json.load(answer)["status"]["allowed"]


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
    ("get", "secret/agent-sandbox-webhook-certs"), ("get", "secret/shoal-runtime"), ("create", "secrets"), ("create", "leases.coordination.k8s.io"),
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
    assert not may(cluster, account, verb, resource)


def test_what_the_operator_needs_is_granted(cluster, account):
    """Otherwise the refusals above might be those of an account without any right."""
    assert may(cluster, account, "create", "pods")


@pytest.mark.parametrize("verb, resource", [
    ("get", SANDBOXES), ("create", SANDBOXES), ("patch", SANDBOXES), ("delete", SANDBOXES),
    ("create", f"{SANDBOXES} --subresource=proxy"), ("list", f"sandboxclaims.{GROUP}"), ("list", "pods"), ("get", "pods"),
    ("create", "pods --subresource=proxy"), ("list", "services"), ("list", "secrets"), ("list", "namespaces"),
    ("create", "events.events.k8s.io"), ("create", "leases.coordination.k8s.io"), ("impersonate", "users"),
])
def test_what_the_router_does_not_need_is_refused(operator, cluster, router_account, verb, resource):
    assert not may(cluster, router_account, verb, resource)
    assert not may(cluster, router_account, verb, resource, manifests.NAMESPACE)


@pytest.mark.parametrize("verb, resource", [
    ("list", SANDBOXES), ("watch", SANDBOXES), ("create", "tokenreviews.authentication.k8s.io"),
    ("create", "subjectaccessreviews.authorization.k8s.io"),
])
def test_what_the_router_needs_is_granted(operator, cluster, router_account, verb, resource):
    assert may(cluster, router_account, verb, resource)


def test_a_user_of_sandboxes_may_use_those_of_one_namespace_only(operator, cluster, router_account):
    token = token_of(cluster, "sandbox-user", USER)
    account = cluster.client_configuration("sandbox-user", {"token": token})
    proxy = f"{SANDBOXES} --subresource=proxy"
    assert may(cluster, account, "create", proxy)
    assert not may(cluster, account, "create", proxy, "kube-system")
    for verb in ("get", "list", "create", "delete"):
        assert not may(cluster, account, verb, SANDBOXES)


@pytest.mark.parametrize("verb, resource", [
    ("deletecollection", f"sandboxes.{KRUISE}"), ("patch", f"sandboxes.{KRUISE} --subresource=status"),
    ("get", f"sandboxsets.{KRUISE}"), ("deletecollection", f"sandboxsets.{KRUISE}"), ("patch", f"sandboxsets.{KRUISE}"),
    ("create", "replicasets.apps"), ("get", "replicasets.apps"), ("list", SANDBOXES), ("get", "pods"), ("list", "pods"), ("create", "pods"),
    ("create", "pods --subresource=exec"), ("list", "namespaces"), ("create", "namespaces"), ("get", "nodes"),
    ("list", "secrets"), ("watch", "secrets"), ("get", "secrets"), ("update", "secret/e2b-key-store"),
    ("delete", "secret/e2b-key-store"), ("patch", "secret/shoal-api-key"), ("patch", "secret/shoal-runtime"), ("get", "secret/agent-sandbox-webhook-certs"),
    ("get", "configmaps"), ("list", "configmaps"), ("delete", "configmaps/e2b-quotas"), ("create", "serviceaccounts --subresource=token"), ("impersonate", "users"),
])
def test_what_the_api_does_not_need_is_refused(operator, cluster, api_account, verb, resource):
    assert not may(cluster, api_account, verb, resource)
    assert not may(cluster, api_account, verb, resource, manifests.NAMESPACE)


@pytest.mark.parametrize("verb, resource", [
    *((verb, f"sandboxes.{KRUISE}") for verb in ("get", "list", "watch", "create", "update", "patch", "delete")),
    *((verb, f"sandboxsets.{KRUISE}") for verb in ("list", "watch", "create", "update", "delete")), ("get", "pods --subresource=log"),
    ("get", "namespaces"), ("list", "nodes"),
])
def test_what_the_api_needs_is_granted(operator, cluster, api_account, verb, resource):
    assert may(cluster, api_account, verb, resource)


@pytest.mark.parametrize("verb, resource", [
    ("create", "secrets"), ("get", "secret/e2b-key-store"), ("list", "secret/e2b-key-store"),
    ("watch", "secret/e2b-key-store"), ("patch", "secret/e2b-key-store"), ("get", "secret/shoal-api-key"),
    ("get", "secret/shoal-runtime"), ("create", "configmaps"), ("get", "configmaps/e2b-quotas"), ("update", "configmaps/e2b-quotas"), ("patch", "configmaps/e2b-quotas"),
])
def test_the_api_may_use_its_objects_in_its_own_namespace_only(cluster, api_account, verb, resource):
    assert may(cluster, api_account, verb, resource, manifests.NAMESPACE)
    assert not may(cluster, api_account, verb, resource)


def test_the_api_keeps_its_keys_with_its_rights(operator, cluster):
    """Each replica learns by its watch of keys that another one makes and deletes."""
    replicas = [Replica(cluster, name) for name in ("rights-1", "rights-2")]
    first, second = replicas
    try:
        for replica in replicas:
            replica.start()
        key = first_key(cluster)
        _, made = call(first, "POST", "/api-keys", key, {"name": "another"})
        use = lambda: call(second, "GET", "/sandboxes", made["key"])  # noqa: E731
        wait_until(lambda: use()[0] == 200, 60, "the new key")
        assert call(second, "DELETE", f"/api-keys/{made['id']}", key)[0] == 204
        wait_until(lambda: call(first, "GET", "/sandboxes", made["key"])[0] == 401, 60, "the end of the key")
    finally:
        for replica in replicas:
            replica.kill()


def call(replica: Replica, method: str, path: str, key: str, body: dict | None = None) -> tuple[int, object]:
    """The status and the JSON of an answer of the API."""
    sent = {"X-API-Key": key, "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(replica.url + path, data=data, headers=sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


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
        return cluster.find("networkpolicy", "follows-network-policy") or {}

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
    cluster.delete(f"sandboxtemplates.v1beta1.{GROUP}", "foreign")


def test_events_are_published(operator, cluster):
    cluster.apply(template("tells"), pool("tells", "tells", 0), claim("tells", "tells"))
    wait_for_reason(cluster, CLAIMS, "tells", "DependenciesReady")
    selected = "involvedObject.name=tells,reason=SandboxProvisioned"
    wait_until(lambda: cluster.get("events", fields=selected)["items"], 60, "the event")


def test_an_old_certificate_is_replaced(operator, cluster):
    secret = "agent-sandbox-webhook-certs"
    inside = {"namespace": manifests.NAMESPACE}
    before = cluster.get("secret", secret, **inside)["data"]["tls.crt"]
    operator.stop()
    cluster.kubectl("annotate", "secret", secret, "-n", manifests.NAMESPACE, "--overwrite", "shoal.dev/renew-at=2020-01-01T00:00:00Z")
    operator.start()
    assert cluster.get("secret", secret, **inside)["data"]["tls.crt"] != before
    # The API server trusts it.
    apply_in_time(cluster, sandbox("converted", "v1alpha1"))
    wait_for_reason(cluster, BETA, "converted", "DependenciesReady")
