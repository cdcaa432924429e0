"""`SandboxTemplate`, `SandboxWarmPool` and `SandboxClaim`, served by `shoal operator`."""

from __future__ import annotations

import datetime
import json
import re

import pytest

from ..installation import wait_until
from .images import SHELL
from .operator import condition, state_of, wait_for_reason

GROUP = "extensions.agents.x-k8s.io"
SANDBOXES = "sandboxes.v1beta1.agents.x-k8s.io"
CLAIMS = f"sandboxclaims.v1beta1.{GROUP}"
POOLS = f"sandboxwarmpools.v1beta1.{GROUP}"


def resource(kind: str, name: str, version: str = "v1beta1", **spec) -> dict:
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}


def template(name: str, version: str = "v1beta1", **spec) -> dict:
    pod = {"spec": {"containers": [{"name": "main", "image": SHELL}], "terminationGracePeriodSeconds": 0}}
    return resource("SandboxTemplate", name, version, podTemplate=pod, **spec)


def pool(name: str, of: str, replicas: int, version: str = "v1beta1", **spec) -> dict:
    return resource("SandboxWarmPool", name, version, replicas=replicas, sandboxTemplateRef={"name": of}, **spec)


def claim(name: str, of: str, **spec) -> dict:
    return resource("SandboxClaim", name, warmPoolRef={"name": of}, **spec)


def filled(cluster, name: str, size: int, seconds: float = 120) -> None:
    """Waits until a pool has its size. The names of its members begin with its own."""

    def ready():
        status = cluster.get(POOLS, name).get("status", {})
        return status.get("readyReplicas") == size == status.get("replicas")

    try:
        wait_until(ready, seconds, f"{size} members of {name}")
    except AssertionError as mistake:
        raise AssertionError(f"{mistake}:\n{state_of(cluster, name)}") from None


def members(cluster, name: str) -> list[dict]:
    every = cluster.get(SANDBOXES)["items"]
    return [one for one in every if any(owner["name"] == name for owner in one["metadata"].get("ownerReferences", []))]


def test_a_claim_gets_a_member_of_the_pool_and_the_pool_is_refilled(operator, cluster):
    cluster.apply(template("warm"), pool("warm", "warm", 2))
    filled(cluster, "warm", 2)
    before = {one["metadata"]["name"] for one in members(cluster, "warm")}
    cluster.apply(claim("takes", "warm"))
    seen = wait_for_reason(cluster, CLAIMS, "takes", "DependenciesReady")
    name = seen["status"]["sandbox"]["name"]
    assert name in before
    assert seen["status"]["sandbox"]["podIPs"]
    assert seen["metadata"]["annotations"]["agents.x-k8s.io/sandbox-name"] == name
    taken = cluster.get(SANDBOXES, name)
    assert [owner["kind"] for owner in taken["metadata"]["ownerReferences"]] == ["SandboxClaim"]
    assert taken["metadata"]["labels"]["agents.x-k8s.io/launch-type"] == "warm"
    filled(cluster, "warm", 2)
    cluster.delete(CLAIMS, "takes")
    wait_until(lambda: not cluster.find(SANDBOXES, name), 60, "no sandbox")


def test_a_wait_for_members_that_fails_shows_their_pods_and_events(operator, cluster):
    held = template("held")
    held["spec"]["podTemplate"]["metadata"] = {"annotations": {"fake-node/hold": "true"}}
    cluster.apply(held, pool("held", "held", 1))
    wait_until(lambda: "Scheduled" in state_of(cluster, "held"), 60, "the event of the scheduler")
    with pytest.raises(AssertionError) as failed:
        filled(cluster, "held", 1, 0)
    shown = str(failed.value)
    assert shown.startswith("1 members of held: not within 0 s:\n")
    assert re.search(r"^held-\S+ +0/1 +Pending ", shown, re.MULTILINE), shown
    assert re.search(r"^\S+ +Normal +Scheduled +pod/held-", shown, re.MULTILINE), shown
    cluster.delete(POOLS, "held")


def test_many_claims_share_no_sandbox_and_the_pool_does_not_overshoot(operator, cluster):
    cluster.apply(template("many"), pool("many", "many", 8))
    filled(cluster, "many", 8)
    created = operator.counter("shoal_operator_api_requests_total")
    cluster.apply(*(claim(f"many-{number}", "many") for number in range(12)))
    names = [wait_for_reason(cluster, CLAIMS, f"many-{number}", "DependenciesReady", 60)["status"]["sandbox"]["name"]
             for number in range(12)]
    assert len(set(names)) == 12
    # The status may be that of before the last claim.
    wait_until(lambda: len(members(cluster, "many")) == 8, 60, "eight members")
    filled(cluster, "many", 8)
    assert len(members(cluster, "many")) == 8
    requests = (operator.counter("shoal_operator_api_requests_total") - created) / 12
    assert requests < 16, f"{requests} API requests a claim"


def test_a_pool_follows_its_size(operator, cluster):
    cluster.apply(template("sized"), pool("sized", "sized", 3))
    filled(cluster, "sized", 3)
    cluster.kubectl("scale", POOLS, "sized", "--replicas=1")
    filled(cluster, "sized", 1)
    cluster.delete(POOLS, "sized")
    wait_until(lambda: not members(cluster, "sized"), 60, "no members")


def test_a_pool_that_recreates_replaces_its_members(operator, cluster):
    changed = template("changed")
    cluster.apply(changed, pool("changed", "changed", 2, updateStrategy={"type": "Recreate"}))
    filled(cluster, "changed", 2)
    before = {one["metadata"]["name"] for one in members(cluster, "changed")}
    changed["spec"]["podTemplate"]["spec"]["containers"][0]["args"] = ["new"]
    cluster.apply(changed)
    wait_until(lambda: not before & {one["metadata"]["name"] for one in members(cluster, "changed")}, 60, "new members")
    filled(cluster, "changed", 2)


def test_a_claim_of_an_empty_pool_starts_a_sandbox_of_its_own(operator, cluster):
    cluster.apply(template("cold"), pool("cold", "cold", 0), claim("starts", "cold"))
    seen = wait_for_reason(cluster, CLAIMS, "starts", "DependenciesReady")
    assert seen["status"]["sandbox"]["name"] == "starts"
    spec = cluster.get("pod", "starts")["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["dnsPolicy"] == "None"
    assert spec["dnsConfig"]["nameservers"] == ["8.8.8.8", "1.1.1.1"]


@pytest.mark.parametrize("spec, reason, message", [
    ({"warmPoolRef": {"name": "unknown"}}, "WarmPoolNotFound", 'SandboxWarmPool "unknown" not found'),
    ({"env": [{"name": "A", "value": "b"}]}, "EnvVarsInjectionRejected", "environment variable injection rejected"),
    ({"additionalPodMetadata": {"labels": {"app": "x"}}}, "InvalidMetadata", "invalid additionalPodMetadata"),
    ({"volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}}]}, "VolumeClaimTemplatesError", "volume claim templates are disallowed"),
])
def test_a_claim_that_cannot_be_served_says_why(operator, cluster, spec, reason, message):
    cluster.apply(template("strict"), pool("strict", "strict", 0))
    name = reason.lower()
    cluster.apply(claim(name, "strict") | {"spec": {"warmPoolRef": {"name": "strict"}} | spec})
    seen = wait_for_reason(cluster, CLAIMS, name, reason)
    assert condition(seen)["message"].startswith(message)
    cluster.delete(CLAIMS, name)


def test_a_claim_is_served_when_its_template_appears(operator, cluster):
    cluster.apply(pool("late", "late", 0), claim("waits", "late"))
    wait_for_reason(cluster, CLAIMS, "waits", "TemplateNotFound")
    cluster.apply(template("late"))
    wait_for_reason(cluster, CLAIMS, "waits", "DependenciesReady")


@pytest.mark.parametrize("policy", ["Retain", "Delete", "DeleteForeground"])
def test_a_claim_expires(operator, cluster, policy):
    cluster.apply(template("ends"), pool("ends", "ends", 0))
    name = f"ends-{policy.lower()}"
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
    lifecycle = {"shutdownTime": soon.strftime("%Y-%m-%dT%H:%M:%SZ"), "shutdownPolicy": policy}
    cluster.apply(claim(name, "ends", lifecycle=lifecycle))
    if policy == "Retain":
        wait_for_reason(cluster, CLAIMS, name, "ClaimExpired")
    else:
        wait_until(lambda: not cluster.find(CLAIMS, name), 60, "no claim")
    wait_until(lambda: not cluster.find(SANDBOXES, name), 60, "no sandbox")


def test_a_template_has_one_network_policy(operator, cluster):
    cluster.apply(template("net"))
    find = lambda: cluster.find("networkpolicy", "net-network-policy")  # noqa: E731
    policy = wait_until(find, 60, "the policy")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["metadata"]["ownerReferences"][0]["kind"] == "SandboxTemplate"
    change = json.dumps({"spec": {"networkPolicyManagement": "Unmanaged"}})
    cluster.kubectl("patch", f"sandboxtemplates.v1beta1.{GROUP}", "net", "--type=merge", "-p", change)
    wait_until(lambda: not find(), 60, "no policy")


def test_a_claim_of_v1alpha1_takes_any_pool_of_its_template(operator, cluster):
    cluster.apply(template("old", "v1alpha1"), pool("old-pool", "old", 1, "v1alpha1"))
    filled(cluster, "old-pool", 1)
    cluster.apply(resource("SandboxClaim", "old-claim", "v1alpha1", sandboxTemplateRef={"name": "old"}))
    seen = wait_for_reason(cluster, f"sandboxclaims.v1alpha1.{GROUP}", "old-claim", "DependenciesReady")
    assert seen["status"]["sandbox"]["name"].startswith("old-pool-")
    assert seen["spec"]["sandboxTemplateRef"]["name"] == "old"
    assert seen["spec"]["warmpool"] == "default"
    assert seen["metadata"]["labels"]["agents.x-k8s.io/sandbox-name"] == seen["status"]["sandbox"]["name"]
