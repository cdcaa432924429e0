"""Checkpoints of real pods: `shoal node` saves them on a real node, and `shoal-runsc` restores pods from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ..installation import wait_until
from . import manifests
from .conftest import operator_of
from .images import RUNTIME, SHELL
from .test_install import imported  # noqa: F401
from .test_kruise_checkpoint import CHECKPOINTS, checkpoint
from .test_kruise_sandbox import KIND, in_phase, wait_for

STORE = "/var/lib/shoal/checkpoints"
NODE_NAMESPACE = "shoal-node"
#: The finalizer by which files go before their checkpoint.
FILES = "shoal.dev/checkpoint-files"
#: The Sandbox of the other group.
COMMUNITY = "sandboxes.v1beta1.agents.x-k8s.io"
#: Settings of the agent under test.
VALUES = ("--set", "node.enabled=true,node.storeSize=300Mi,node.namespaceShare=50,definitions.install=false")

#: Writes a number that it drew when it began, and counts. Only a restored process continues with its number.
COUNT = (
    "mkdir -p /data; own=$(head -c 8 /dev/urandom | md5sum | cut -c1-16); i=0; "
    # Two programs start each time, which is work for gVisor: twenty clones that count without a pause use up the machine.
    "while true; do i=$((i+1)); echo $own $i > /data/next; mv /data/next /data/count; sleep 1; done"
)


@pytest.fixture(scope="module")
def operator(real_cluster):
    yield from operator_of(real_cluster)


@pytest.fixture(scope="module")
def node(operator, imported, real_cluster):
    yield from agent_of(real_cluster, *VALUES)


def agent_of(real_cluster, *values: str):
    """The agent, from the chart, on the real node."""
    text = manifests.rendered(*values)
    chart = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    own = [one for one in chart if one["metadata"]["labels"]["app.kubernetes.io/name"] == "shoal-node"]
    of_peers = {"NetworkPolicy", "Role", "RoleBinding"} if "node.peers.enabled=true" in ",".join(values) else set()
    assert {one["kind"] for one in own} == of_peers | {
        "Namespace", "ServiceAccount", "RuntimeClass", "DaemonSet", "ClusterRole", "ClusterRoleBinding",
    }
    real_cluster.apply(*own)
    agent_ready(real_cluster)
    yield real_cluster.node
    for kind in ("sandboxsets.agents.kruise.io", KIND, COMMUNITY, CHECKPOINTS):
        real_cluster.delete_all(kind)
    # With the last checkpoint, the last file goes; a copy of another node's within half a minute.
    wait_until(lambda: real_cluster.node.run("find", STORE, "-type", "f") == "", 90, "no file of a checkpoint")
    # The directories that stand in for the daemon's volume in pods of clones go with these.
    directories = ("find", "/var/lib/containerd/io.containerd.runtime.v2.task", "-name", "shoal-runtime")
    wait_until(lambda: real_cluster.node.run(*directories) == "", 90, "no volume of a daemon")
    for one in reversed(own):
        metadata = one["metadata"]
        real_cluster.delete(one["kind"].lower(), metadata["name"], namespace=metadata.get("namespace", "default"))


def agent_ready(cluster) -> None:
    """Waits until the agent runs."""
    within = ("-n", NODE_NAMESPACE)
    try:
        cluster.kubectl("rollout", "status", "daemonset/shoal-node", *within, "--timeout=150s", timeout=160)
    except AssertionError as mistake:
        raise AssertionError(f"{mistake}\n{cluster.kubectl('describe', 'pods', *within)}") from None


def sandbox(name: str, *containers: dict, restore: str = "", **spec) -> dict:
    containers = containers or ({"name": "main", "image": SHELL, "command": ["sh", "-c", COUNT]},)
    pod = {
        "runtimeClassName": "shoal", "containers": list(containers), "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False, "dnsPolicy": "Default",
    }
    annotations = {"agents.kruise.io/restore-from": restore} if restore else {}
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox", "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": {"spec": pod | spec}},
    }


def ready(cluster, name: str, seconds: float = 150) -> None:
    def seen():
        found = cluster.get(KIND, name)
        conditions = found.get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    try:
        wait_until(seen, seconds, f"{name} is ready")
    except AssertionError as mistake:
        raise AssertionError(f"{mistake}\n{told(cluster, name)}") from None


def told(cluster, name: str) -> str:
    """Status and events of a sandbox and its pod."""
    events = [one.get("message", "") for one in cluster.get("events", fields=f"involvedObject.name={name}")["items"]]
    return "\n".join([json.dumps(cluster.get(KIND, name).get("status", {})), *events])


def refusal(cluster, name: str, part: str, namespace: str = "default") -> None:
    """Waits for the event that says why a pod does not start."""

    def seen():
        events = cluster.get("events", namespace=namespace, fields=f"involvedObject.name={name}")["items"]
        return any(part in one.get("message", "") for one in events)

    try:
        wait_until(seen, 120, f"{name}: {part}")
    except AssertionError as mistake:
        events = cluster.get("events", namespace=namespace, fields=f"involvedObject.name={name}")["items"]
        raise AssertionError(f"{mistake}\n{[one.get('message') for one in events]}") from None


def inside(cluster, name: str, command: str, container: str = "main") -> str:
    return cluster.kubectl("exec", name, "-c", container, "--", "sh", "-c", command, timeout=60).strip()


def saved(cluster, name: str, pod: str, *contents: str, **spec) -> dict:
    """The status of a checkpoint that was taken."""
    cluster.apply(checkpoint(name, pod, *(contents or ("memory", "filesystem")), **spec))
    return ended(cluster, name, "Succeeded")


def sandboxes_of(node, pod: str) -> set[str]:
    """The ids of a pod's sandboxes, by the records of the runtime."""
    command = f"grep -l '\"pod\":\"{pod}\"' /run/shoal-runsc/pods/*/sandbox.json 2>/dev/null || true"
    return {Path(path).parent.name for path in node.run("sh", "-c", command).split()}


def ended(cluster, name: str, phase: str) -> dict:
    def seen():
        status = cluster.get(CHECKPOINTS, name).get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    status = wait_until(seen, 150, f"{name} has ended")
    assert status["phase"] == phase, status
    return status


def place(node, identifier: str, namespace: str = "default") -> str:
    """The directory of a checkpoint on the node."""
    return f"{STORE}/{namespace}/{identifier.split('-')[0]}"


def everything_in_the_store(node) -> str:
    # A file may go while it looks.
    return node.run("sh", "-c", f"find {STORE} 2>/dev/null || true")


@pytest.fixture(scope="module")
def source(node, real_cluster):
    """A sandbox that counts."""
    real_cluster.apply(sandbox("source"))
    ready(real_cluster, "source")
    wait_until(lambda: count(real_cluster, "source") > 0, 60, "it counts")
    return "source"


def state(cluster, name: str) -> tuple[str, int]:
    """The number that the program of a sandbox has drawn, and how far it has counted."""
    words = inside(cluster, name, "cat /data/count 2>/dev/null || true").split()
    return (words[0], int(words[1])) if words else ("", 0)


def count(cluster, name: str) -> int:
    return state(cluster, name)[1]


def number(cluster, name: str) -> str:
    """The number of a program that counts on."""
    here = count(cluster, name)
    wait_until(lambda: count(cluster, name) > here, 60, f"{name} counts on")
    return state(cluster, name)[0]


def test_a_clone_goes_on_where_its_source_was_saved(source, node, real_cluster):
    inside(real_cluster, source, "echo secret > /root/kept")
    drawn, before = state(real_cluster, source)
    status = saved(real_cluster, "kept", source)
    assert status["checkpointId"] and status["completionTime"]
    found = real_cluster.get(CHECKPOINTS, "kept")
    assert FILES in found["metadata"]["finalizers"]
    assert found["metadata"]["labels"]["shoal.dev/node"] == node.name
    # Files of the node are closed to everybody but root.
    listed = node.run("find", place(node, status["checkpointId"]), "-printf", "%m %y %U %f\n").splitlines()
    assert listed and {line.rsplit(" ", 1)[0] for line in listed} == {"700 d 0", "600 f 0"}, listed
    real_cluster.apply(sandbox("clone", restore="kept"))
    ready(real_cluster, "clone")
    assert count(real_cluster, "clone") >= before
    # Both continue, each for itself.
    assert number(real_cluster, "clone") == number(real_cluster, source) == drawn
    assert inside(real_cluster, "clone", "cat /root/kept") == "secret"
    assert inside(real_cluster, "clone", "hostname") == "clone"
    inside(real_cluster, "clone", "echo changed > /root/kept")
    assert inside(real_cluster, source, "cat /root/kept") == "secret"


WEB = {
    "name": "web", "image": SHELL, "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    "command": [
        "sh", "-c", "mkdir -p /work/www; dd if=/dev/urandom of=/dev/shm/big bs=1M count=20 2>/dev/null; "
        "md5sum /dev/shm/big > /work/www/sum; exec httpd -f -p 8080 -h /work/www",
    ],
    "readinessProbe": {"httpGet": {"port": 8080, "path": "/sum"}, "periodSeconds": 1},
}
SIDE = {
    "name": "side", "image": SHELL, "volumeMounts": [{"name": "work", "mountPath": "/data"}],
    "command": ["sh", "-c", "i=0; while true; do i=$((i+1)); echo $i > /data/.next; mv /data/.next /data/count; sleep 0.2; done"],
}
SHARED = {"volumes": [{"name": "work", "emptyDir": {}}]}


def test_two_containers_and_what_they_share_are_restored(node, real_cluster):
    real_cluster.apply(sandbox("two", WEB, SIDE, **SHARED))
    ready(real_cluster, "two")
    read = "cat /data/count 2>/dev/null || echo 0"
    wait_until(lambda: int(inside(real_cluster, "two", read, "side")) > 10, 60, "the side counts")
    before = int(inside(real_cluster, "two", "cat /data/count", "side"))
    saved(real_cluster, "of-two", "two")
    real_cluster.apply(sandbox("two-clone", WEB, SIDE, restore="of-two", **SHARED))
    ready(real_cluster, "two-clone")
    # It is ready, so the restored server answers; its memory is that of the source.
    sums = [inside(real_cluster, name, "md5sum /dev/shm/big", "web") for name in ("two", "two-clone")]
    assert sums[0] == sums[1] == inside(real_cluster, "two-clone", "cat /data/www/sum", "side")
    assert int(inside(real_cluster, "two-clone", "cat /work/count", "web")) >= before
    # The volume of the clone is its own.
    inside(real_cluster, "two-clone", "echo own > /data/own", "side")
    assert inside(real_cluster, "two-clone", "cat /work/own", "web") == "own"
    # Not a whole listing: `count` is replaced all the time, and may be listed twice.
    assert inside(real_cluster, "two", "test -e /work/own || echo none", "web") == "none"
    # A pod that lacks a container would never start: it is not created.
    real_cluster.apply(sandbox("lacks", WEB, restore="of-two", **SHARED))
    refusal(real_cluster, "lacks", "they must be the same")
    real_cluster.delete(KIND, "two", "two-clone", "lacks")


def test_an_upgrade_keeps_the_files_of_the_pod(node, real_cluster):
    made = sandbox("upgraded", SIDE | {"command": ["sleep", "1000"]}, **SHARED)
    made["spec"]["upgradePolicy"] = {"type": "CheckpointRestore"}
    real_cluster.apply(made)
    ready(real_cluster, "upgraded")
    inside(real_cluster, "upgraded", "echo root > /root/kept; echo volume > /data/kept; echo gone > /tmp/gone", "side")
    before = real_cluster.get("pod", "upgraded")["metadata"]["uid"]
    changed = made["spec"]["template"]["spec"]["containers"][0] | {"env": [{"name": "NEW", "value": "one"}]}
    template = {"spec": made["spec"]["template"]["spec"] | {"containers": [changed]}}
    real_cluster.patch(KIND, "upgraded", {"spec": {"template": template}})

    def upgraded(found):
        return any(one["type"] == "Upgrading" and one["reason"] == "Succeeded" for one in found["status"]["conditions"])

    wait_for(real_cluster, "upgraded", upgraded, "the upgrade")
    ready(real_cluster, "upgraded")
    assert real_cluster.get("pod", "upgraded")["metadata"]["uid"] != before
    seen = inside(real_cluster, "upgraded", "cat /root/kept /data/kept; echo $NEW; ls /tmp", "side")
    assert seen.split() == ["root", "volume", "one"]
    own = {"labels": "agents.kruise.io/sandbox-name=upgraded"}
    wait_until(lambda: not real_cluster.get(CHECKPOINTS, **own)["items"], 60, "no checkpoint is left")
    # Another image has other files.
    template["spec"]["containers"][0]["image"] = RUNTIME
    real_cluster.patch(KIND, "upgraded", {"spec": {"template": template}})

    def refused(found):
        return any("cannot change images" in one.get("message", "") for one in found["status"]["conditions"])

    wait_for(real_cluster, "upgraded", refused, "why it is not upgraded")
    assert inside(real_cluster, "upgraded", "cat /root/kept", "side") == "root"
    real_cluster.delete(KIND, "upgraded")


def raw_pod(name: str, named: str, namespace: str = "default", image: str = SHELL) -> dict:
    """A pod that a user made with the runtime's own annotation."""
    container = {"name": "main", "image": image, "command": ["sh", "-c", COUNT]}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"shoal.dev/restore-from": named}},
        "spec": {
            "runtimeClassName": "shoal", "containers": [container], "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False, "dnsPolicy": "Default",
            "tolerations": [], "nodeSelector": {"kubernetes.io/hostname": "node-0"},
        },
    }


@pytest.fixture(scope="module")
def kept(source, real_cluster):
    """The id of a checkpoint of the source."""
    inside(real_cluster, source, "echo secret > /root/kept")
    return saved(real_cluster, "basis", source)["checkpointId"]


@pytest.mark.parametrize("number, hostile", enumerate([
    "..", "../default/{id}", "{id}/../{id}", "/etc", "{key}", ".new", "{id}x", "{other}",
]))
def test_hostile_names_are_refused(kept, real_cluster, number, hostile):
    key = kept.split("-")[0]
    other = f"{key}-{'0' * 24}"
    name = f"hostile-{number}"
    real_cluster.apply(raw_pod(name, hostile.format(id=kept, key=key, other=other)))
    refusal(real_cluster, name, "was changed" if hostile == "{other}" else "is not the id of a checkpoint")
    assert real_cluster.get("pod", name)["status"]["phase"] == "Pending"
    real_cluster.delete("pod", name)


@pytest.mark.parametrize("key, value", [
    ("dev.gvisor.internal.checkpoint.path", "/etc"), ("dev.gvisor.spec.rootfs.source", "/etc"),
])
def test_annotations_that_lead_the_runtime_to_the_node_are_refused(node, real_cluster, key, value):
    pod = raw_pod("led", "")
    pod["metadata"]["annotations"] = {key: value}
    real_cluster.apply(pod)
    refusal(real_cluster, "led", f"annotation {key} is not allowed")
    assert real_cluster.get("pod", "led")["status"]["phase"] == "Pending"
    real_cluster.delete("pod", "led")


def test_another_user_reaches_mount_points_that_its_image_lacks(node, real_cluster):
    """The directories above them are the runtime's, and closed to others if it makes them with the wrapper's mask."""
    pod = raw_pod("another-user", "")
    pod["metadata"]["annotations"] = {}
    pod["spec"]["volumes"] = [{"name": "made", "emptyDir": {}}]
    container = pod["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "made", "mountPath": "/lacking/also/here"}]
    container["securityContext"] = {"runAsUser": 1000}
    container["command"] = ["sh", "-c", "echo reached > /lacking/also/here/file; sleep 1000"]
    real_cluster.apply(pod)
    real_cluster.kubectl("wait", "--for=condition=Ready", "pod/another-user", "--timeout=120s", timeout=130)
    read = "until cat /lacking/also/here/file 2>/dev/null || [ $((n += 1)) -gt 400 ]; do sleep 0.1; done"
    assert inside(real_cluster, "another-user", read) == "reached"
    real_cluster.delete("pod", "another-user")


def test_another_namespace_cannot_name_it(kept, real_cluster):
    real_cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "stranger"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "stranger"}},
        raw_pod("thief", kept, "stranger"),
    )
    refusal(real_cluster, "thief", "no such checkpoint in this namespace", "stranger")
    real_cluster.delete("pod", "thief", namespace="stranger")
    # In its own namespace, a user's pod may.
    real_cluster.apply(raw_pod("own", kept))
    real_cluster.kubectl("wait", "--for=condition=Ready", "pod/own", "--timeout=120s", timeout=130)
    assert number(real_cluster, "own") == number(real_cluster, "source")
    real_cluster.delete("pod", "own")


def test_another_image_is_refused(kept, real_cluster):
    real_cluster.apply(raw_pod("changed-image", kept, image=RUNTIME))
    refusal(real_cluster, "changed-image", "has another image")
    real_cluster.delete("pod", "changed-image")
    # Its sandbox, which waited for the container, does not wait without end.
    wait_until(lambda: not sandboxes_of(real_cluster.node, "changed-image"), 60, "the sandbox ends")


@pytest.mark.parametrize("how", ["flipped", "linked", "manifest"])
def test_changed_files_are_refused(how, source, node, real_cluster):
    name = f"tampered-{how}"
    status = saved(real_cluster, name, source)
    directory = place(node, status["checkpointId"])
    real_cluster.apply(sandbox(f"{name}-before", restore=name))
    ready(real_cluster, f"{name}-before")
    if how == "flipped":
        pages = f"{directory}/pages.img"
        before = node.run("md5sum", pages)
        node.run("sh", "-c", f"printf '\\377\\376\\375' | dd of={pages} bs=1 seek=70000 conv=notrunc 2>/dev/null")
        assert node.run("md5sum", pages) != before
    elif how == "linked":
        node.run("sh", "-c", f"mv {directory}/pages.img /var/lib/shoal/checkpoints/pages && ln -s ../../pages {directory}/pages.img")
    else:
        manifest = json.loads(node.run("cat", f"{directory}/manifest.json"))
        manifest["features"] = []
        node.run("sh", "-c", f"cat > {directory}/manifest.json <<'END'\n{json.dumps(manifest)}\nEND")
    real_cluster.apply(sandbox(f"{name}-after", restore=name))
    refusal(real_cluster, f"{name}-after", "it was changed after it was saved")
    node.run("rm", "-f", "/var/lib/shoal/checkpoints/pages")
    real_cluster.delete(KIND, f"{name}-before", f"{name}-after")
    real_cluster.delete(CHECKPOINTS, name)
    assert node.run("find", STORE, "-name", status["checkpointId"].split("-")[0]) == ""


def test_a_pod_that_is_not_kept_running_ends_well(node, real_cluster):
    real_cluster.apply(sandbox("ends", restartPolicy="Never"))
    ready(real_cluster, "ends")
    wait_until(lambda: count(real_cluster, "ends") > 0, 60, "it counts")
    drawn, last = state(real_cluster, "ends")
    saved(real_cluster, "at-the-end", "ends", keepRunning=False)
    # Reported before the pod ended, so that no controller gives up the only copy of its memory.
    assert "shoal.dev/ending" in real_cluster.get(CHECKPOINTS, "at-the-end")["metadata"]["annotations"]
    wait_for(real_cluster, "ends", in_phase("Succeeded"), "Succeeded", KIND)
    real_cluster.delete(KIND, "ends")
    real_cluster.apply(sandbox("begins-again", restore="at-the-end", restartPolicy="Never"))
    ready(real_cluster, "begins-again")
    assert count(real_cluster, "begins-again") >= last
    assert number(real_cluster, "begins-again") == drawn
    real_cluster.delete(KIND, "begins-again")
    real_cluster.delete(CHECKPOINTS, "at-the-end")


def test_the_pod_of_a_replica_set_is_saved_by_the_name_of_its_sandbox(node, real_cluster):
    kept = sandbox("kept")
    kept["metadata"]["annotations"]["agents.kruise.io/kept-by"] = "ReplicaSet"
    real_cluster.apply(kept)
    ready(real_cluster, "kept")
    of_sandbox = checkpoint("of-kept", "", "memory", "filesystem", sandboxName="kept")
    del of_sandbox["spec"]["podName"]
    real_cluster.apply(of_sandbox)
    ended(real_cluster, "of-kept", "Succeeded")
    pod = real_cluster.get(CHECKPOINTS, "of-kept")["metadata"]["annotations"]["shoal.dev/pod"]
    assert pod.startswith("kept-") and real_cluster.get("pod", pod)["status"]["phase"] == "Running"
    real_cluster.delete(KIND, "kept")
    real_cluster.delete(CHECKPOINTS, "of-kept")


def mode(cluster, name: str, operating: str) -> None:
    cluster.patch(COMMUNITY, name, {"spec": {"operatingMode": operating}})


def has_condition(cluster, name: str, kind: str, reason: str) -> dict:
    """The condition of a community Sandbox, once it has this reason."""

    def seen():
        conditions = cluster.get(COMMUNITY, name).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind and one["reason"] == reason), None)

    try:
        return wait_until(seen, 150, f"{name}: {kind} {reason}")
    except AssertionError as mistake:
        found = cluster.get(COMMUNITY, name)
        raise AssertionError(f"{mistake}\n{json.dumps([found['metadata'], found.get('status')])}") from None


def saves_of(cluster, name: str) -> list[dict]:
    owned = [one for one in cluster.get(CHECKPOINTS)["items"] if one["metadata"].get("ownerReferences")]
    return [one for one in owned if one["metadata"]["ownerReferences"][0]["name"] == name]


def test_a_community_sandbox_keeps_its_memory_while_it_is_suspended(node, real_cluster):
    made = sandbox("sleeper")
    pod = made["spec"].pop("template")
    made |= {"apiVersion": "agents.x-k8s.io/v1beta1"}
    made["spec"] |= {"podTemplate": pod, "operatingMode": "Running"}
    made["metadata"]["annotations"] = {"shoal.dev/pause-contents": "memory"}
    real_cluster.apply(made)
    has_condition(real_cluster, "sleeper", "Ready", "DependenciesReady")
    wait_until(lambda: count(real_cluster, "sleeper") > 0, 60, "it counts")
    for expires in (False, True):
        drawn, before = state(real_cluster, "sleeper")
        mode(real_cluster, "sleeper", "Suspended")
        told = has_condition(real_cluster, "sleeper", "Suspended", "PodTerminated")
        [kept] = saves_of(real_cluster, "sleeper")
        name = kept["metadata"]["name"]
        assert told["status"] == "True" and name in told["message"], told
        assert real_cluster.get(COMMUNITY, "sleeper")["metadata"]["annotations"]["shoal.dev/saved-by"] == name
        assert not real_cluster.get("pods", fields="metadata.name=sleeper")["items"]
        if expires:
            # Its policy is to be retained, and its memory with it.
            real_cluster.patch(COMMUNITY, "sleeper", {"spec": {"shutdownTime": "2026-01-02T03:04:05Z", "shutdownPolicy": "Retain"}})
            has_condition(real_cluster, "sleeper", "Ready", "SandboxExpired")
            assert [one["metadata"]["name"] for one in saves_of(real_cluster, "sleeper")] == [name]
            real_cluster.patch(COMMUNITY, "sleeper", {"spec": {"shutdownTime": None}})
        mode(real_cluster, "sleeper", "Running")
        has_condition(real_cluster, "sleeper", "Ready", "DependenciesReady")
        after, last = state(real_cluster, "sleeper")
        assert after == drawn, "its program went on"
        assert last >= before
        wait_until(lambda: not saves_of(real_cluster, "sleeper"), 90, "no checkpoint")
        annotations = real_cluster.get(COMMUNITY, "sleeper")["metadata"]["annotations"]
        assert "shoal.dev/saved-by" not in annotations
    # A checkpoint that somebody deletes is missed, by its name.
    mode(real_cluster, "sleeper", "Suspended")
    has_condition(real_cluster, "sleeper", "Suspended", "PodTerminated")
    [kept] = saves_of(real_cluster, "sleeper")
    real_cluster.delete(CHECKPOINTS, kept["metadata"]["name"])
    mode(real_cluster, "sleeper", "Running")
    refused = has_condition(real_cluster, "sleeper", "Ready", "ReconcilerError")
    assert kept["metadata"]["name"] in refused["message"] and "not found" in refused["message"], refused
    real_cluster.patch(COMMUNITY, "sleeper", {"metadata": {"annotations": {"shoal.dev/saved-by": None}}})
    has_condition(real_cluster, "sleeper", "Ready", "DependenciesReady")
    assert number(real_cluster, "sleeper") != drawn
    # It goes with what it keeps.
    mode(real_cluster, "sleeper", "Suspended")
    has_condition(real_cluster, "sleeper", "Suspended", "PodTerminated")
    real_cluster.delete(COMMUNITY, "sleeper")
    wait_until(lambda: not saves_of(real_cluster, "sleeper"), 90, "no checkpoint")


def test_a_community_sandbox_that_cannot_be_saved_keeps_running(node, real_cluster):
    made = sandbox("awake")
    pod = made["spec"].pop("template")
    del pod["spec"]["runtimeClassName"]
    made |= {"apiVersion": "agents.x-k8s.io/v1beta1"}
    made["spec"] |= {"podTemplate": pod, "operatingMode": "Running"}
    made["metadata"]["annotations"] = {"shoal.dev/pause-contents": "memory"}
    real_cluster.apply(made)
    has_condition(real_cluster, "awake", "Ready", "DependenciesReady")
    uid = real_cluster.get("pod", "awake")["metadata"]["uid"]
    mode(real_cluster, "awake", "Suspended")
    told = has_condition(real_cluster, "awake", "Suspended", "CheckpointFailed")
    assert "runtimeClassName: shoal" in told["message"] and "keeps running" in told["message"], told
    assert real_cluster.get("pod", "awake")["metadata"]["uid"] == uid
    # Without the wish, it is suspended as any other.
    real_cluster.patch(COMMUNITY, "awake", {"metadata": {"annotations": {"shoal.dev/pause-contents": None}}})
    has_condition(real_cluster, "awake", "Suspended", "PodTerminated")
    real_cluster.delete(COMMUNITY, "awake")


def test_files_alone_are_kept_without_processes(source, node, real_cluster):
    inside(real_cluster, source, "echo mine > /root/own")
    drawn, before = state(real_cluster, source)
    saved(real_cluster, "files", source, "filesystem")
    assert count(real_cluster, source) >= before
    assert number(real_cluster, source) == drawn
    real_cluster.apply(sandbox("from-files", restore="files"))
    ready(real_cluster, "from-files")
    assert inside(real_cluster, "from-files", "cat /root/own") == "mine"
    # Its program began again.
    assert number(real_cluster, "from-files") != drawn
    real_cluster.delete(KIND, "from-files")
    real_cluster.delete(CHECKPOINTS, "files")


def test_what_cannot_be_saved_is_refused_by_name(source, node, real_cluster):
    plain = sandbox("plain")
    del plain["spec"]["template"]["spec"]["runtimeClassName"]
    real_cluster.apply(plain)
    ready(real_cluster, "plain")
    real_cluster.apply(checkpoint("of-plain", "plain", "memory", "filesystem"))
    assert "runtimeClassName: shoal" in ended(real_cluster, "of-plain", "Failed")["message"]
    real_cluster.apply(checkpoint("restarts", source, "memory", "filesystem", keepRunning=False))
    assert "restartPolicy" in ended(real_cluster, "restarts", "Failed")["message"]
    # Nothing of it stays on the node, and it can be deleted.
    wait_until(lambda: not real_cluster.get(CHECKPOINTS, "restarts")["metadata"].get("finalizers") or
               FILES not in real_cluster.get(CHECKPOINTS, "restarts")["metadata"]["finalizers"], 60, "its files are gone")
    with pytest.raises(AssertionError, match="podName is immutable"):
        real_cluster.patch(CHECKPOINTS, "restarts", {"spec": {"podName": "other"}})
    real_cluster.delete(CHECKPOINTS, "of-plain", "restarts")
    real_cluster.delete(KIND, "plain")


def test_a_namespace_has_a_share_of_the_store(node, real_cluster):
    fills = "dd if=/dev/urandom of=/dev/shm/big bs=1M count=160 2>/dev/null; touch /tmp/full; exec sleep 1000"
    large = {"name": "main", "image": SHELL, "command": ["sh", "-c", fills]}
    large["readinessProbe"] = {"exec": {"command": ["test", "-e", "/tmp/full"]}, "periodSeconds": 1}
    real_cluster.apply(sandbox("large", large))
    ready(real_cluster, "large")
    before = everything_in_the_store(node)
    real_cluster.apply(checkpoint("too-large", "large", "memory", "filesystem"))
    message = ended(real_cluster, "too-large", "Failed")["message"]
    assert "may take" in message and "ttlAfterFinished" in message
    wait_until(lambda: everything_in_the_store(node) == before, 60, "nothing of it is left")
    assert inside(real_cluster, "large", "cat /dev/shm/big | wc -c") == str(160 << 20)
    real_cluster.delete(CHECKPOINTS, "too-large")
    real_cluster.delete(KIND, "large")


def test_a_pool_of_clones_is_filled_by_restores(kept, source, real_cluster):
    member = sandbox("unused")["spec"]["template"]["spec"]
    del member["automountServiceAccountToken"]
    template = {"metadata": {"annotations": {"agents.kruise.io/restore-from": "basis"}}, "spec": member}
    real_cluster.apply({
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": "clones"},
        "spec": {"replicas": 2, "template": template},
    })

    def available():
        status = real_cluster.get("sandboxsets.agents.kruise.io", "clones").get("status", {})
        return status.get("availableReplicas", 0) == 2

    wait_until(available, 120, "the members")
    labels = "agents.kruise.io/sandbox-pool=clones"
    for one in real_cluster.get(KIND, labels=labels)["items"]:
        name = one["metadata"]["name"]
        assert inside(real_cluster, name, "cat /root/kept") == "secret"
        assert number(real_cluster, name) == number(real_cluster, source)
        assert real_cluster.get("pod", name)["metadata"]["annotations"]["shoal.dev/restore-from"] == kept
    real_cluster.delete("sandboxsets.agents.kruise.io", "clones")


def test_files_go_with_their_checkpoint(kept, node, real_cluster):
    assert node.run("ls", place(node, kept))
    real_cluster.delete(CHECKPOINTS, "basis")
    assert node.run("find", STORE, "-name", kept.split("-")[0]) == ""
    real_cluster.apply(sandbox("late", restore="basis"))
    refusal(real_cluster, "late", "not found")
    real_cluster.delete(KIND, "late")
