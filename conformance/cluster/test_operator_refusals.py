"""Permanent refusals of the API server: each has a condition that says so, and is tried less and less often."""

from __future__ import annotations

import itertools

import pytest

from ..installation import wait_until
from .api import CORE, Api
from .operator import condition
from .storm import claim, pool, template

NAMESPACES = itertools.count()

#: The most requests of an operator within five seconds for one object that the API server refuses, after the
#: first seconds.
TRICKLE = 12


@pytest.fixture
def api(cluster, operators, proxy):
    """A namespace with an operator."""
    api = Api(cluster, namespace=f"refused-{next(NAMESPACES)}")
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}})
    operators("refusals", "--leader-elect=false", configuration=proxy.configuration)
    yield api
    for kind in ("sandboxwarmpools", "sandboxclaims", "sandboxes"):
        for found in api.items(kind):
            api.delete(api.path(kind, found["metadata"]["name"]))
    api.delete(f"/api/v1/namespaces/{api.namespace}")


def sandbox(name: str, /, **container) -> dict:
    container = {"name": "main", "image": "shoal.invalid/pause:1"} | container
    pod = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {"apiVersion": f"{CORE}/v1beta1", "kind": "Sandbox", "metadata": {"name": name}, "spec": {"podTemplate": pod}}


def wait_for(api: Api, kind: str, name: str, reason: str, told: str = "") -> dict:
    """Waits until an object's `Ready` condition has a reason, and a message that holds a text."""

    def seen():
        found = condition(api.get(api.path(kind, name)))
        return found if found.get("reason") == reason and told in found["message"] else None

    return wait_until(seen, 60, f"{kind}/{name}: {reason}: {told}")


def becomes_quiet(proxy) -> None:
    """Waits until the operator asks for little. One that asks in a loop never does."""
    wait_until(lambda: proxy.quiet(5) <= TRICKLE, 60, f"few requests, not {proxy.seen}")


def test_a_pod_that_the_api_server_refuses(api, proxy):
    api.create(api.path("sandboxes"), sandbox("refused", name="Not_A_Name"))
    seen = wait_for(api, "sandboxes", "refused", "ReconcilerError", "Error seen: ")
    assert seen["status"] == "False"
    assert "Invalid value" in seen["message"]
    becomes_quiet(proxy)


def test_a_pool_whose_members_the_quota_refuses_fills_when_it_is_raised(api, proxy):
    hard = {"count/sandboxes.agents.x-k8s.io": "1"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    api.create(api.path("resourcequotas"), quota)
    wait_until(lambda: api.get(api.path("resourcequotas", "few")).get("status", {}).get("used"), 60, "the quota's sums")
    api.create(api.path("sandboxtemplates"), template("few"))
    api.create(api.path("sandboxwarmpools"), pool("few", "few", 3))
    wait_until(lambda: len(api.items("sandboxes")) == 1, 60, "one member")
    becomes_quiet(proxy)
    # Nothing wakes the pool: its next try does.
    api.patch(api.path("resourcequotas", "few"), {"spec": {"hard": {"count/sandboxes.agents.x-k8s.io": "9"}}})
    wait_until(lambda: len(api.items("sandboxes")) == 3, 150, "three members")


def test_a_pod_that_the_quota_refuses_starts_when_it_is_raised(api, proxy):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    api.create(api.path("resourcequotas"), quota)
    wait_until(lambda: api.get(api.path("resourcequotas", "none")).get("status", {}).get("hard"), 60, "the quota")
    api.create(api.path("sandboxes"), sandbox("waits"))
    wait_for(api, "sandboxes", "waits", "ReconcilerError", "exceeded quota")
    becomes_quiet(proxy)
    api.patch(api.path("resourcequotas", "none"), {"spec": {"hard": {"pods": "2"}}})
    wait_until(lambda: condition(api.get(api.path("sandboxes", "waits"))).get("status") == "True", 150, "the sandbox")


def test_a_template_that_goes_while_claims_wait(api, proxy):
    api.create(api.path("sandboxtemplates"), template("goes"))
    api.create(api.path("sandboxwarmpools"), pool("goes", "goes", 0))
    api.delete(api.path("sandboxtemplates", "goes"))
    for number in range(3):
        api.create(api.path("sandboxclaims"), claim(f"waits-{number}", "goes"))
    wait_for(api, "sandboxclaims", "waits-2", "TemplateNotFound", "goes")
    becomes_quiet(proxy)
    api.create(api.path("sandboxtemplates"), template("goes"))
    for number in range(3):
        wait_for(api, "sandboxclaims", f"waits-{number}", "DependenciesReady")


def test_a_pool_of_an_unknown_template_says_so_and_waits(api, proxy):
    api.create(api.path("sandboxwarmpools"), pool("unknown", "unknown", 2))
    api.create(api.path("sandboxclaims"), claim("waits", "unknown"))
    wait_for(api, "sandboxclaims", "waits", "TemplateNotFound", "unknown")
    becomes_quiet(proxy)
    assert not api.items("sandboxes")
    api.create(api.path("sandboxtemplates"), template("unknown"))
    wait_for(api, "sandboxclaims", "waits", "DependenciesReady")
    wait_until(lambda: len(api.items("sandboxes")) == 3, 60, "the pool")


@pytest.mark.parametrize("length", [63, 64, 253])
def test_names_at_the_limit(api, length):
    """A longer name than a label's value takes is no reason for a loop: it works, or the condition says why."""
    name = "n" * length
    api.create(api.path("sandboxes"), sandbox(name))
    wait_until(lambda: condition(api.get(api.path("sandboxes", name))).get("reason"), 60, "a condition")
    wait_until(lambda: condition(api.get(api.path("sandboxes", name))).get("status") == "True", 60, "the sandbox")
    pod = api.get(api.path("pods", name))
    assert pod["metadata"]["ownerReferences"][0]["name"] == name


def test_a_pool_with_a_long_name_has_members(api):
    name = "p" * 253
    api.create(api.path("sandboxtemplates"), template(name))
    api.create(api.path("sandboxwarmpools"), pool(name, name, 2))
    wait_until(lambda: len(api.items("sandboxes")) == 2, 60, "the members")
    api.create(api.path("sandboxclaims"), claim("c" * 253, name))
    wait_for(api, "sandboxclaims", "c" * 253, "DependenciesReady")
