"""Invariants of sandboxes, claims and pools once nothing changes any more."""

from __future__ import annotations

import time
from collections import Counter

from .api import CORE, EXTENSIONS, Api

#: The kinds of objects that belong to a sandbox.
CHILDREN = ("pods", "services", "persistentvolumeclaims")


def controller(object: dict) -> dict:
    """The owner that controls an object; empty without one."""
    owners = object["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), {})


def is_ready(object: dict) -> bool:
    conditions = object.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def violations(api: Api) -> list[str]:
    """Violations. Empty after the controller has caught up."""
    sandboxes, claims = api.items("sandboxes"), api.items("sandboxclaims")
    pools, templates = api.items("sandboxwarmpools"), api.items("sandboxtemplates")
    found = [f"{one['kind']} {one['metadata']['name']} is still being deleted"
             for one in (*sandboxes, *claims, *pools) if "deletionTimestamp" in one["metadata"]]
    found += of_claims(claims, sandboxes)
    found += of_owners(api, sandboxes, claims, pools)
    found += of_pools(pools, sandboxes)
    found += of_policies(api, templates)
    return found


def of_claims(claims: list[dict], sandboxes: list[dict]) -> list[str]:
    """Each claim has a sandbox of its own."""
    found = []
    by_name = {one["metadata"]["name"]: one for one in sandboxes}
    for claim in claims:
        name = claim["metadata"]["name"]
        taken = claim.get("status", {}).get("sandbox", {}).get("name", "")
        if not is_ready(claim):
            found.append(f"claim {name} is not ready: {claim.get('status')}")
        elif taken not in by_name:
            found.append(f"claim {name} has the sandbox {taken!r}, which does not exist")
        elif controller(by_name[taken]).get("uid") != claim["metadata"]["uid"]:
            found.append(f"claim {name} has the sandbox {taken}, which belongs to {controller(by_name[taken])}")
    taken = Counter(claim.get("status", {}).get("sandbox", {}).get("name") for claim in claims)
    found += [f"sandbox {name} has {count} claims" for name, count in taken.items() if name and count > 1]
    owned = Counter(controller(one).get("name") for one in sandboxes if controller(one).get("kind") == "SandboxClaim")
    found += [f"claim {name} has {count} sandboxes" for name, count in owned.items() if count > 1]
    return found


def of_owners(api: Api, sandboxes: list[dict], claims: list[dict], pools: list[dict]) -> list[str]:
    """Each sandbox has its owner, if it should have one, and each part of a sandbox its sandbox."""
    alive = {one["metadata"]["uid"] for one in (*claims, *pools)}
    found = []
    for sandbox in sandboxes:
        owner = controller(sandbox)
        if owner and owner["uid"] not in alive:
            found.append(f"sandbox {sandbox['metadata']['name']} is an orphan of {owner['kind']} {owner['name']}")
    alive = {one["metadata"]["uid"] for one in sandboxes}
    parts: Counter[tuple[str, str]] = Counter()
    for kind in CHILDREN:
        for child in api.items(kind):
            owner, name = controller(child), child["metadata"]["name"]
            if owner.get("kind") != "Sandbox" or not owner["apiVersion"].startswith(f"{CORE}/"):
                continue
            if owner["uid"] not in alive:
                found.append(f"{kind} {name} is an orphan of {owner['name']}")
            parts[kind, owner["uid"]] += 1
    for sandbox in sandboxes:
        spec, uid = sandbox["spec"], sandbox["metadata"]["uid"]
        wanted = {
            "pods": 0 if spec.get("operatingMode") == "Suspended" else 1,
            "services": 1 if spec.get("service") else 0,
            "persistentvolumeclaims": len(spec.get("volumeClaimTemplates", [])),
        }
        found += [f"sandbox {sandbox['metadata']['name']} has {parts[kind, uid]} {kind}, not {count}"
                  for kind, count in wanted.items() if parts[kind, uid] != count]
    return found


def of_pools(pools: list[dict], sandboxes: list[dict]) -> list[str]:
    """Each pool has its size, and says so."""
    found = []
    for pool in pools:
        uid, name, size = pool["metadata"]["uid"], pool["metadata"]["name"], pool["spec"].get("replicas", 0)
        members = [one for one in sandboxes if controller(one).get("uid") == uid]
        ready = sum(map(is_ready, members))
        status = pool.get("status", {})
        told = (status.get("replicas", 0), status.get("readyReplicas", 0))
        if (len(members), ready) != (size, size):
            found.append(f"pool {name} of {size} has {len(members)} members, {ready} of them ready")
        elif told != (size, size):
            found.append(f"pool {name} of {size} says {told}")
    return found


def of_policies(api: Api, templates: list[dict]) -> list[str]:
    """Each template that has a policy has one, and no other policy is left."""
    uids = {one["metadata"]["uid"]: one["metadata"]["name"] for one in templates}
    policies = Counter()
    found = []
    for policy in api.items("networkpolicies"):
        owner = controller(policy)
        if not owner.get("apiVersion", "").startswith(f"{EXTENSIONS}/"):
            continue
        if owner["uid"] not in uids:
            found.append(f"network policy {policy['metadata']['name']} is an orphan")
        policies[owner["uid"]] += 1
    for template in templates:
        managed = template["spec"].get("networkPolicyManagement", "Managed") == "Managed"
        if policies[template["metadata"]["uid"]] != (1 if managed else 0):
            found.append(f"template {template['metadata']['name']} has {policies[template['metadata']['uid']]} policies")
    return found


def hold(api: Api, seconds: float) -> None:
    """Waits until nothing is violated."""
    end = time.monotonic() + seconds
    while found := violations(api):
        assert time.monotonic() < end, f"after {seconds} s:\n" + "\n".join(found[:20])
        time.sleep(0.2)
