"""The released E2B SDK against a cluster whose node saves pods: snapshots, clones, forks and pauses with memory."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from e2b import Sandbox, Template
from e2b.exceptions import SandboxException

from ..installation import wait_until
from ..interpreter import test_clone_tutorial as tutorial
from . import sdk_cases
from .conftest import operator_of, replicas_of, sdk_of
from .images import RUNTIME
from .jupyter import add_kernel
from .saved import behind, counted, files_with, goes_on, saves, settings
from .test_checkpoints_node import COUNT, agent_of, everything_in_the_store, told
from .test_install import imported  # noqa: F401
from .test_kruise_checkpoint import CHECKPOINTS, checkpoint
from .test_kruise_claims import call
from .test_kruise_sandbox import KIND
from .test_sdk import available, resource_of, sandbox_set
from .test_templates import SETS, TEMPLATES

VALUES = ("--set", "node.enabled=true,node.storeSize=700Mi,node.namespaceShare=50,definitions.install=false")
KEPT = ["memory", "filesystem"]


@pytest.fixture(scope="module")
def operator(real_cluster):
    yield from operator_of(real_cluster, "--runtime-image", RUNTIME)


@pytest.fixture(scope="module")
def node(operator, imported, real_cluster):  # noqa: F811
    yield from agent_of(real_cluster, *VALUES)


@pytest.fixture(scope="module")
def api(node, real_cluster):
    yield from sdk_of(real_cluster)


def pool(cluster, name: str, kept: list[str], **pod) -> str:
    made = sandbox_set(name, 1, runtimeClassName="shoal", dnsPolicy="Default", **pod)
    made["spec"]["persistentContents"] = kept
    cluster.apply(made)
    wait_until(lambda: available(cluster, name) >= 1, 150, f"a member of {name}")
    return name


@pytest.fixture(scope="module")
def template(api, real_cluster):
    return pool(real_cluster, "kept", KEPT)


@pytest.fixture
def source(template, api):
    """A sandbox in which a command counts, and has written files."""
    sandbox = Sandbox.create(template, timeout=900, envs={"COLOUR": "blue"}, metadata={"purpose": "test"}, **api)
    sandbox.commands.run(COUNT, background=True, timeout=0)
    sandbox.files.write("/root/kept", "hello")
    wait_until(lambda: counted(sandbox), 60, "it counts")
    yield sandbox
    sandbox.kill()


def tagging(options: dict) -> dict:
    """The options of a client of templates."""
    return {key: value for key, value in options.items() if key != "sandbox_url"}


def test_a_snapshot_keeps_memory_and_clones_go_on_as_themselves(source, api, node, real_cluster):
    before = counted(source)
    snapshot = source.create_snapshot()
    found = {one["metadata"]["name"]: one for one in real_cluster.get(CHECKPOINTS)["items"]}
    [made] = [one for one in found.values() if one["status"].get("checkpointId") == snapshot.snapshot_id]
    assert made["spec"]["persistentContents"] == KEPT and made["metadata"]["labels"]["agents.kruise.io/owner"]
    kept = real_cluster.get("sandboxtemplates.agents.kruise.io", made["metadata"]["name"])
    assert kept["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert [one.snapshot_id for one in source.list_snapshots().next_items()] == [snapshot.snapshot_id]
    clone = Sandbox.create(snapshot.snapshot_id, timeout=600, envs={"SIZE": "small"}, **api)
    goes_on(clone, before)
    goes_on(source, before)
    assert clone.files.read("/root/kept") == "hello"
    assert clone.get_info().template_id == snapshot.snapshot_id
    assert behind(clone, api)["started_from"] == [made["metadata"]["name"]]
    assert behind(source, api)["saved_from"] == [made["metadata"]["name"]]
    # Each has an id, a host name, variables and a token of its own.
    said = clone.commands.run("echo $E2B_SANDBOX_ID $COLOUR $SIZE; hostname").stdout.split()
    assert said == [clone.sandbox_id, "blue", "small", resource_of(clone)]
    assert source.commands.run("echo $E2B_SANDBOX_ID").stdout.strip() == source.sandbox_id
    tokens = [settings(real_cluster, resource_of(one))["accessToken"] for one in (source, clone)]
    assert tokens[0] != tokens[1]
    with pytest.raises(SandboxException):
        files_with(clone, tokens[0], api)
    assert files_with(clone, tokens[1], api) == "hello"
    now = float(clone.commands.run("date +%s").stdout)
    assert abs(now - time.time()) < 60
    clone.kill()
    # Its files go with it, and nothing starts from it any more.
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **api)
    with pytest.raises(SandboxException, match="not found"):
        Sandbox.create(snapshot.snapshot_id, **api)
    key = snapshot.snapshot_id.split("-")[0]
    wait_until(lambda: key not in everything_in_the_store(node), 90, "its files are gone")
    wait_until(lambda: made["metadata"]["name"] not in json.dumps(real_cluster.get("sandboxtemplates.agents.kruise.io")), 90, "no template")


def test_the_headers_say_what_a_snapshot_keeps_and_for_how_long(source, api, real_cluster):
    before = counted(source)
    headers = {
        "x-e2b-kruise-snapshot-keep-running": "true", "x-e2b-kruise-snapshot-ttl": "30m",
        "x-e2b-kruise-snapshot-persistent-contents": "filesystem", "x-e2b-kruise-snapshot-wait-success-seconds": "60",
    }
    snapshot = source.create_snapshot(headers=headers)
    [made] = [one for one in real_cluster.get(CHECKPOINTS)["items"] if one["status"].get("checkpointId") == snapshot.snapshot_id]
    assert made["spec"]["persistentContents"] == ["filesystem"] and made["spec"]["ttlAfterFinished"] == "1800s"
    goes_on(source, before)
    clone = Sandbox.create(snapshot.snapshot_id, timeout=600, **api)
    assert clone.files.read("/root/kept") == "hello"
    # The files are as they were, and nothing counts.
    assert counted(clone)[0] == before[0]
    assert clone.commands.run("ps | grep -c '[d]ata/next' || true").stdout.strip() == "0"
    clone.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id, **api)
    with pytest.raises(SandboxException, match="Never or OnFailure"):
        source.create_snapshot(headers={"x-e2b-kruise-snapshot-keep-running": "false"})
    goes_on(source, before)


@pytest.fixture
def forks():
    """A list of sandboxes that are killed at the end: twenty that count would slow down the suites beside this one."""
    made: list[Sandbox] = []
    yield made
    for fork in made:
        fork.kill()


def test_forks_go_on_with_the_memory_of_their_source(source, forks, api, node, real_cluster):
    before = counted(source)
    # All twenty in one call take longer than a call may, on a machine that is busy with other suites.
    for _ in range(4):
        made = source.fork(count=5, timeout=600)
        forks += [one for one in made if isinstance(one, Sandbox)]
        assert len(made) == 5 and all(isinstance(one, Sandbox) for one in made), made
    assert len({fork.sandbox_id for fork in forks}) == 20
    for fork in forks:
        goes_on(fork, before)
        assert fork.commands.run("echo $E2B_SANDBOX_ID").stdout.strip() == fork.sandbox_id
    assert forks[0].get_info().metadata["purpose"] == "test"
    goes_on(source, before)
    # The copy is not listed as a snapshot, and is deleted when the forks run.
    assert source.list_snapshots().next_items() == []
    wait_until(lambda: not saves(real_cluster), 90, "the copy is gone")


@pytest.mark.parametrize("mode", ["full", "filesystem"])
def test_a_clone_can_be_saved_in_turn(mode, source, api, node, real_cluster):
    """The pod of a clone has no volume for its daemon. Its checkpoints have it all the same."""
    before = counted(source)
    of_source = source.create_snapshot().snapshot_id
    clone = Sandbox.create(of_source, timeout=600, **api)
    pod = real_cluster.get("pod", resource_of(clone))
    assert "shoal-runtime" not in [volume["name"] for volume in pod["spec"].get("volumes", [])]
    clone.files.write("/root/kept", "by the clone")
    of_clone = clone.create_snapshot(mode=mode).snapshot_id
    clone.kill()
    second = Sandbox.create(of_clone, timeout=600, **api)
    assert second.files.read("/root/kept") == "by the clone"
    if mode == "full":
        goes_on(second, before)
    second.kill()
    for snapshot in (of_source, of_clone):
        assert Sandbox.delete_snapshot(snapshot, **api)


def test_snapshots_have_names_and_tags_at_every_replica(source, api, node, real_cluster):
    files = {"mode": "filesystem"}
    first = source.create_snapshot(name="work", **files)
    assert first.snapshot_id == "default/work:default" and first.names == ["default/work"]
    source.files.write("/root/kept", "tagged")
    tagged = source.create_snapshot(name="work:v1", **files)
    assert (tagged.snapshot_id, tagged.names) == ("default/work:v1", ["default/work"])
    source.files.write("/root/kept", "newest")
    assert source.create_snapshot(name="work", **files).snapshot_id == first.snapshot_id
    # The version that has no tag any more goes.
    wait_until(lambda: len(saves(real_cluster)) == 2, 90, "two versions")

    def listed(**filters) -> list[str]:
        return sorted(one.snapshot_id for one in source.list_snapshots(**filters).next_items())

    assert listed() == ["default/work:default", "default/work:v1"]
    assert listed(name="work") == ["default/work:default"], "the newest of the name"
    assert listed(name="work:v1") == ["default/work:v1"] and listed(name="other") == []
    for [other] in replicas_of(real_cluster, "other", 1):
        options = api | {"api_url": other.url, "sandbox_url": other.url}
        for name, kept in (("work", "newest"), ("default/work:v1", "tagged")):
            clone = Sandbox.create(name, timeout=600, **options)
            assert clone.files.read("/root/kept") == kept
            clone.kill()
        Template.assign_tags("work:v1", ["stable"], **tagging(options))
        with pytest.raises(Exception, match="only one of another version"):
            Template.assign_tags("work:v1", ["default"], **tagging(options))
    wait_until(lambda: listed(name="work:stable"), 30, "the tag at the first replica")
    assert Sandbox.delete_snapshot("work:default", **api) and not Sandbox.delete_snapshot("work:default", **api)
    clone = Sandbox.create("work:stable", timeout=600, **api)
    assert clone.files.read("/root/kept") == "tagged"
    clone.kill()
    with pytest.raises(SandboxException, match="name of a template"):
        source.create_snapshot(name="kept", **files)
    with pytest.raises(SandboxException, match="another team"):
        source.create_snapshot(name="strangers/work", **files)
    for tag in ("stable", "v1"):
        assert listed() != [] and Sandbox.delete_snapshot(f"work:{tag}", **api)
    assert listed() == []
    wait_until(lambda: not saves(real_cluster), 90, "no checkpoint")


@pytest.mark.parametrize("by_kubectl", [False, True])
def test_a_pool_of_clones_is_claimed_with_the_daemon_of_its_source(source, api, node, real_cluster, by_kubectl):
    before = counted(source)
    if by_kubectl:
        real_cluster.apply(checkpoint("of-source", resource_of(source), *KEPT))
        wait_until(
            lambda: real_cluster.get(CHECKPOINTS, "of-source").get("status", {}).get("phase") == "Succeeded", 120, "it is saved",
        )
        identifier = "of-source"
    else:
        identifier = source.create_snapshot().snapshot_id
    clones = sandbox_set("clones", 1, runtimeClassName="shoal", dnsPolicy="Default")
    clones["spec"]["template"]["metadata"] = {"annotations": {"agents.kruise.io/restore-from": identifier}}
    real_cluster.apply(clones)
    wait_until(lambda: available(real_cluster, "clones") >= 1, 150, "a restored member")
    clone = Sandbox.create("clones", timeout=600, envs={"COLOUR": "red"}, metadata={"create-on-no-stock": "false"}, **api)
    goes_on(clone, before)
    assert clone.commands.run("echo $COLOUR").stdout == "red\n"
    own, former = settings(real_cluster, resource_of(clone))["accessToken"], settings(real_cluster, resource_of(source))["accessToken"]
    assert own != former and files_with(clone, own, api) == "hello"
    with pytest.raises(SandboxException):
        files_with(clone, former, api)
    clone.kill()
    real_cluster.delete("sandboxsets.agents.kruise.io", "clones")
    if by_kubectl:
        real_cluster.delete(CHECKPOINTS, "of-source")
    else:
        Sandbox.delete_snapshot(identifier, **api)
    wait_until(lambda: not saves(real_cluster), 90, "no checkpoint")


def entry(snapshot: str, **fields) -> dict:
    pool = {"size": 1, "startupCmd": ["sh", "-c", "echo begun > /tmp/begun"]}
    return {"name": "ready", "template": snapshot, "description": "d", "pool": pool} | fields


def write_catalogue(api: dict, *entries: dict) -> tuple[int, object]:
    """Replaces the template catalogue. The answer of the API."""
    return call(SimpleNamespace(url=api["api_url"]), api["api_key"], "POST", TEMPLATES, {"templates": list(entries)})


def members(cluster, set_name: str) -> dict[str, str]:
    """The members of a pool that wait and run, each with the checkpoint that its template names."""
    labels = f"agents.kruise.io/sandbox-pool={set_name},agents.kruise.io/sandbox-claimed=false"
    running = [one for one in cluster.get(KIND, labels=labels)["items"] if one.get("status", {}).get("phase") == "Running"]
    restored = "agents.kruise.io/restore-from"
    return {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["annotations"][restored] for one in running}


def test_an_entry_of_the_catalogue_starts_from_a_snapshot_and_its_pool_follows_it(source, api, node, real_cluster):
    before = counted(source)
    source.create_snapshot(name="basis:v1")
    [first] = saves(real_cluster)
    for refused, why in (({"port": 80}, "`port`"), ({"name": "basis"}, "same name"), ({"substrate": "ReplicaSet"}, "ReplicaSets")):
        status, answer = write_catalogue(api, entry("basis:v1", **refused))
        assert status == 400 and why in json.dumps(answer), answer
    fields = {"env": {"SIZE": "small"}, "metadata": {"purpose": "pooled"}}
    assert write_catalogue(api, entry("basis:v1", **fields))[0] == 200
    pooled = {"metadata": {"create-on-no-stock": "false"}}
    wait_until(lambda: members(real_cluster, "ready"), 150, "a restored member")
    [(waiting, of)] = members(real_cluster, "ready").items()
    assert of == first["status"]["checkpointId"]
    claimed = Sandbox.create("ready", timeout=600, envs={"TASTE": "sweet"}, **pooled, **api)
    assert resource_of(claimed) == waiting, "it comes from the pool"
    # Names of the catalogue are those of its sandboxes, and the memory is the source's.
    cold = Sandbox.create("ready", timeout=600, **api)
    for sandbox, taste in ((claimed, "sweet"), (cold, "")):
        goes_on(sandbox, before)
        said = sandbox.commands.run("echo $E2B_SANDBOX_ID $COLOUR $SIZE $TASTE; cat /tmp/begun; hostname").stdout.split()
        assert said == [sandbox.sandbox_id, "blue", "small", *([taste] if taste else []), "begun", resource_of(sandbox)]
        info = sandbox.get_info()
        assert info.name == "ready" and info.metadata["purpose"] == "pooled", info
        assert behind(sandbox, api)["started_from"] == [first["metadata"]["name"]]
    # A newer snapshot with the tag: the pool is filled from that.
    source.files.write("/root/kept", "newer")
    source.create_snapshot(name="basis:v1")
    wait_until(lambda: set(members(real_cluster, "ready").values()) - {of}, 150, "a member of the newer one")
    newer = Sandbox.create("ready", timeout=600, **pooled, **api)
    assert newer.files.read("/root/kept") == "newer" and claimed.files.read("/root/kept") == "hello"
    # The pool goes with its snapshot, and the sandboxes stay.
    assert Sandbox.delete_snapshot("basis:v1", **api)
    wait_until(lambda: not real_cluster.find(SETS, "ready"), 90, "no pool")
    with pytest.raises(SandboxException, match="'ready' is based on 'basis:v1', which does not exist"):
        Sandbox.create("ready", **api)
    for sandbox in (claimed, cold, newer):
        goes_on(sandbox, before)
        sandbox.kill()
    assert write_catalogue(api)[0] == 200
    wait_until(lambda: not saves(real_cluster), 90, "no checkpoint")


def test_a_pause_keeps_memory_and_a_connect_goes_on(source, api, node, real_cluster):
    before = counted(source)
    name = resource_of(source)
    for _ in range(2):
        source.pause()
        paused = real_cluster.get(KIND, name)
        [condition] = [one for one in paused["status"]["conditions"] if one["type"] == "SandboxPaused"]
        assert (condition["status"], condition["reason"]) == ("True", "SnapshotPauseSucceed")
        assert not real_cluster.get("pods", fields=f"metadata.name={name}")["items"]
        connected = Sandbox.connect(source.sandbox_id, timeout=600, **api)
        goes_on(connected, before)
        before = counted(connected)
        assert connected.files.read("/root/kept") == "hello"
        # The checkpoint is deleted when the sandbox runs.
        wait_until(lambda: not saves(real_cluster), 90, "no checkpoint")
    # A snapshot of the resumed sandbox.
    snapshot = source.create_snapshot()
    clone = Sandbox.create(snapshot.snapshot_id, timeout=600, **api)
    goes_on(clone, before)
    clone.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id, **api)


def test_a_timeout_pauses_with_memory_and_traffic_resumes(template, api, node, real_cluster):
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    sandbox = Sandbox.create(template, timeout=900, lifecycle=lifecycle, **api)
    sandbox.commands.run(COUNT, background=True, timeout=0)
    wait_until(lambda: counted(sandbox), 60, "it counts")
    before, name = counted(sandbox), resource_of(sandbox)
    sandbox.set_timeout(1)

    def is_paused():
        conditions = real_cluster.get(KIND, name)["status"]["conditions"]
        return any(one["type"] == "SandboxPaused" and one["status"] == "True" for one in conditions)

    try:
        wait_until(is_paused, 120, "it is paused")
    except AssertionError as mistake:
        raise AssertionError(f"{mistake}\n{told(real_cluster, name)}") from None
    # A request to the daemon, with the sandbox's token.
    goes_on(sandbox, before)
    sandbox.kill()
    wait_until(lambda: not saves(real_cluster), 90, "no checkpoint")


def test_a_pause_that_fails_leaves_the_sandbox_running(api, node, real_cluster):
    """Its memory is larger than its namespace's share of the node's room."""
    large = sandbox_set("large", 0, runtimeClassName="shoal", dnsPolicy="Default")
    large["spec"]["persistentContents"] = KEPT
    [container] = large["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"]["memory"] = "1Gi"
    real_cluster.apply(large)
    sandbox = Sandbox.create("large", timeout=900, **api)
    sandbox.commands.run(COUNT, background=True, timeout=0)
    sandbox.commands.run("dd if=/dev/urandom of=/dev/shm/big bs=1M count=380 2>/dev/null", timeout=120)
    before, name = counted(sandbox), resource_of(sandbox)
    end = sandbox.get_info().end_at
    with pytest.raises(SandboxException, match="may take"):
        sandbox.pause()
    goes_on(sandbox, before)
    # It has the time that it had.
    wait_until(lambda: sandbox.get_info().end_at == end, 30, "its end")
    assert not real_cluster.get(KIND, name)["spec"].get("paused")
    with pytest.raises(SandboxException, match="may take"):
        sandbox.create_snapshot()
    goes_on(sandbox, before)
    sandbox.kill()
    real_cluster.delete_all(CHECKPOINTS)


def test_a_pool_whose_pods_cannot_be_saved_says_so(api, node, real_cluster):
    made = sandbox_set("plain", 0)
    made["spec"]["persistentContents"] = KEPT
    real_cluster.apply(made)
    sandbox = Sandbox.create("plain", timeout=600, **api)
    for refused in (sandbox.create_snapshot, lambda: sandbox.fork(count=1), lambda: sandbox.pause(mode="full")):
        with pytest.raises(SandboxException, match="501.*runtimeClassName: shoal"):
            refused()
    pods = [one["spec"]["podName"] for one in real_cluster.get(CHECKPOINTS)["items"]]
    assert not [pod for pod in pods if pod.startswith("plain-")]
    # Its volumes are kept, as before.
    sandbox.pause()
    assert Sandbox.connect(sandbox.sandbox_id, timeout=600, **api).commands.run("echo here").stdout == "here\n"
    sandbox.kill()
    real_cluster.delete_all(CHECKPOINTS)


@pytest.fixture(scope="module")
def interpreters(api, node, real_cluster):
    """The two pools of the tutorial."""
    for name, kept in (("code-interpreter-mem", KEPT), ("code-interpreter-no-mem", ["filesystem"])):
        made = add_kernel(sdk_cases.pool(name, "runsc"))
        made["spec"] |= {"persistentContents": kept, "replicas": 1}
        made["spec"]["template"]["spec"] |= {"runtimeClassName": "shoal", "dnsPolicy": "Default"}
        real_cluster.apply(made)
        wait_until(lambda name=name: available(real_cluster, name) >= 1, 150, f"a member of {name}")
    yield
    for name in ("code-interpreter-mem", "code-interpreter-no-mem"):
        real_cluster.delete("sandboxsets.agents.kruise.io", name)


@pytest.mark.timeout(800)
def test_the_tutorials_scripts_run(interpreters, api, real_cluster, monkeypatch):
    """Alibaba Cloud ACS, "Clone an Agent Sandbox with Checkpoint": with its own names of templates."""
    create = tutorial.CREATE.replace('"code-interpreter-v1"', '"code-interpreter-mem"', 1)
    monkeypatch.setattr(tutorial, "CREATE", create.replace('"code-interpreter-v1"', '"code-interpreter-no-mem"', 1))
    server = SimpleNamespace(key=api["api_key"], url=api["api_url"])
    tutorial.test_the_tutorials_scripts_run(server)
    assert {one["spec"]["persistentContents"][0] for one in real_cluster.get(CHECKPOINTS)["items"]} == {"memory", "filesystem"}
    for one in real_cluster.get(KIND)["items"]:
        real_cluster.delete(KIND, one["metadata"]["name"], wait=False)
    real_cluster.delete_all(CHECKPOINTS)
