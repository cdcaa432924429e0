"""`shoal cluster`, with a kubeconfig and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess

import pytest

from ..installation import free_port, program
from . import test_kruise_sandbox as kruise
from . import test_kruise_set as sets
from . import test_operator_pool as pools
from .images import SHELL
from .operator import wait_for_reason
from .test_operator_sandbox import BETA, missing, sandbox

KINDS = {"runc": {}, "gvisor": {"runtimeClassName": "gvisor"}}
HELD = {"fake-node/hold": "true"}


def cli(cluster, *arguments: str, input: bytes = b"", **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [program(), "cluster", *arguments], env=cluster.environment() | environment, input=input, capture_output=True,
        timeout=120,
    )
    print(done.stderr.decode(errors="replace"))
    return done


def printed(cluster, *arguments: str) -> str:
    done = cli(cluster, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def refused(cluster, code: int, *arguments: str, **environment: str) -> str:
    done = cli(cluster, *arguments, **environment)
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    return done.stderr.decode()


@pytest.fixture(scope="module")
def both(operator, cluster):
    """A sandbox of each API, and two of one name."""
    cluster.apply(sandbox("community"), sandbox("twice"), kruise.sandbox("kruise"), kruise.sandbox("twice-too"))
    wait_for_reason(cluster, BETA, "community", "DependenciesReady")
    kruise.wait_until_ready(cluster, "kruise")
    return cluster


def test_sandboxes_of_both_apis_are_listed(both):
    headings, *rows = printed(both, "ls").splitlines()
    assert headings.split() == ["NAME", "API", "STATE", "NODE", "ADDRESS", "AGE"]
    seen = {row.split()[0]: row.split()[1:4] for row in rows}
    assert seen["community"] == ["agents.x-k8s.io", "running", "fake-0"]
    assert seen["kruise"] == ["agents.kruise.io", "running", "fake-0"]
    assert printed(both, "ls", "-q", "--api", "agents.kruise.io").split() == ["kruise", "twice-too"]
    everywhere = printed(both, "ls", "-A").splitlines()
    assert everywhere[0].startswith("NAMESPACE") and any(row.startswith("default ") for row in everywhere)
    kinds = {(one["apiVersion"], one["kind"]) for one in json.loads(printed(both, "ls", "--json"))}
    assert kinds == {("agents.x-k8s.io/v1beta1", "Sandbox"), ("agents.kruise.io/v1alpha1", "Sandbox")}
    assert printed(both, "ls", "-q", "-n", "kube-system") == ""


def test_a_sandbox_is_shown(both):
    fields = dict(line.split(maxsplit=1) for line in printed(both, "get", "kruise").splitlines())
    assert (fields["state"], fields["api"], fields["pod"]) == ("running", "agents.kruise.io", "kruise")
    assert json.loads(printed(both, "get", "community", "--json"))["metadata"]["name"] == "community"
    both.patch(BETA, "community", {"spec": {"operatingMode": "Suspended"}})
    kruise.wait_for(both, "community", lambda one: kruise.condition(one, "Suspended").get("status") == "True", "suspended", BETA)
    assert "suspended" in printed(both, "get", "community")
    assert "has no pod: it is suspended" in refused(both, 75, "exec", "community", "--", "true")


def test_what_is_wrong_is_said(both, tmp_path):
    assert "did you mean kruise?" in refused(both, 66, "get", "kruis")
    assert "it has: shoal" in refused(both, 64, "ls", "--context", "other")
    # Its pod would have the name of the other's, so it never becomes ready.
    both.apply(kruise.sandbox("twice"))
    assert "--api agents.x-k8s.io" in refused(both, 64, "get", "twice")
    assert "twice" in printed(both, "get", "twice", "--api", "agents.kruise.io")
    nobody = both.client_configuration("nowhere", {"token": "x"}, url=f"https://127.0.0.1:{free_port()}")
    assert "cannot reach the API server" in refused(both, 69, "ls", KUBECONFIG=str(nobody))
    stranger = both.kubeconfig("stranger", "stranger")
    assert "cannot list resource" in refused(both, 77, "ls", KUBECONFIG=str(stranger))
    (tmp_path / "broken").write_text("{")
    assert "cannot use the kubeconfig" in refused(both, 64, "ls", KUBECONFIG=str(tmp_path / "broken"))


def test_a_claim_prints_its_sandbox(operator, cluster):
    cluster.apply(pools.template("of"), pools.pool("warm", "of", 1), sets.pool("stock", 1))
    pools.filled(cluster, "warm", 1)
    sets.wait_until_full(cluster, "stock", 1)
    name = printed(cluster, "claim", "warm").strip()
    assert kruise.condition(cluster.get(BETA, name))["status"] == "True"
    name = printed(cluster, "claim", "stock", "--name", "mine").strip()
    labels = cluster.get(kruise.KIND, name)["metadata"]["labels"]
    assert labels["agents.kruise.io/claim-name"] == "mine"
    made = json.loads(printed(cluster, "claim", "stock", "--json"))
    assert made["status"]["phase"] == "Completed"


def test_a_claim_that_gets_nothing_leaves_nothing(operator, cluster):
    held = pools.template("held")
    held["spec"]["podTemplate"]["metadata"] = {"annotations": HELD}
    cluster.apply(held, pools.pool("never", "held", 0), sets.pool("stuck", 0, kruise.pod_template(annotations=HELD)))
    assert "gave no sandbox within 1s" in refused(cluster, 75, "claim", "never", "--name", "late", "--timeout", "1s")
    assert "stuck gave no sandbox" in refused(cluster, 75, "claim", "stuck", "--name", "late", "--timeout", "2s")
    kruise.wait_until(lambda: missing(cluster, pools.CLAIMS, "late"), 60, "no claim")
    kruise.wait_until(lambda: missing(cluster, "sandboxclaims.v1alpha1.agents.kruise.io", "late"), 60, "no claim")
    assert "no SandboxWarmPool and no SandboxSet nothing" in refused(cluster, 66, "claim", "nothing")


@pytest.fixture(scope="module", params=KINDS)
def real(request, real_operator, real_cluster):
    """The name of a sandbox on a real node."""
    name = f"runs-{request.param}"
    wanted = sandbox(name)
    command = ["sh", "-c", "echo begun; echo said >&2; sleep 1000000"]
    main = {"name": "main", "image": SHELL, "command": command}
    wanted["spec"]["podTemplate"]["spec"] |= {"containers": [main], **KINDS[request.param]}
    real_cluster.apply(wanted)
    wait_for_reason(real_cluster, BETA, name, "DependenciesReady", 120)
    return name


def test_a_command_runs_in_a_sandbox(real_cluster, real):
    done = cli(real_cluster, "exec", real, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 3)
    data = os.urandom(3 << 20)
    done = cli(real_cluster, "exec", real, "--", "sha256sum", input=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest() and done.returncode == 0
    done = cli(real_cluster, "exec", real, "--", "sh", "-c", "head -c 3000000 /dev/zero")
    assert done.stdout == bytes(3_000_000)
    assert cli(real_cluster, "exec", "--no-stdin", real, "--", "cat", input=b"not sent").stdout == b""
    assert cli(real_cluster, "exec", real, "--", "/no/such/program").returncode == 127


def test_the_log_of_a_sandbox_is_printed(real_cluster, real):
    # Its pod is ready before its program has said anything.
    begun = lambda: sorted(printed(real_cluster, "logs", real).splitlines()) == ["begun", "said"]  # noqa: E731
    kruise.wait_until(begun, 60, "the log")
    assert len(printed(real_cluster, "logs", real, "--tail", "1").splitlines()) == 1
