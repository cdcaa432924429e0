"""The pools of Agent-Sandbox's templates, with the released E2B SDK on a real node: two phases of a start, the oldest
first, and resources that the claim raises."""

from __future__ import annotations

import json
import time

import pytest
from e2b import Sandbox
from e2b.exceptions import SandboxException

from ..installation import wait_until
from . import manifests
from .conftest import operator_of
from .images import RUNTIME, SHELL
from .operator import condition
from .serving import Replica, first_key
from .test_kruise_claims import call
from .test_templates import ENTRIES, MAP, REPLICA_SETS, SANDBOXES, SETS, TEMPLATES
from .test_sdk import run_in_next

#: Answers at a port, and keeps what it was started as.
WARM = "echo $$ > /tmp/warm; while true; do nc -l -p 8888 -e true || sleep 0.1; done"
#: Prints that it ran, its user, and its arguments.
START = "id -u > /tmp/started; echo $COLOUR >> /tmp/started; date >> /tmp/runs"

RESOURCES = {"cpu": "100m", "memory": "64Mi", "cpuLimit": "500m", "memoryLimit": "256Mi"}
LITTLE = {"cpu": "10m", "memory": "32Mi", "cpuLimit": "200m", "memoryLimit": "128Mi"}


def entry(name: str, size: int = 1, **fields) -> dict:
    pool = {
        "size": size, "probePort": 8888, "warmupCmd": ["sh", "-c", WARM], "startupCmd": ["sh", "-c", START],
        "resources": LITTLE,
    }
    base = {"name": name, "image": SHELL, "description": "d", "resources": RESOURCES, "pool": pool}
    return base | fields


@pytest.fixture(scope="module")
def operator(real_cluster):
    yield from operator_of(real_cluster, "--runtime-image", RUNTIME)


@pytest.fixture(scope="module")
def replica(operator, real_cluster):
    replica = Replica(real_cluster, "templates")
    replica.start()
    yield replica
    replica.kill()
    real_cluster.delete("configmap", MAP, namespace=manifests.NAMESPACE, missing_ok=True)


@pytest.fixture(scope="module")
def api(replica, real_cluster):
    return {"api_key": first_key(real_cluster), "api_url": replica.url, "sandbox_url": replica.url}


def put(replica, api, *entries: dict) -> None:
    status, answer = call(replica, api["api_key"], "POST", TEMPLATES, {"templates": list(entries)})
    assert status == 200, answer


def available(cluster, name: str) -> int:
    found = cluster.find(SETS, name) or {"metadata": {"generation": 1}}
    status = found.get("status", {})
    current = status.get("observedGeneration") == found["metadata"]["generation"]
    return status.get("updatedAvailableReplicas", 0) if current else 0


def filled(cluster, name: str, size: int) -> None:
    wait_until(lambda: available(cluster, name) == size, 120, f"{size} members of {name}")


def members(cluster, name: str) -> list[dict]:
    labels = f"agents.kruise.io/sandbox-pool={name},agents.kruise.io/sandbox-claimed=false"
    return cluster.get(SANDBOXES, labels=labels)["items"]


def resource(cluster, sandbox: Sandbox) -> dict:
    [found] = cluster.get(SANDBOXES, labels=f"agents.kruise.io/sandbox-id={sandbox.sandbox_id}")["items"]
    return found


def pod_of(cluster, name: str) -> dict:
    [pod] = [
        one for one in cluster.get("pods", labels=f"agents.kruise.io/sandbox-name={name}")["items"]
        if "deletionTimestamp" not in one["metadata"]
    ]
    return pod


def limits(pod: dict) -> dict:
    return pod["spec"]["containers"][0]["resources"]


def test_the_whole_way_from_the_config_map_to_a_command(replica, api, real_cluster):
    """ConfigMap, SDK, ReplicaSet, pod, command: without a pool."""
    text = json.dumps([{"name": "cold", "image": SHELL, "description": "d", "startCmd": "sleep 1000000"}])
    put(replica, api)
    real_cluster.patch("configmaps", MAP, {"data": {ENTRIES: text}}, namespace=manifests.NAMESPACE)
    wait_until(lambda: call(replica, api["api_key"], "GET", TEMPLATES)[1]["data"]["templates"], 60, "the entry")
    begun = time.time()
    sandbox = Sandbox.create("cold", metadata={"purpose": "test"}, envs={"COLOUR": "blue"}, timeout=120, **api)
    made = time.time()
    assert sandbox.commands.run("echo $COLOUR").stdout == "blue\n"
    sandbox.files.write("/tmp/a.txt", "text")
    assert sandbox.files.read("/tmp/a.txt") == "text"
    info = sandbox.get_info()
    assert info.template_id == "cold" and info.metadata["purpose"] == "test"
    name = resource(real_cluster, sandbox)["metadata"]["name"]
    assert pod_of(real_cluster, name)["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    # Its controller says so after the pod does.
    told = lambda: real_cluster.get(REPLICA_SETS, name)["status"].get("readyReplicas") == 1  # noqa: E731
    wait_until(told, 60, "the status of the ReplicaSet")
    assert begun + 119 <= info.end_at.timestamp() <= made + 121, "its time began when it was ready"
    sandbox.kill()
    wait_until(lambda: not real_cluster.find(REPLICA_SETS, name), 60, "its end")


def test_a_claim_takes_the_oldest_starts_it_up_and_raises_its_limits(replica, api, real_cluster):
    put(replica, api, entry("warm"))
    filled(real_cluster, "warm", 1)
    [first] = members(real_cluster, "warm")
    put(replica, api, entry("warm", size=2))
    filled(real_cluster, "warm", 2)
    name = first["metadata"]["name"]
    before = pod_of(real_cluster, name)
    little = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    assert limits(before) == little and before["metadata"]["labels"]["sbx-pool"] == "true"
    sandbox = Sandbox.create("warm", envs={"COLOUR": "red"}, timeout=300, **api)
    claimed = resource(real_cluster, sandbox)
    assert claimed["metadata"]["name"] == name, "the oldest"
    after = pod_of(real_cluster, name)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    full = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}}
    assert limits(after) == full
    labels = after["metadata"]["labels"]
    assert labels["sbx-pool"] == "false" and labels["sbx-user"] and labels["sbx-id"] == sandbox.sandbox_id
    kept = real_cluster.get(REPLICA_SETS, name)
    assert limits(kept["spec"]["template"]) == full and kept["metadata"]["labels"]["sbx-pool"] == "false"
    assert sandbox.commands.run("cat /tmp/started").stdout == "0\nred\n"
    assert sandbox.commands.run("cat /tmp/warm").exit_code == 0
    # The one that waited behind it is next, and both are replaced.
    filled(real_cluster, "warm", 2)
    sandbox.kill()


def test_the_startup_command_runs_again_after_a_resume_and_in_a_replaced_pod(replica, api, real_cluster):
    put(replica, api, entry("again"))
    filled(real_cluster, "again", 1)
    sandbox = Sandbox.create("again", envs={"COLOUR": "green"}, timeout=300, **api)
    sandbox.pause()
    name = resource(real_cluster, sandbox)["metadata"]["name"]
    assert real_cluster.get(REPLICA_SETS, name)["spec"]["replicas"] == 0
    sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=300, **api)
    assert sandbox.commands.run("cat /tmp/started").stdout == "0\ngreen\n"
    lost = pod_of(real_cluster, name)
    real_cluster.delete("pod", lost["metadata"]["name"], wait=False)

    def started():
        found = resource(real_cluster, sandbox)
        other = found["status"].get("podInfo", {}).get("podUID") not in (None, lost["metadata"]["uid"])
        return other and condition(found, "StartupCommand").get("status") == "True"

    wait_until(started, 120, "the command in the next pod")
    assert run_in_next(sandbox, "cat /tmp/started; wc -l < /tmp/runs") == "0\ngreen\n1\n"
    assert limits(pod_of(real_cluster, name)) == {
        "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"},
    }
    sandbox.kill()


def test_an_empty_pool_is_a_cold_start(replica, api, real_cluster):
    put(replica, api, entry("empty"))
    filled(real_cluster, "empty", 1)
    made = [Sandbox.create("empty", envs={"COLOUR": "grey"}, timeout=300, **api) for _ in range(2)]
    pooled = ["agents.kruise.io/sandbox-pool" in resource(real_cluster, one)["metadata"]["labels"] for one in made]
    assert pooled[0] and len({one.sandbox_id for one in made}) == 2
    for one in made:
        assert one.commands.run("cat /tmp/started").stdout == "0\ngrey\n"
        one.kill()


def test_a_member_of_an_older_plan_is_not_handed_out(replica, api, real_cluster):
    put(replica, api, entry("plan", network={"allowInternetAccess": True}))
    filled(real_cluster, "plan", 1)
    [old] = members(real_cluster, "plan")
    put(replica, api, entry("plan", network={"allowInternetAccess": False}))
    sandbox = Sandbox.create("plan", timeout=300, **api)
    found = resource(real_cluster, sandbox)
    assert found["metadata"]["uid"] != old["metadata"]["uid"]
    label = "agents.kruise.io/allow-internet-access"
    assert pod_of(real_cluster, found["metadata"]["name"])["metadata"]["labels"][label] == "false"
    sandbox.kill()


def test_limits_that_no_member_can_get_spare_the_pool(replica, api, real_cluster):
    put(replica, api, entry("spared"))
    filled(real_cluster, "spared", 1)
    [waiting] = members(real_cluster, "spared")
    # Limits like these make the pod's quality of service another.
    body = {"template": "spared", "cpu": "100m", "memory": "64Mi"}
    status, made = call(replica, api["api_key"], "POST", "/api/v1/sandbox", body)
    assert status == 201, made
    [still] = members(real_cluster, "spared")
    assert still["metadata"]["uid"] == waiting["metadata"]["uid"]
    assert call(replica, api["api_key"], "DELETE", f"/api/v1/sandbox/{made['data']['id']}")[0] == 200


def test_a_startup_command_that_fails_leaves_nothing(replica, api, real_cluster):
    broken = entry("broken")
    broken["pool"]["startupCmd"] = ["sh", "-c", "echo no licence >&2; exit 3"]
    put(replica, api, broken)
    filled(real_cluster, "broken", 1)
    with pytest.raises(SandboxException, match="startupCmd.*exit status 3: no licence"):
        Sandbox.create("broken", timeout=300, **api)
    claimed = "agents.kruise.io/sandbox-claimed=true"
    entry_of = "agents.kruise.io/template-entry"

    def left():
        found = real_cluster.get(SANDBOXES, labels=claimed)["items"]
        return [one for one in found if one["metadata"]["annotations"].get(entry_of) == "broken"]

    wait_until(lambda: not left(), 60, "nothing half claimed")
    filled(real_cluster, "broken", 1)


def test_the_pods_own_reason_reaches_the_user(replica, api, real_cluster):
    missing = {"name": "missing", "image": "shoal.invalid/nothing:1", "description": "d"}
    put(replica, api, missing)
    with pytest.raises(SandboxException, match="Err(Image|ImageNever)|ImagePull") as told:
        Sandbox.create("missing", timeout=300, **api)
    assert "shoal.invalid/nothing:1" in str(told.value)
    entries = [one["metadata"]["annotations"].get("agents.kruise.io/template-entry") for one in real_cluster.get(SANDBOXES)["items"]]
    wait_until(lambda: "missing" not in [
        one["metadata"]["annotations"].get("agents.kruise.io/template-entry")
        for one in real_cluster.get(SANDBOXES)["items"]
    ], 60, f"nothing is left of {entries}")
    put(replica, api)
