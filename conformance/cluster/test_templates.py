"""Agent-Sandbox's templates in a cluster, on a real API server with a fake node: the ConfigMap, the blueprint, and one
ReplicaSet for each sandbox."""

from __future__ import annotations

import json

import pytest

from ..installation import wait_until
from . import manifests
from .conftest import operator_of
from .serving import Replica, first_key
from .test_kruise_claims import PLAIN, call
from .test_sdk import RUNTIME

MAP, ENTRIES, BLUEPRINT = "shoal-templates", "config-templates", "config-sandbox-template"
SANDBOXES, SETS, REPLICA_SETS = "sandboxes.agents.kruise.io", "sandboxsets.agents.kruise.io", "replicasets.apps"
TEMPLATES = "/api/v1/config/templates"
IMAGE = "example.org/code:1"


def entry(name: str, **fields) -> dict:
    return {"name": name, "image": IMAGE, "description": f"what {name} is for"} | fields


@pytest.fixture(scope="module")
def operator(cluster):
    yield from operator_of(cluster, "--runtime-image", RUNTIME)


@pytest.fixture(scope="module")
def replicas(operator, cluster):
    """Two replicas; the first one fills the empty ConfigMap from its file."""
    if cluster.find("configmaps", MAP, namespace=manifests.NAMESPACE):
        cluster.delete("configmap", MAP, namespace=manifests.NAMESPACE)
    file = cluster.directory / "first-templates.json"
    file.write_text(json.dumps([entry("first", metadata={"from": "the file"})]))
    started = [Replica(cluster, f"templates-{number}") for number in (1, 2)]
    started[0].start(f"templates.file={file}", "templates.default=")
    started[1].start()
    yield started
    for replica in started:
        replica.kill()
    cluster.delete("configmap", MAP, namespace=manifests.NAMESPACE)


@pytest.fixture(scope="module")
def key(replicas, cluster):
    return first_key(cluster)


def config_map(cluster) -> dict:
    return cluster.get("configmaps", MAP, namespace=manifests.NAMESPACE)


def write(cluster, **keys: str) -> None:
    cluster.patch("configmaps", MAP, {"data": keys}, namespace=manifests.NAMESPACE)


def shown(replica, key) -> dict:
    status, answer = call(replica, key, "GET", TEMPLATES)
    assert status == 200, answer
    return answer["data"]


def names(replica, key) -> list[str]:
    return [one["name"] for one in shown(replica, key)["templates"]]


def put(replicas, key, *entries: dict) -> None:
    """Replaces the catalogue, and waits until every replica has it."""
    status, answer = call(replicas[0], key, "POST", TEMPLATES, {"templates": list(entries)})
    assert status == 200, answer
    wanted = [one["name"] for one in entries]
    for replica in replicas:
        wait_until(lambda replica=replica: names(replica, key) == wanted, 60, "the new catalogue")


def create(replica, key, template: str, metadata: dict | None = None, **fields) -> dict:
    body = {"templateID": template, "timeout": 600, "metadata": PLAIN | (metadata or {})} | fields
    status, made = call(replica, key, "POST", "/sandboxes", body)
    assert status == 201, made
    return made


def resource(cluster, made: dict) -> dict:
    [found] = cluster.get(SANDBOXES, labels=f"agents.kruise.io/sandbox-id={made['sandboxID']}")["items"]
    return found


def pods(cluster, name: str) -> list[dict]:
    return cluster.get("pods", labels=f"agents.kruise.io/sandbox-name={name}")["items"]


def test_an_empty_config_map_is_filled_from_the_file(replicas, key, cluster):
    assert json.loads(config_map(cluster)["data"][ENTRIES])[0]["name"] == "first"
    for replica in replicas:
        wait_until(lambda replica=replica: names(replica, key) == ["first"], 60, "the entries of the file")
    listed = call(replicas[1], key, "GET", "/templates")[1]
    assert [one for one in listed if "first" in one["names"] or "first" in one["aliases"]], listed
    resolved = call(replicas[1], key, "GET", f"{TEMPLATES}/resolve?templateID=first")[1]["data"]
    assert resolved["kind"] == "entry" and {"field": "image", "value": IMAGE, "from": "template"} in resolved["values"]


def test_the_config_map_is_watched_and_written_back(replicas, key, cluster):
    write(cluster, **{ENTRIES: json.dumps([entry("by-kubectl")])})
    for replica in replicas:
        wait_until(lambda replica=replica: names(replica, key) == ["by-kubectl"], 60, "the edit")
    put(replicas, key, entry("by-api"))
    assert [one["name"] for one in json.loads(config_map(cluster)["data"][ENTRIES])] == ["by-api"]
    version = shown(replicas[1], key)["version"]
    stale = {"version": version - 1, "templates": [entry("late")]}
    assert call(replicas[1], key, "POST", TEMPLATES, stale)[0] == 409
    assert call(replicas[1], key, "POST", TEMPLATES, stale | {"version": version})[0] == 200


def test_a_config_map_that_cannot_be_read_leaves_the_last_good_one(replicas, key, cluster):
    put(replicas, key, entry("good"))
    for keys, said in [
        ({ENTRIES: "{no JSON"}, "no JSON list"),
        ({ENTRIES: json.dumps([entry("bad", user="root")])}, "number of a user"),
        ({ENTRIES: json.dumps([entry("good")]), BLUEPRINT: "kind: Pod"}, "renders no ReplicaSet"),
    ]:
        write(cluster, **keys)
        for replica in replicas:
            wait_until(lambda replica=replica: said in str(shown(replica, key).get("lastError")), 60, said)
            assert names(replica, key) == ["good"]
    assert create(replicas[0], key, "good")["templateID"]
    write(cluster, **{BLUEPRINT: ""})
    for replica in replicas:
        wait_until(lambda replica=replica: not shown(replica, key).get("lastError"), 60, "a good one")


def test_a_sandbox_is_one_replica_set(replicas, key, cluster):
    put(replicas, key, entry("code", port=8080, metadata={"from": "the entry", "both": "entry"}, args=["--serve"]))
    made = create(replicas[0], key, "code", {"both": "request"})
    found = resource(cluster, made)
    name = found["metadata"]["name"]
    kept = cluster.get(REPLICA_SETS, name)
    assert kept["spec"]["replicas"] == 1
    assert kept["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    [pod] = pods(cluster, name)
    assert pod["metadata"]["ownerReferences"][0]["uid"] == kept["metadata"]["uid"]
    for labels in (kept["metadata"]["labels"], pod["metadata"]["labels"]):
        expected = {"sbx-template": "code", "sbx-pool": "false", "sbx-id": made["sandboxID"], "owner": "agent-sandbox", "sandbox": name}
        assert labels.items() >= expected.items() and labels["sbx-user"]
    container = pod["spec"]["containers"][0]
    assert (container["image"], container["args"], container["name"]) == (IMAGE, ["--serve"], "sandbox")
    assert "command" not in container and container["startupProbe"]["tcpSocket"]["port"] == 8080
    seen = call(replicas[1], key, "GET", f"/sandboxes/{made['sandboxID']}")[1]
    assert {key: value for key, value in seen["metadata"].items() if not key.startswith("e2b.")} == {
        "from": "the entry", "both": "request",
    }
    assert seen["templateID"] == "code" and seen["cpuCount"] == 1
    assert call(replicas[1], key, "DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204
    wait_until(lambda: not cluster.find(REPLICA_SETS, name) and not pods(cluster, name), 60, "nothing is left")


def test_a_lost_pod_is_replaced_by_the_same(replicas, key, cluster):
    put(replicas, key, entry("lost", env={"WHERE": "before"}))
    made = create(replicas[0], key, "lost")
    name = resource(cluster, made)["metadata"]["name"]
    [before] = pods(cluster, name)
    # New sandboxes differ; this one stays as it is.
    put(replicas, key, entry("lost", env={"WHERE": "after"}))
    cluster.delete("pod", before["metadata"]["name"], wait=False)

    def replaced():
        found = [one for one in pods(cluster, name) if one["metadata"]["uid"] != before["metadata"]["uid"]]
        status = resource(cluster, made)["status"]
        known = status.get("podInfo", {}).get("podUID")
        return found[0] if found and known == found[0]["metadata"]["uid"] else None

    after = wait_until(replaced, 60, "another pod")
    assert after["spec"]["containers"][0]["env"] == before["spec"]["containers"][0]["env"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    wait_until(lambda: call(replicas[0], key, "GET", f"/sandboxes/{made['sandboxID']}")[1]["state"] == "running", 60, "running")


def test_a_pause_is_a_replica_set_of_none(replicas, key, cluster):
    put(replicas, key, entry("paused"))
    made = create(replicas[0], key, "paused")
    path = f"/sandboxes/{made['sandboxID']}"
    name = resource(cluster, made)["metadata"]["name"]
    assert call(replicas[1], key, "POST", f"{path}/pause")[0] == 204
    assert cluster.get(REPLICA_SETS, name)["spec"]["replicas"] == 0 and pods(cluster, name) == []
    wait_until(lambda: call(replicas[0], key, "GET", path)[1]["state"] == "paused", 60, "the other replica sees the pause")
    status, answer = call(replicas[0], key, "POST", f"{path}/connect", {"timeout": 300})
    assert status in (200, 201), answer
    assert cluster.get(REPLICA_SETS, name)["spec"]["replicas"] == 1 and len(pods(cluster, name)) == 1
    # A pause whose pod is lost meanwhile ends, too.
    cluster.delete("pod", pods(cluster, name)[0]["metadata"]["name"], wait=False)
    assert call(replicas[1], key, "POST", f"{path}/pause")[0] == 204
    assert call(replicas[1], key, "DELETE", path)[0] == 204
    wait_until(lambda: not cluster.find(SANDBOXES, name), 60, "it is gone")


def test_a_size_that_somebody_else_writes_is_corrected(replicas, key, cluster):
    put(replicas, key, entry("scaled"))
    made = create(replicas[0], key, "scaled")
    name = resource(cluster, made)["metadata"]["name"]
    cluster.kubectl("scale", REPLICA_SETS, name, "--replicas=0")
    wait_until(lambda: cluster.get(REPLICA_SETS, name)["spec"]["replicas"] == 1, 60, "one again")
    wait_until(lambda: call(replicas[0], key, "GET", f"/sandboxes/{made['sandboxID']}")[1]["state"] == "running", 60, "running")
    cluster.delete(REPLICA_SETS, name)
    wait_until(lambda: cluster.find(REPLICA_SETS, name), 60, "made again")


def test_an_entry_can_be_a_sandbox_set(replicas, key, cluster):
    put(replicas, key, entry("plain", substrate="SandboxSet", pool={"size": 1}))
    wait_until(lambda: (cluster.find(SETS, "plain") or {}).get("status", {}).get("availableReplicas") == 1, 60, "a member")
    made = create(replicas[0], key, "plain")
    name = resource(cluster, made)["metadata"]["name"]
    assert cluster.find(REPLICA_SETS, name) is None
    assert cluster.get("pods", name)["metadata"]["labels"]["sbx-template"] == "plain"


def test_names_find_dynamic_entries_and_images(replicas, key, cluster):
    pattern = r"faas-code-(?P<name>.+)\.(?P<version>.+)$"
    dynamic = entry("faas-code", type="dynamic", pattern=pattern, image="example.org/<name>:<version>")
    put(replicas, key, dynamic)

    def image(made: dict) -> str:
        return resource(cluster, made)["spec"]["template"]["spec"]["containers"][0]["image"]

    assert image(create(replicas[0], key, "faas-code-python.3.11")) == "example.org/python:3.11"
    status, told = call(replicas[0], key, "POST", "/sandboxes", {"templateID": "faas-code-a/b.3", "metadata": PLAIN})
    assert status in (400, 404), told
    assert call(replicas[0], key, "POST", "/sandboxes", {"templateID": "nothing", "metadata": PLAIN})[0] == 404
    body = {"image": "example.org/own:2", "metadata": PLAIN}
    status, made = call(replicas[0], key, "POST", "/api/v1/sandbox", body)
    assert status == 201 and made["data"]["template"] == "custom", made
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "users"}})
    theirs = call(replicas[0], key, "POST", "/api/v1/keys", {"team": "users", "name": "theirs"})[1]["data"]["secret"]
    assert call(replicas[0], theirs, "POST", "/api/v1/sandbox", body)[0] == 403
    # Entries are for all teams, each in its namespace.
    status, made = call(replicas[0], theirs, "POST", "/sandboxes", {"templateID": "faas-code-go.1.21", "metadata": PLAIN})
    assert status == 201, made
    selected = f"agents.kruise.io/sandbox-id={made['sandboxID']}"
    assert len(cluster.get(REPLICA_SETS, namespace="users", labels=f"sbx-id={made['sandboxID']}")["items"]) == 1
    assert len(cluster.get(SANDBOXES, namespace="users", labels=selected)["items"]) == 1


def test_what_steers_is_reserved(replicas, key, cluster):
    put(replicas, key, entry("reserved"))
    for metadata in (
        {"label:sbx-user": "other"}, {"label:sbx-pool": "true"}, {"agents.kruise.io/kept-by": "x"},
        {"label:agents.kruise.io/owner": "x"}, {"agents.kruise.io/restore-from": "x"},
        {"agents.kruise.io/startup-command": '["sh"]'}, {"sandbox.agents.kruise.io/hash-immutable-part": "x"},
        {"shoal.dev/restore-from": "x"}, {"sbx-user": "other"},
    ):
        status, told = call(replicas[0], key, "POST", "/sandboxes", {"templateID": "reserved", "metadata": PLAIN | metadata})
        assert status == 400 and next(iter(metadata)).removeprefix("label:") in str(told), (metadata, told)
    for bad in ({"sbx-user": "x"}, {"agents.kruise.io/owner": "x"}):
        status, told = call(replicas[0], key, "POST", TEMPLATES, [entry("reserved", metadata=bad)])
        assert status == 400 and "reserved" in str(told), told
    assert names(replicas[0], key) == ["reserved"]
    assert cluster.get(SANDBOXES, labels="sbx-user=other")["items"] == []


OWN = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {annotations: {cost-centre: "42"}}
spec:
  template:
    spec:
      priorityClassName: ""
      tolerations: [{key: agents, operator: Exists}]
      containers:
        - name: sandbox
          resources: {limits: {cpu: 300m, memory: 300Mi}}
"""


def test_the_blueprint_is_checked_by_rendering_it(replicas, key, cluster):
    path = "/api/v1/config/blueprint"
    put(replicas, key, entry("own"))
    assert call(replicas[0], key, "GET", path)[1]["data"]["own"] is False
    made_before = create(replicas[0], key, "own")
    for bad, said in (
        ("kind: Pod", "renders no ReplicaSet"), ("a: [", "no YAML"),
        (OWN.replace("tolerations:", "restartPolicy: Never\n      tolerations:"), "restartPolicy"),
        (OWN.replace("cost-centre", "agents.kruise.io/kept-by"), "reserved"),
        (OWN.replace("name: sandbox", "name: {{.Sandbox.Name}}"), "placeholders"),
    ):
        status, told = call(replicas[0], key, "POST", path, {"blueprint": bad})
        assert status == 400 and said in str(told), told
    status, answer = call(replicas[0], key, "POST", path, {"blueprint": OWN})
    assert status == 200 and answer["data"] == {"blueprint": OWN, "own": True}, answer
    assert config_map(cluster)["data"][BLUEPRINT] == OWN
    wait_until(lambda: call(replicas[1], key, "GET", path)[1]["data"]["own"], 60, "the other replica has it")
    made = create(replicas[1], key, "own")
    [pod] = pods(cluster, resource(cluster, made)["metadata"]["name"])
    assert pod["metadata"]["annotations"]["cost-centre"] == "42"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "300m", "memory": "300Mi"}
    assert "cost-centre" not in call(replicas[0], key, "GET", f"/sandboxes/{made['sandboxID']}")[1]["metadata"]
    [old] = pods(cluster, resource(cluster, made_before)["metadata"]["name"])
    assert "cost-centre" not in old["metadata"]["annotations"]
    theirs = call(replicas[0], key, "POST", "/api/v1/keys", {"name": "tenant"})[1]["data"]["secret"]
    assert call(replicas[0], theirs, "POST", path, {"blueprint": ""})[0] == 403
    assert call(replicas[0], key, "POST", path, {"blueprint": ""})[1]["data"]["own"] is False


def test_a_request_has_its_own_limits(replicas, key, cluster):
    put(replicas, key, entry("sized", resources={"cpu": "0.2", "memory": "200Mi", "cpuLimit": "1", "memoryLimit": "1Gi"}))
    body = {"template": "sized", "cpu": "500m", "metadata": PLAIN}
    status, made = call(replicas[0], key, "POST", "/api/v1/sandbox", body)
    assert status == 201, made
    [found] = cluster.get(SANDBOXES, labels=f"agents.kruise.io/sandbox-id={made['data']['id']}")["items"]
    resources = found["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "0.2", "memory": "200Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}


def test_a_pool_whose_name_is_taken_is_refused(replicas, key, cluster):
    cluster.apply({
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": "taken"},
        "spec": {"replicas": 0, "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
    })

    def refused():
        status, told = call(replicas[0], key, "POST", TEMPLATES, [entry("taken", pool={"size": 1})])
        return told if status == 409 else None

    assert "SandboxSet default/taken" in str(wait_until(refused, 60, "the refusal"))
    status, told = call(replicas[0], key, "POST", f"{TEMPLATES}?dryRun=true", [entry("taken", pool={"size": 1})])
    assert (status, "SandboxSet default/taken" in str(told)) == (409, True), told
    status, told = call(replicas[0], key, "POST", f"{TEMPLATES}?dryRun=true", [entry("only-checked")])
    assert status == 200, told
    status, told = call(replicas[0], key, "GET", TEMPLATES)
    assert "only-checked" not in str(told)
    assert cluster.get(SETS, "taken")["spec"]["replicas"] == 0


def test_a_pool_has_one_writer_of_its_size(replicas, key, cluster):
    def sizes() -> dict:
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in cluster.get(SETS)["items"]}

    def available(name: str) -> int:
        return (cluster.find(SETS, name) or {}).get("status", {}).get("availableReplicas", 0)

    put(replicas, key, entry("sizes", pool={"size": 2}), entry("goes", pool={"size": 1}))
    wait_until(lambda: available("sizes") == 2 and available("goes") == 1, 60, "full pools")
    cluster.kubectl("scale", SETS, "sizes", "--replicas=3")
    wait_until(lambda: available("sizes") == 3, 60, "the autoscaler's size")
    put(replicas, key, entry("sizes", pool={"size": 2}, description="only its words change"))
    wait_until(lambda: "goes" not in sizes(), 60, "the other pool ends")
    assert sizes()["sizes"] == 3
    put(replicas, key, entry("sizes", pool={"size": 1}))
    wait_until(lambda: sizes().get("sizes") == 1 and available("sizes") == 1, 60, "the entry's new size")
    listed = call(replicas[0], key, "GET", "/api/v1/pool")[1]["data"]
    assert [one["size"] for one in listed if one["template"] == "sizes"] == [1]
    put(replicas, key)
    wait_until(lambda: not cluster.get(SANDBOXES, labels="agents.kruise.io/sandbox-pool=sizes")["items"], 60, "no member")
