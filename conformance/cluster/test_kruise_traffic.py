"""`TrafficPolicy` of `agents.kruise.io`, served by `shoal operator`, on a real API server."""

from __future__ import annotations

from ..installation import wait_until
from .operator import condition
from .test_kruise_sandbox import wait_for

TRAFFIC = "trafficpolicies.v1alpha1.agents.kruise.io"
POLICIES = "networkpolicies.networking.k8s.io"


def policy(name: str, **spec) -> dict:
    return {"apiVersion": "agents.kruise.io/v1alpha1", "kind": "TrafficPolicy", "metadata": {"name": name}, "spec": spec}


def accepted(cluster, name: str, status: str) -> dict:
    return condition(
        wait_for(cluster, name, lambda one: condition(one, "Accepted").get("status") == status, status, TRAFFIC), "Accepted"
    )


def test_a_policy_becomes_a_network_policy(operator, cluster):
    ranges = [{"cidr": "10.0.0.0/8"}]
    rules = [{"action": "reject", "to": ranges}, {"action": "allow", "ports": [{"port": 443}]}]
    selector = {"matchLabels": {"agents.kruise.io/sandbox-name": "one"}}
    cluster.apply(policy("web", selector=selector, egress={"rules": rules}))
    assert accepted(cluster, "web", "True")["reason"] == "Rendered"
    made = cluster.get(POLICIES, "web-traffic")
    assert made["metadata"]["ownerReferences"][0]["kind"] == "TrafficPolicy"
    assert made["spec"] == {
        "podSelector": selector, "policyTypes": ["Egress"],
        "egress": [{
            "ports": [{"protocol": "TCP", "port": 443}],
            "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}, {"ipBlock": {"cidr": "::/0"}}],
        }],
    }
    # Somebody opens it, or deletes it.
    cluster.patch(POLICIES, "web-traffic", {"spec": {"egress": [{}]}})
    wait_until(lambda: cluster.get(POLICIES, "web-traffic")["spec"] == made["spec"], 60, "corrected")
    cluster.delete(POLICIES, "web-traffic")
    wait_until(lambda: cluster.find(POLICIES, "web-traffic"), 60, "made again")
    cluster.patch(TRAFFIC, "web", {"spec": {"egress": {"rules": []}}})
    wait_until(lambda: "egress" not in cluster.get(POLICIES, "web-traffic")["spec"], 60, "closed")
    cluster.delete(TRAFFIC, "web")
    wait_until(lambda: cluster.find(POLICIES, "web-traffic") is None, 60, "gone with its owner")


def test_what_a_network_policy_cannot_say_is_told(operator, cluster):
    rules = [{"action": "allow", "to": [{"fqdn": "example.org"}, {"cidr": "1.1.1.1/32"}]}]
    cluster.apply(policy("names", egress={"rules": rules}))
    told = accepted(cluster, "names", "False")
    assert told["reason"] == "NotExpressible" and "example.org" in told["message"]
    assert cluster.get(POLICIES, "names-traffic")["spec"]["egress"] == [{"to": [{"ipBlock": {"cidr": "1.1.1.1/32"}}]}]
    cluster.delete(TRAFFIC, "names")


def test_a_network_policy_of_somebody_else_is_not_touched(operator, cluster):
    foreign = {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "foreign-traffic"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }
    failures = operator.counter("shoal_operator_reconcile_failures_total")
    cluster.apply(foreign, policy("foreign", egress={"rules": []}))
    wait_until(lambda: operator.counter("shoal_operator_reconcile_failures_total") > failures, 60, "refused")
    assert cluster.get(POLICIES, "foreign-traffic")["spec"] == foreign["spec"]
    cluster.delete(TRAFFIC, "foreign")
    cluster.delete(POLICIES, "foreign-traffic")
