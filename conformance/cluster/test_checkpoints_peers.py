"""Checkpoints that the agents of two nodes give to each other."""

from __future__ import annotations

import contextlib
import socket
import ssl

import pytest

from ..installation import wait_until
from .conftest import operator_of
from .test_checkpoints_elsewhere import check_clones, check_fetch, check_resume, check_thief, clean, on  # noqa: F401
from .test_checkpoints_node import NODE_NAMESPACE, STORE, VALUES, agent_of, ready, saved
from .test_install import import_program, imported  # noqa: F401
from .test_kruise_checkpoint import CHECKPOINTS, checkpoint

SERVED = "shoal.dev/served"
PORT = 10360


@pytest.fixture(scope="module")
def operator(real_cluster):
    yield from operator_of(real_cluster)


@pytest.fixture(scope="module")
def other(operator, imported, real_cluster, tmp_path_factory):
    with real_cluster.another_node() as node:
        import_program(node, tmp_path_factory.mktemp("image"))
        for _ in agent_of(real_cluster, *VALUES, "--set", "node.peers.enabled=true"):
            yield node


def served(cluster, name: str) -> None:
    """Waits until the operator knows that other nodes can fetch a checkpoint."""
    wait_until(lambda: SERVED in cluster.get(CHECKPOINTS, name)["metadata"]["annotations"], 60, f"{name} is served")


def agents(cluster) -> dict[str, str]:
    """The addresses of the agents by node."""
    pods = cluster.get("pods", namespace=NODE_NAMESPACE)["items"]
    return {pod["spec"]["nodeName"]: pod["status"]["podIP"] for pod in pods}


def test_a_clone_starts_on_a_node_that_never_had_its_source(other, real_cluster, clean):
    real_cluster.apply(on("source", "node-0"))
    ready(real_cluster, "source")
    saved(real_cluster, "leaves", "source")
    served(real_cluster, "leaves")
    check_clones(real_cluster, other, "source", "leaves")
    real_cluster.delete(CHECKPOINTS, "leaves")
    wait_until(lambda: other.run("find", STORE, "-type", "f") == "", 90, "the copy is deleted")


def test_a_paused_sandbox_resumes_on_another_node_when_its_own_is_full(other, real_cluster, clean):
    check_resume(real_cluster, served)


def test_a_fetch_is_completed_when_the_agent_that_gives_is_killed(other, real_cluster, clean):
    check_fetch(real_cluster, real_cluster.node, other, served)


def test_no_other_namespace_gets_a_copy(other, real_cluster, clean):
    real_cluster.apply(on("owner", "node-0"))
    ready(real_cluster, "owner")
    identifier = saved(real_cluster, "private", "owner")["checkpointId"]
    served(real_cluster, "private")
    real_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strangers"}})
    # As the operator marks checkpoints of their own namespace.
    forged = checkpoint("forged", "thief", "memory", "filesystem")
    forged["metadata"] |= {
        "namespace": "strangers", "labels": {"agents.kruise.io/checkpoint-id": identifier}, "annotations": {"shoal.dev/node": "node-0"},
    }
    real_cluster.apply(forged)
    check_thief(real_cluster, other, identifier, "node node-0: this node does not have the checkpoint")


def answered(address: str, identifier: str, certificate: str | None) -> bytes:
    """What the agent at an address answers to a client with a certificate of its own, or with none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate)
    request = f"GET /v1/checkpoints/default/{identifier} HTTP/1.1\r\nHost: agent\r\n\r\n"
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        with socket.create_connection((address, PORT), timeout=20) as plain, context.wrap_socket(plain) as connection:
            connection.sendall(request.encode())
            return connection.recv(4096)
    return b""


def test_a_stranger_learns_nothing(other, real_cluster, clean):
    """A pod on the network, which knows the id of a checkpoint."""
    real_cluster.apply(on("owner", "node-0"))
    ready(real_cluster, "owner")
    identifier = saved(real_cluster, "private", "owner")["checkpointId"]
    served(real_cluster, "private")
    address = agents(real_cluster)["node-0"]
    authority = real_cluster.authority
    # Signed by the cluster's authority, with an administrator's rights.
    pair, both = [authority.directory / f"admin.{end}" for end in ("crt", "key")], real_cluster.directory / "admin.pem"
    both.write_bytes(b"".join(one.read_bytes() for one in pair))
    for certificate in (None, str(both)):
        assert answered(address, identifier, certificate) == b""
    # A connection that says nothing holds no place for long, and others are served meanwhile.
    with contextlib.ExitStack() as held:
        for _ in range(20):
            held.enter_context(socket.create_connection((address, PORT), timeout=20))
        real_cluster.apply(on("far", other.name, restore="private"))
        ready(real_cluster, "far")
