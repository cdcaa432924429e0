"""Claims of E2B's API from pools on fake nodes: replicas compete, and each sandbox has one user."""

from __future__ import annotations

import concurrent.futures
import datetime
import http.server
import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from ..installation import wait_until
from . import manifests
from .conftest import replicas_of
from .proxy import Faults, Proxy
from .serving import ACCOUNT, Replica, first_key
from .test_sdk import available, members, sandbox_set

#: The label of pods that tells whether they reach the internet.
CLOSED = "agents.kruise.io/allow-internet-access"
#: The daemon does not run on fake nodes.
PLAIN = {"e2b.agents.kruise.io/skip-init-runtime": "true"}


@pytest.fixture(scope="module")
def replicas(operator, cluster):
    yield from replicas_of(cluster, "claims", 3)


@pytest.fixture(scope="module")
def key(replicas, cluster):
    return first_key(cluster)


def call(replica: Replica, key: str, method: str, path: str, body: dict | None = None) -> tuple[int, object]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(replica.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def create(replica: Replica, key: str, template: str, **request: object) -> dict:
    """A new sandbox. Its set may have been applied a moment ago, and the replica's watch not have shown it yet."""
    status, answer = call(replica, key, "POST", "/sandboxes", {"templateID": template, "metadata": PLAIN} | request)
    assert status == 201, answer
    return answer


def plain_set(name: str, replicas: int) -> dict:
    made = sandbox_set(name, replicas)
    del made["spec"]["runtimes"]
    return made


def resources(cluster, name: str) -> dict[str, dict]:
    """The sandboxes of a set by the ids that their claims have written."""
    listed = cluster.get("sandboxes.agents.kruise.io", labels=f"agents.kruise.io/sandbox-pool={name}")
    labels = "agents.kruise.io/sandbox-id"
    return {one["metadata"]["labels"][labels]: one for one in listed["items"] if labels in one["metadata"]["labels"]}


def known_members(replica: Replica, key: str, name: str) -> int:
    """How many members of a pool a replica could hand out."""
    listed = call(replica, key, "GET", "/api/v1/pool")[1]["data"]
    return sum(one["ready"] for one in listed if one["template"] == name)


def test_replicas_that_compete_claim_each_sandbox_once(replicas, key, cluster):
    size = 24
    cluster.apply(plain_set("busy", size))
    wait_until(lambda: available(cluster, "busy") >= size, 90, "a full pool")
    # One whose watch is behind would make a new sandbox in place of a member that it has not seen.
    for replica in replicas:
        wait_until(lambda replica=replica: known_members(replica, key, "busy") == size, 60, "every replica knows the pool")
    waiting = {one["metadata"]["uid"] for one in members(cluster, "busy")}

    def create_one(number: int) -> str:
        body = {"templateID": "busy", "timeout": 600, "metadata": PLAIN | {"number": str(number)}}
        status, answer = call(replicas[number % len(replicas)], key, "POST", "/sandboxes", body)
        assert status == 201, answer
        return answer["sandboxID"]

    with concurrent.futures.ThreadPoolExecutor(size) as at_once:
        ids = list(at_once.map(create_one, range(size)))
    assert len(set(ids)) == size
    claimed = resources(cluster, "busy")
    assert set(ids) <= set(claimed)
    numbers = [claimed[one]["metadata"]["annotations"]["number"] for one in ids]
    assert numbers == [str(number) for number in range(size)], "each has the metadata of its own create"
    uids = [claimed[one]["metadata"]["uid"] for one in ids]
    assert len(set(uids)) == size and len(waiting & set(uids)) >= size - 2, "nearly all waited in the pool"
    wait_until(lambda: available(cluster, "busy") >= size, 90, "the pool is full again")
    # Each replica has counted what it was asked for.
    seen = [call(replica, key, "GET", "/api/v1/pool/history/busy")[1]["data"][-1] for replica in replicas]
    assert sum(one["claimed"] + one["misses"] for one in seen) == size, seen
    assert [one["size"] for one in seen] == [size] * len(replicas)
    assert call(replicas[0], key, "GET", "/api/v1/pool/history/none")[0] == 404


def objects(replica: Replica, key: str, sandbox: str) -> dict[str, list[str]]:
    """The objects behind a sandbox, by their part in it."""
    status, answer = call(replica, key, "GET", f"/api/v1/sandbox/{sandbox}/objects")
    assert status == 200, answer
    found: dict[str, list[str]] = {}
    for one in answer["data"]["objects"]:
        found.setdefault(one["role"], []).append(f"{one['kind']} {one['name']}")
    return found


def test_the_objects_behind_a_sandbox_are_told(replicas, key, cluster):
    cluster.apply(plain_set("backed", 1))
    made = create(replicas[0], key, "backed")["sandboxID"]
    resource = resources(cluster, "backed")[made]
    name = resource["metadata"]["name"]
    pod = cluster.get("pods", name)
    assert objects(replicas[0], key, made) == {
        "record": [f"Sandbox {name}"], "owner": ["SandboxSet backed"],
        "runs": [f"Pod {name}"], "node": [f"Node {pod['spec']['nodeName']}"],
    }
    # Nodes are no business of a team.
    status, minted = call(replicas[0], key, "POST", "/api/v1/keys", {"team": "default", "name": "plain"})
    assert status in (200, 201), minted
    plain = minted["data"]["secret"]
    wait_until(lambda: call(replicas[0], plain, "GET", "/sandboxes")[0] == 200, 60, "the key is known")
    assert "node" not in objects(replicas[0], plain, made) and "runs" in objects(replicas[0], plain, made)
    assert call(replicas[0], key, "GET", "/api/v1/sandbox/none/objects")[0] == 404


def test_a_replica_knows_what_another_has_just_made(replicas, key, cluster):
    cluster.apply(plain_set("shared", 1))
    first, second, third = replicas
    for round in range(5):
        made = create(first, key, "shared")
        assert call(second, key, "GET", f"/sandboxes/{made['sandboxID']}")[0] == 200
        assert call(third, key, "DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204
        wait_until(lambda: call(first, key, "GET", f"/sandboxes/{made['sandboxID']}")[0] == 404, 60, "it is gone")


def test_an_id_cannot_be_taken_from_another_namespace(replicas, key, cluster):
    cluster.apply(plain_set("owned", 1), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "thief"}})
    made = create(replicas[0], key, "owned")
    labels = {"agents.kruise.io/sandbox-id": made["sandboxID"], "agents.kruise.io/sandbox-claimed": "true"}
    cluster.apply({
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox",
        "metadata": {"name": "fake", "namespace": "thief", "labels": labels},
        "spec": {"template": plain_set("x", 0)["spec"]["template"]},
    })

    def thief_runs():
        seen = cluster.get("sandboxes.agents.kruise.io", "fake", namespace="thief")
        return seen.get("status", {}).get("phase") == "Running"

    wait_until(thief_runs, 60, "the other sandbox runs")
    for replica in replicas:
        status, seen = call(replica, key, "GET", f"/sandboxes/{made['sandboxID']}")
        assert status == 200 and seen["metadata"]["e2b.agents.kruise.io/sandbox-resource"].startswith("default/")


def test_a_set_is_found_before_the_watch_shows_it(operator, key, cluster):
    """`kubectl apply` has ended, and the watch of the replica is late: it begins when the test ends."""
    proxy = Proxy(cluster, seed=1, user=f"system:serviceaccount:{manifests.NAMESPACE}:{ACCOUNT}")
    proxy.inject(Faults(held=("WATCH sandboxsets",)))
    late = Replica(cluster, "claims-late", proxy.configuration)
    late.start()
    wait_until(lambda: proxy.injected["held"], 60, "a watch without events")
    try:
        # Its listing of all sets has ended, so it cannot know this one.
        cluster.apply(plain_set("just-applied", 0))
        assert "just-applied" not in str(call(late, key, "GET", "/templates"))
        for name in ("never-applied", "just_applied", "elsewhere/just-applied"):
            status, refused = call(late, key, "POST", "/sandboxes", {"templateID": name, "metadata": PLAIN})
            assert status == 404 and name in refused["message"], refused
        made = create(late, key, "Just-Applied:default")
        assert list(resources(cluster, "just-applied")) == [made["sandboxID"]]
    finally:
        late.kill()
        proxy.close()


def test_keys_act_in_their_own_namespace(replicas, key, cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    status, made = call(replicas[0], key, "POST", "/api/v1/keys", {"team": "other", "name": "theirs"})
    assert status in (200, 201), made
    theirs = made["data"]["secret"]
    for replica in replicas:
        knows = lambda replica=replica: call(replica, theirs, "GET", "/v2/sandboxes")[0] == 200  # noqa: E731
        wait_until(knows, 60, "every replica knows the key")
    cluster.apply(plain_set("private", 0))
    sandbox = create(replicas[0], key, "private")
    for replica in replicas:
        assert call(replica, theirs, "GET", f"/sandboxes/{sandbox['sandboxID']}")[0] == 404
        assert call(replica, theirs, "DELETE", f"/sandboxes/{sandbox['sandboxID']}")[0] in (204, 404)
        assert call(replica, theirs, "POST", "/sandboxes", {"templateID": "private"})[0] == 404
        assert call(replica, theirs, "GET", "/v2/sandboxes")[1] == []
    assert call(replicas[0], key, "GET", f"/sandboxes/{sandbox['sandboxID']}")[0] == 200
    status, refused = call(replicas[0], key, "POST", "/api/v1/keys", {"team": "nowhere", "name": "x"})
    assert status == 400 and "nowhere" in str(refused), refused


def test_a_sandbox_is_found_by_each_of_its_names(replicas, key, cluster):
    cluster.apply(plain_set("named", 1))
    wait_until(lambda: available(cluster, "named") == 1, 90, "a full pool")
    for own in (None, "of-the-user"):
        asked = {"template": "named", "metadata": PLAIN} | ({"name": own} if own else {})
        status, made = call(replicas[0], key, "POST", "/api/v1/sandbox", asked)
        assert status == 201, made
        identity = made["data"]["id"]
        assert made["data"]["name"] == own or not own
        resource = resources(cluster, "named")[identity]["metadata"]["name"]
        for name in (identity, made["data"]["name"], resource):
            status, found = call(replicas[0], key, "GET", f"/api/v1/sandbox/{name}")
            assert status == 200 and found["data"]["id"] == identity, (name, found)
        assert call(replicas[0], key, "DELETE", f"/api/v1/sandbox/{made['data']['name']}")[0] == 200
        wait_until(lambda: identity not in resources(cluster, "named"), 60, "its end")  # noqa: B023
        assert call(replicas[0], key, "GET", f"/api/v1/sandbox/{made['data']['name']}")[0] == 404


def test_a_sandbox_with_a_size_of_its_own_has_a_pod_of_its_own(replicas, key, cluster):
    cluster.apply(plain_set("sized", 1))
    wait_until(lambda: available(cluster, "sized") == 1, 90, "a full pool")
    [waiting] = members(cluster, "sized")
    asked = {"template": "sized", "cpu": "250m", "memory": "96Mi", "metadata": PLAIN}
    status, made = call(replicas[0], key, "POST", "/api/v1/sandbox", asked)
    assert status == 201, made
    made = made["data"]
    assert (made["cpu_limit"], made["memory_limit"]) == ("250m", "96Mi"), made
    listed = cluster.get("sandboxes.agents.kruise.io", labels="agents.kruise.io/sandbox-template=sized")["items"]
    [own] = [one for one in listed if one["metadata"]["labels"]["agents.kruise.io/sandbox-claimed"] == "true"]
    [container] = cluster.get("pods", own["metadata"]["name"])["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "250m", "memory": "96Mi"}
    # It returns to no pool, and the pool waits as before.
    assert "agents.kruise.io/sandbox-pool" not in own["metadata"]["labels"]
    assert [one["metadata"]["uid"] for one in members(cluster, "sized")] == [waiting["metadata"]["uid"]]
    assert call(replicas[0], key, "DELETE", f"/api/v1/sandbox/{made['name']}")[0] == 200
    only_pooled = asked | {"metadata": PLAIN | {"e2b.agents.kruise.io/create-on-no-stock": "false"}}
    status, refused = call(replicas[0], key, "POST", "/api/v1/sandbox", only_pooled)
    assert status == 400 and "no pool" in json.dumps(refused), refused


def test_the_internet_is_closed_where_a_user_asks(replicas, key, cluster):
    cluster.apply(plain_set("closed", 2))
    wait_until(lambda: available(cluster, "closed") >= 2, 90, "a full pool")
    policy = ("networkpolicies.networking.k8s.io", "shoal-no-internet")
    closes = {"podSelector": {"matchLabels": {CLOSED: "false"}}, "policyTypes": ["Egress"]}
    first = wait_until(lambda: cluster.find(*policy), 60, "the policy")
    assert first["spec"] == closes

    def label(allowed: bool) -> str:
        made = create(replicas[0], key, "closed", timeout=600, allow_internet_access=allowed)
        pod = cluster.get("pod", resources(cluster, "closed")[made["sandboxID"]]["metadata"]["name"])
        return pod["metadata"]["labels"].get(CLOSED)

    # The label is there when the create is answered.
    assert label(False) == "false"
    assert label(True) in ("true", None)
    # Somebody opens it, or deletes it.
    cluster.patch(*policy, {"spec": {"egress": [{}]}})
    wait_until(lambda: cluster.get(*policy)["spec"] == closes, 60, "corrected")
    cluster.delete(*policy)
    wait_until(lambda: (cluster.find(*policy) or first)["metadata"]["uid"] != first["metadata"]["uid"], 60, "made again")
    assert label(False) == "false"


def test_a_template_that_closes_the_internet_keeps_it_closed(replicas, key, cluster):
    made = plain_set("shut", 1)
    made["spec"]["template"]["metadata"] = {"labels": {CLOSED: "false"}}
    cluster.apply(made)
    wait_until(lambda: available(cluster, "shut") >= 1, 90, "a full pool")
    created = create(replicas[0], key, "shut", allow_internet_access=True)
    taken = resources(cluster, "shut")[created["sandboxID"]]
    assert taken["spec"]["template"]["metadata"]["labels"][CLOSED] == "false"


def test_a_create_is_refused_where_the_internet_cannot_be_closed(replicas, key, cluster):
    """Somebody else's policy has the name, and the operator does not touch it."""
    foreign = {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "shoal-no-internet", "namespace": "foreign"}, "spec": {"podSelector": {}},
    }
    pool = plain_set("anything", 1)
    pool["metadata"]["namespace"] = "foreign"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foreign"}}, foreign, pool)
    status, made = call(replicas[0], key, "POST", "/api/v1/keys", {"team": "foreign", "name": "theirs"})
    assert status in (200, 201), made
    theirs = made["data"]["secret"]
    body = {"templateID": "anything", "metadata": PLAIN, "allow_internet_access": False}
    refused = wait_until(lambda: (seen := call(replicas[0], theirs, "POST", "/sandboxes", body))[0] == 501 and seen, 60, "501")
    assert "shoal-no-internet" in str(refused)
    assert call(replicas[0], theirs, "GET", "/v2/sandboxes")[1] == []
    status, made = call(replicas[0], theirs, "POST", "/sandboxes", body | {"allow_internet_access": True})
    assert status == 201, made
    assert cluster.get("networkpolicies.networking.k8s.io", "shoal-no-internet", namespace="foreign")["spec"]["policyTypes"]
    assert call(replicas[0], theirs, "DELETE", f"/sandboxes/{made['sandboxID']}")[0] == 204
    cluster.delete("namespace", "foreign", wait=False)


def repeated(replica: Replica, key: str, name: str, template: str, **request: object) -> tuple[int, dict]:
    """A create with an idempotency key."""
    body = {"templateID": template, "metadata": PLAIN, "timeout": 600} | request
    headers = {"X-API-Key": key, "Content-Type": "application/json", "Idempotency-Key": name}
    asked = urllib.request.Request(f"{replica.url}/sandboxes", json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_a_create_that_is_repeated_makes_one_sandbox(replicas, key, cluster):
    cluster.apply(plain_set("once", 0))
    create(replicas[0], key, "once")
    for replica in replicas:
        wait_until(lambda replica=replica: call(replica, key, "GET", "/templates/once")[0] == 200, 60, "the template")
    with concurrent.futures.ThreadPoolExecutor(9) as at_once:
        answers = list(at_once.map(lambda number: repeated(replicas[number % 3], key, "first", "once"), range(9)))
    assert [status for status, _ in answers] == [201] * 9, answers
    (made,) = {answer["sandboxID"] for _, answer in answers}
    assert len({answer["envdAccessToken"] for _, answer in answers if "envdAccessToken" in answer}) <= 1
    # Another key is another sandbox, and another request with the key is a mistake.
    status, other = repeated(replicas[1], key, "second", "once")
    assert status == 201 and other["sandboxID"] != made
    status, refused = repeated(replicas[2], key, "first", "once", metadata=PLAIN | {"other": "x"})
    assert status == 422, refused
    # Nothing is made again while the first one is there.
    assert len(resources(cluster, "once")) == 3
    assert call(replicas[0], key, "DELETE", f"/sandboxes/{made}")[0] == 204
    again = wait_until(lambda: (seen := repeated(replicas[1], key, "first", "once"))[0] == 201 and seen[1], 60, "another one")
    assert again["sandboxID"] != made


def test_the_time_of_a_resumed_sandbox_begins_when_it_is_ready(replicas, key, cluster):
    cluster.apply(plain_set("rests", 1))
    made = create(replicas[0], key, "rests", timeout=600)["sandboxID"]
    name = resources(cluster, "rests")[made]["metadata"]["name"]
    assert call(replicas[0], key, "POST", f"/sandboxes/{made}/pause", {})[0] == 204
    # Its next pod is held.
    hold = {"spec": {"template": {"metadata": {"annotations": {"fake-node/hold": "true"}}}}}
    cluster.patch("sandboxes.agents.kruise.io", name, hold)
    end = lambda: datetime.datetime.fromisoformat(  # noqa: E731
        cluster.get("sandboxes.agents.kruise.io", name)["spec"]["shutdownTime"].replace("Z", "+00:00")
    )
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        answer = other.submit(call, replicas[0], key, "POST", f"/sandboxes/{made}/connect", {"timeout": 400})
        wait_until(lambda: cluster.find("pod", name), 60, "a pod")
        early = end()
        later = early + datetime.timedelta(seconds=3)
        whole = datetime.timedelta(seconds=400)
        wait_until(lambda: datetime.datetime.now(datetime.timezone.utc) + whole > later, 60, "three seconds of waiting")
        assert not answer.done()
        cluster.kubectl("annotate", "pod", name, "fake-node/hold-")
        assert answer.result()[0] == 201
    assert end() >= later


class Answer(http.server.BaseHTTPRequestHandler):
    """The listeners of a node."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


def own_address() -> str:
    """An address of this machine in its network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent.
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def report(cluster, kind: str, name: str, status: dict) -> None:
    cluster.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def test_a_sandbox_at_the_address_of_a_node_is_not_reached(replicas, key, operator, cluster):
    """A user who may write the status of a sandbox could name a node there."""
    cluster.apply(plain_set("forged", 1))
    made = create(replicas[0], key, "forged", timeout=600)["sandboxID"]
    name = resources(cluster, "forged")[made]["metadata"]["name"]
    address = own_address()
    server = http.server.ThreadingHTTPServer((address, 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def status(replica: Replica) -> int:
        headers = {"e2b-sandbox-id": made, "e2b-sandbox-port": str(server.server_address[1])}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{replica.url}/", headers=headers), timeout=30) as reached:
                return reached.status
        except urllib.error.HTTPError as refused:
            return refused.code

    # It would write the address of the pod again.
    operator.stop()
    knows = Replica(cluster, "claims-nodes")
    try:
        report(cluster, "sandboxes.agents.kruise.io", name, {"sandboxIp": address})
        wait_until(lambda: status(replicas[0]) == 200, 60, "a replica that does not know the node")
        node = cluster.get("nodes")["items"][0]["metadata"]["name"]
        report(cluster, "nodes", node, {"addresses": [{"type": "InternalIP", "address": address}]})
        knows.start()
        wait_until(lambda: call(knows, key, "GET", f"/sandboxes/{made}")[0] == 200, 60, "the sandbox")
        assert status(knows) != 200
        # The others look once a minute.
        wait_until(lambda: status(replicas[0]) != 200, 180, "the other replicas know the node")
    finally:
        knows.kill()
        server.shutdown()
        operator.start()
