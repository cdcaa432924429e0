"""The released Python client of `agents.x-k8s.io`, unmodified, through `shoal router` to pods of a real node."""

from __future__ import annotations

import io
import os

import kubernetes
import pytest
from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.exceptions import SandboxRequestError
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

from ..installation import wait_until
from .router import SERVES, SERVING, USER, Router, token_of
from .test_operator_pool import filled, pool, template

#: Differences between the pools: as root with runc, and as another user with gVisor.
KINDS = {
    "runc": {},
    "gvisor": {"runtimeClassName": "gvisor", "securityContext": {"runAsUser": 1000, "runAsGroup": 1000}},
}


@pytest.fixture(scope="module")
def router(real_operator, real_cluster):
    router = Router(real_cluster)
    router.start()
    yield router
    router.kill()


@pytest.fixture(scope="module")
def token(router):
    """The token of a user who may use sandboxes."""
    return token_of(router.cluster, "agent", USER)


@pytest.fixture(scope="module", params=KINDS)
def warm(request, real_operator, real_cluster):
    """The name of a pool whose pods serve the runtime API."""
    of = template(request.param)
    of["spec"]["podTemplate"]["spec"] |= {"containers": [SERVING], **KINDS[request.param]}
    real_cluster.apply(of, pool(request.param, request.param, 1))
    filled(real_cluster, request.param, 1)
    return request.param


@pytest.fixture
def client(router, token, real_cluster):
    connection = SandboxDirectConnectionConfig(
        api_url=router.url, extra_headers={"Authorization": f"Bearer {token}"}
    )
    cluster = kubernetes.config.new_client_from_config(config_file=str(real_cluster.admin))
    with SandboxClient(connection_config=connection, api_client=cluster) as client:
        yield client


def test_the_client_runs_commands_and_moves_files(client, warm):
    sandbox = client.create_sandbox(warmpool=warm)
    user = "1000" if warm == "gvisor" else "0"
    result = sandbox.commands.run("sh -c 'pwd; id -u; echo $((6 * 7)) >&2; exit 3'")
    assert (result.stdout, result.stderr, result.exit_code) == (f"/tmp/work\n{user}\n", "42\n", 3)
    late = sandbox.commands.run("sleep 60", command_timeout=0.5)
    assert (late.timed_out, late.exit_code) == (True, 1)

    sandbox.files.write("data/in put.txt", "hello")
    assert sandbox.files.read("data/in put.txt") == b"hello"
    assert sandbox.commands.run("cat 'data/in put.txt'").stdout == "hello"
    assert sandbox.files.exists("data/in put.txt") and not sandbox.files.exists("data/other")
    assert [(entry.name, entry.size, entry.type) for entry in sandbox.files.list("data")] == [("in put.txt", 5, "file")]
    assert [(entry.name, entry.type) for entry in sandbox.files.list(".")] == [("data", "directory")]

    large = os.urandom(8 << 20)
    sandbox.files.write("large", io.BytesIO(large))
    read = io.BytesIO()
    assert sandbox.files.read_to("large", read) == len(large)
    assert read.getvalue() == large
    with pytest.raises(SandboxRequestError) as missing:
        sandbox.files.read("no/such/file")
    assert missing.value.status_code == 404
    with pytest.raises(SandboxRequestError) as denied:
        sandbox.files.read("../../etc/passwd", allow_unsafe_paths=True)
    assert denied.value.status_code == 403


def test_only_users_with_the_right_reach_a_sandbox(client, warm, router, token, real_cluster):
    name = client.create_sandbox(warmpool=warm).sandbox_id
    assert router.ask("/", token, X_Sandbox_ID=name) == (200, SERVES)
    assert router.ask("/", X_Sandbox_ID=name)[0] == 401
    assert router.ask("/", "nonsense", X_Sandbox_ID=name)[0] == 401
    assert router.ask("/", token_of(real_cluster, "stranger"), X_Sandbox_ID=name)[0] == 403
    # The right is for one namespace.
    assert router.ask("/", token, X_Sandbox_ID=name, X_Sandbox_Namespace="kube-system")[0] == 403


def test_only_sandboxes_are_reached(router, token, real_cluster):
    """A service of the cluster has the name that the reference would look up."""
    assert real_cluster.get("service", "kubernetes")["metadata"]["name"] == "kubernetes"
    refused = (502, {"detail": "Could not connect to the backend sandbox: kubernetes"})
    assert router.ask("/", token, X_Sandbox_ID="kubernetes", X_Sandbox_Port="443") == refused
    assert router.ask("/", token, X_Sandbox_ID=real_cluster.address)[0] == 400
    assert router.ask("/healthz") == (200, {"status": "ok"})


def test_a_deleted_sandbox_is_no_longer_reached(client, warm, router, token):
    sandbox = client.create_sandbox(warmpool=warm)
    name = sandbox.sandbox_id
    assert router.ask("/", token, X_Sandbox_ID=name)[0] == 200
    sandbox.terminate()
    refused = (502, {"detail": f"Could not connect to the backend sandbox: {name}"})
    wait_until(lambda: router.ask("/", token, X_Sandbox_ID=name) == refused, 60, "the end of the route")
