"""The released E2B SDK, unmodified, against a cluster: pools of `agents.kruise.io` on a real node."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from e2b import NotFoundException, Sandbox, SandboxQuery, SandboxState
from e2b.exceptions import SandboxException, SandboxUnreachableException

from ..installation import program, wait_until
from ..js.packages import environment, install
from ..js.test_cli import Cli
from .conftest import operator_of, sdk_of
from .images import RUNTIME, SHELL
from .kills import KUBELET, kill
from .operator import condition

KINDS = {"runc": {}, "gvisor": {"runtimeClassName": "gvisor"}}


@pytest.fixture(scope="module")
def operator(real_cluster):
    yield from operator_of(real_cluster, "--runtime-image", RUNTIME)


def sandbox_set(name: str, replicas: int, **pod) -> dict:
    container = {
        "name": "main", "image": SHELL, "command": ["sleep", "1000000"],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
    }
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "runtimes": [{"name": "agent-runtime"}],
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **pod}},
        },
    }


def available(cluster, name: str) -> int:
    return cluster.get("sandboxsets.agents.kruise.io", name).get("status", {}).get("availableReplicas", 0)


@pytest.fixture(scope="module")
def api(operator, real_cluster):
    yield from sdk_of(real_cluster)


@pytest.fixture(scope="module", params=KINDS)
def pool(request, api, real_cluster):
    """The name of a pool with a waiting sandbox."""
    name = f"e2b-{request.param}"
    real_cluster.apply(sandbox_set(name, 1, **KINDS[request.param]))
    wait_until(lambda: available(real_cluster, name) >= 1, 120, f"a member of {name}")
    return name


def test_the_sdk_runs_commands_in_a_pod_of_the_pool(pool, api, real_cluster):
    [waiting] = [one["metadata"]["uid"] for one in members(real_cluster, pool)]
    sandbox = Sandbox.create(pool, metadata={"purpose": "test"}, envs={"COLOUR": "blue"}, timeout=120, **api)
    assert sandbox.commands.run("echo $COLOUR").stdout == "blue\n"
    sandbox.files.write("/tmp/a.txt", "text")
    assert sandbox.files.read("/tmp/a.txt") == "text"
    info = sandbox.get_info()
    assert info.template_id == pool and info.metadata["purpose"] == "test"
    claimed = real_cluster.get("sandboxes.agents.kruise.io", resource_of(sandbox))
    assert claimed["metadata"]["uid"] == waiting, "it was claimed, not created"
    assert claimed["metadata"]["labels"]["agents.kruise.io/sandbox-claimed"] == "true"
    assert "ownerReferences" not in claimed["metadata"]
    # The pool makes another one.
    wait_until(lambda: available(real_cluster, pool) >= 1, 90, "the pool is full again")
    sandbox.kill()
    with pytest.raises(NotFoundException):
        Sandbox.connect(sandbox.sandbox_id, **api)


def test_metrics_are_those_of_the_container(api, real_cluster):
    real_cluster.apply(sandbox_set("measured", 1))
    wait_until(lambda: available(real_cluster, "measured") >= 1, 120, "a member")
    sandbox = Sandbox.create("measured", timeout=120, **api)
    sandbox.commands.run("head -c 30000000 /dev/zero > /dev/null")
    sample = wait_until(lambda: sandbox.get_metrics(), 60, "a sample")[-1]
    assert sample.mem_total == 256 << 20 and 0 < sample.mem_used < 256 << 20
    assert sample.cpu_count == 1 and 0 <= sample.cpu_used_pct <= 100
    sandbox.kill()


def run_in_next(sandbox: Sandbox, command: str) -> str:
    """The output of a command in a pod or a container that has just taken the place of another."""

    def looked():
        try:
            return sandbox.commands.run(command)
        except SandboxUnreachableException:
            # The replica has not seen the address of the next pod yet.
            return None
        except SandboxException as busy:
            assert "changing its state: try again" in str(busy)
            return None

    return wait_until(looked, 60, "the way to what runs now").stdout


def members(cluster, name: str) -> list[dict]:
    listed = cluster.get("sandboxes.agents.kruise.io", labels=f"agents.kruise.io/sandbox-pool={name}")
    return [one for one in listed["items"] if one["metadata"]["labels"]["agents.kruise.io/sandbox-claimed"] == "false"]


def test_lists_timeouts_and_kubectl_agree(pool, api, real_cluster):
    sandbox = Sandbox.create(pool, metadata={"label:tier": "gold", "round": "one"}, timeout=300, **api)
    by = SandboxQuery(metadata={"round": "one"}, state=[SandboxState.RUNNING])
    listed = Sandbox.list(query=by, **api).next_items()
    assert [one.sandbox_id for one in listed] == [sandbox.sandbox_id]
    assert listed[0].metadata["tier"] == "gold"
    begun = time.time()
    sandbox.set_timeout(600)
    assert begun + 599 <= sandbox.get_info().end_at.timestamp() <= time.time() + 601
    name = resource_of(sandbox)
    assert real_cluster.get("sandboxes.agents.kruise.io", name)["metadata"]["labels"]["tier"] == "gold"
    real_cluster.delete("sandboxes.agents.kruise.io", name)
    wait_until(lambda: not Sandbox.list(query=by, **api).next_items(), 60, "the SDK sees that kubectl deleted it")
    assert not sandbox.is_running()


def test_a_pause_ends_the_pod_and_a_connect_starts_another(pool, api, real_cluster):
    sandbox = Sandbox.create(pool, envs={"COLOUR": "red"}, timeout=300, **api)
    sandbox.files.write("/tmp/kept.txt", "no")
    sandbox.pause()
    assert sandbox.get_info().state == SandboxState.PAUSED
    again = Sandbox.connect(sandbox.sandbox_id, timeout=400, **api)
    assert again.get_info().state == SandboxState.RUNNING
    assert again.commands.run("echo $COLOUR").stdout == "red\n"
    assert not again.files.exists("/tmp/kept.txt"), "only volumes survive a stop"
    again.kill()


def test_a_restart_of_the_kubelet_disturbs_nobody(pool, api, real_cluster):
    sandbox = Sandbox.create(pool, timeout=300, **api)
    counts = sandbox.commands.run("for i in $(seq 50); do echo $i; sleep 0.1; done", background=True)
    assert kill(real_cluster.node, KUBELET) == 1
    sandbox.files.write("/tmp/meanwhile.txt", "text")
    assert sandbox.files.read("/tmp/meanwhile.txt") == "text"
    # A member that the kubelet could not look at meanwhile may have been taken for one that is not ready.
    another = Sandbox.create(pool, timeout=300, **api)
    assert another.commands.run("echo here").stdout == "here\n"
    assert counts.wait().stdout.split() == [str(number) for number in range(1, 51)]
    [status] = real_cluster.get("pods", resource_of(sandbox))["status"]["containerStatuses"]
    assert status["restartCount"] == 0 and sandbox.is_running()
    sandbox.kill()
    another.kill()


def resource_of(sandbox: Sandbox) -> str:
    """The name of a sandbox's object, and of its pod."""
    return sandbox.get_info().metadata["e2b.agents.kruise.io/sandbox-resource"].split("/")[1]


@pytest.fixture
def clients(api, tmp_path):
    """The variables of the released clients and of `shoal`, without a login of their own."""
    return environment(
        E2B_API_KEY=api["api_key"], E2B_API_URL=api["api_url"], E2B_SANDBOX_URL=api["sandbox_url"],
        SHOAL_API_KEY=api["api_key"], SHOAL_URL=api["api_url"], HOME=str(tmp_path), NO_COLOR="1",
    )


def test_the_released_command_line_works(pool, api, clients):
    install()
    cli = Cli(clients, api)
    sandbox = Sandbox.create(pool, metadata={"of": "the command line"}, timeout=300, **api)
    assert cli.ids("--metadata", "of=the command line") == [sandbox.sandbox_id]
    assert cli("sandbox", "exec", sandbox.sandbox_id, "echo out; echo err >&2; exit 3", code=3).stdout == "out\n"
    assert cli("sandbox", "exec", sandbox.sandbox_id, "cat", stdin="input").stdout == "input"
    assert pool in cli("template", "list").stdout
    cli("sandbox", "kill", sandbox.sandbox_id)
    assert cli.ids("--metadata", "of=the command line") == []


def test_the_projects_command_line_works(pool, clients, tmp_path):
    def shoal(*words: str, code: int = 0) -> str:
        done = subprocess.run([program(), *words], env=clients, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        return done.stdout.strip()

    made = shoal("sandbox", "create", "--template", pool, "--timeout", "5m", "--env", "COLOUR=blue")
    assert made in shoal("ps", "-q").split()
    assert shoal("exec", made, "--", "sh", "-c", "echo $COLOUR; exit 4", code=4) == "blue"
    (tmp_path / "here").write_text("content")
    shoal("cp", str(tmp_path / "here"), f"{made}:/tmp/there")
    assert shoal("exec", made, "--", "cat", "/tmp/there") == "content"
    assert pool in shoal("template", "ls")
    shoal("rm", made)
    assert made not in shoal("ps", "-q").split()


def status_of_init(address: str, **headers: str) -> int:
    """The answer of a pod's daemon to a stranger who tries to set a token."""
    body = json.dumps({"accessToken": "stranger"}).encode()
    request = urllib.request.Request(f"http://{address}:49983/init", data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def test_a_stranger_cannot_set_the_first_token(pool, api, real_cluster):

    def waiting() -> list[str]:
        ready = [one for one in members(real_cluster, pool) if condition(one).get("status") == "True"]
        return [one["status"]["sandboxIp"] for one in ready]

    # The set may still count the one that was taken a moment ago.
    addresses = wait_until(waiting, 120, "a member")
    [pod] = [one for one in real_cluster.get("pods")["items"] if one["status"].get("podIP") == addresses[0]]
    variables = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    for guess in ({}, {"X-Init-Pass": "0" * 64}, {"X-Init-Pass": variables["SHOAL_INIT_DIGEST"]}):
        assert status_of_init(addresses[0], **guess) == 403, guess
    # A claim has the pass.
    sandbox = Sandbox.create(pool, timeout=300, **api)
    assert sandbox.commands.run("echo works").stdout == "works\n"
    assert status_of_init(addresses[0]) == 401
    sandbox.kill()


def test_a_sandbox_works_again_after_its_program_has_ended(api, real_cluster):
    """The container starts again, and the operator gives the daemon in it its settings."""
    # The command that ends it has been answered by then.
    ends = ["sh", "-c", "trap 'sleep 10; exit 1' TERM; while true; do sleep 0.2; done"]
    manifest = sandbox_set("restarts", 1)
    manifest["spec"]["template"]["spec"]["containers"][0]["command"] = ends
    real_cluster.apply(manifest)
    wait_until(lambda: available(real_cluster, "restarts") >= 1, 120, "a member")
    sandbox = Sandbox.create("restarts", envs={"COLOUR": "green"}, timeout=300, **api)
    name = resource_of(sandbox)

    def container() -> str:
        """The one whose daemon has its settings."""
        known = condition(real_cluster.get("sandboxes.agents.kruise.io", name), "RuntimeInitialized")
        return known["message"] if known.get("status") == "True" else ""

    first = wait_until(container, 60, "the first settings")
    sandbox.commands.run("kill 1")
    wait_until(lambda: container() not in ("", first), 120, "the settings of the next container")
    assert run_in_next(sandbox, "echo $COLOUR") == "green\n"
    sandbox.kill()


def test_an_upgrade_runs_commands_in_the_pods(api, real_cluster):
    """A sandbox gets another pod, keeps its id, variables and token, and its commands run as root in both pods."""
    real_cluster.apply(sandbox_set("upgrades", 1))
    wait_until(lambda: available(real_cluster, "upgrades") >= 1, 120, "a member")
    sandbox = Sandbox.create("upgrades", metadata={"label:app": "upgraded"}, envs={"COLOUR": "green"}, timeout=300, **api)

    def update(name: str, before: list[str]) -> dict:
        """Replaces the pod, and returns how that ended."""
        hooks = {"preUpgrade": before, "postUpgrade": ["sh", "-c", "id -u > /tmp/after"]}
        real_cluster.apply({
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxUpdateOps", "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": "upgraded"}},
                "patch": {"metadata": {"annotations": {"upgraded-by": name}}},
                "lifecycle": {when: {"exec": {"command": command}} for when, command in hooks.items()},
            },
        })

        def ended():
            status = real_cluster.get("sandboxupdateops.agents.kruise.io", name).get("status", {})
            return status if status.get("phase") in ("Completed", "Failed") else None

        status = wait_until(ended, 90, f"the end of {name}")
        real_cluster.delete("sandboxupdateops.agents.kruise.io", name)
        return status

    resource = resource_of(sandbox)
    sandbox.commands.run("touch /tmp/former-pod")
    assert update("refused", ["sh", "-c", "echo not yet >&2; exit 3"])["phase"] == "Failed"
    found = real_cluster.get("sandboxes.agents.kruise.io", resource)
    told = condition(found, "Upgrading")
    assert told["reason"] == "PreUpgradeFailed" and told["message"] == "exit status 3: not yet", told
    assert update("carried-out", ["test", "-e", "/tmp/former-pod"]) | {"conditions": []} == {
        "conditions": [], "observedGeneration": 1, "phase": "Completed",
        "replicas": 1, "updatedReplicas": 1, "updatingReplicas": 0, "failedReplicas": 0,
    }
    assert run_in_next(sandbox, "cat /tmp/after; echo $COLOUR; ls /tmp/former-pod || true") == "0\ngreen\n"
    sandbox.kill()


def test_bad_requests_say_what_is_wrong(pool, api):
    with pytest.raises(Exception, match="template 'nothing' not found"):
        Sandbox.create("nothing", **api)
    with pytest.raises(Exception, match="skip-init-runtime.*must be true or false"):
        Sandbox.create(pool, metadata={"e2b.agents.kruise.io/skip-init-runtime": "perhaps"}, **api)
    with pytest.raises(Exception, match="authoriz|API key"):
        Sandbox.create(pool, **(api | {"api_key": "e2b_" + "0" * 40}))
