"""Operator and router as users install them: their image on a real node, from the chart and from the file for
kubectl."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from scripts import oci_archive

from .. import examples
from ..installation import ROOT, free_port, program, wait_until
from . import manifests, sdk_cases
from .api import Api, Refused
from .images import SHELL
from .invariants import is_ready
from .operator import apply_in_time, wait_for_reason
from .router import SERVES, SERVING, USER, token_of
from .test_cluster import pod
from .test_operator_sandbox import ALPHA, BETA, sandbox

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
IMAGE = f"shoal.invalid/shoal:{VERSION}"
INSIDE = ("--namespace", manifests.NAMESPACE)


@pytest.fixture(scope="module")
def imported(real_cluster, tmp_path_factory):
    """A cluster whose node has the image of the program under test."""
    import_program(real_cluster.node, tmp_path_factory.mktemp("image"))
    return real_cluster


def import_program(node, directory) -> None:
    """Gives a node the image of the program under test."""
    archive = directory / "shoal.tar"
    assert oci_archive.write_shoal(program(), archive) == IMAGE
    node.run("ctr", "--namespace", "k8s.io", "images", "import", str(archive))


@pytest.fixture(scope="module", params=["helm", "kubectl"])
def installed(imported, request):
    if request.param == "helm":
        # As the rendered file has it: the operator's pods keep the strictest standard.
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        imported.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": manifests.NAMESPACE, "labels": labels}})
        port = f"networkPolicy.apiServerPorts={{{imported.port}}}"
        options = ("--set", port, "--wait", "--timeout", "240s")
        notes = helm(imported, "install", manifests.RELEASE, manifests.CHART, *options)
        assert f"http://sandbox-router-svc.{manifests.NAMESPACE}:8080" in notes
    else:
        imported.kubectl("apply", "-f", str(manifests.RENDERED))
        for name in ("shoal", "shoal-router"):
            imported.kubectl("rollout", "status", f"deployment/{name}", *INSIDE, "--timeout=180s", timeout=200)
    yield request.param
    if request.param == "helm":
        helm(imported, "uninstall", manifests.RELEASE, "--wait", "--timeout", "240s")
        kept = {one["metadata"]["name"] for one in imported.get("crd")["items"]}
        assert "sandboxes.agents.x-k8s.io" in kept
        imported.delete("crd", *kept)
        imported.delete("namespace", manifests.NAMESPACE)
    else:
        imported.kubectl("delete", "-f", str(manifests.RENDERED), "--timeout=180s", timeout=200)


def helm(cluster, *arguments: object) -> str:
    done = manifests.helm(*arguments, *INSIDE, environment=cluster.environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def running(name: str, version: str = "v1beta1") -> dict:
    """A sandbox whose program keeps running: the shell of the image ends without input."""
    made = sandbox(name, version)
    made["spec"]["podTemplate"]["spec"]["containers"][0]["command"] = ["sleep", "1000"]
    return made


def nodes(cluster, name: str) -> list[str]:
    """On which nodes the pods of one of the chart's programs are."""
    selected = cluster.get("pods", labels=f"app.kubernetes.io/name={name}", namespace=manifests.NAMESPACE)
    return [one["spec"]["nodeName"] for one in selected["items"]]


def ask_router(cluster, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict]:
    """The status and the JSON of an answer, through the router's service. The API server is its client."""
    connection = Api(cluster).connect()
    service = f"/api/v1/namespaces/{manifests.NAMESPACE}/services/sandbox-router-svc:8080"
    connection.request("GET", f"{service}/proxy{path}", headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body)


def test_the_chart_has_the_version_of_the_program():
    chart = yaml.safe_load((manifests.CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == VERSION


def test_the_image_runs(imported):
    asks = pod("version", restartPolicy="Never")
    asks["spec"]["containers"][0] |= {"image": IMAGE, "command": None, "args": ["--version"], "imagePullPolicy": "Never"}
    imported.apply(asks)
    done = lambda: imported.get("pod", "version")["status"].get("phase") == "Succeeded"  # noqa: E731
    wait_until(done, 120, "the end of the program")
    wait_until(lambda: imported.kubectl("logs", "version") == f"shoal {VERSION}\n", 60, "what it printed")
    imported.delete("pod", "version")


def test_the_router_serves_sandboxes_from_its_deployment(imported, installed):
    cluster, name = imported, f"routed-{installed}"
    assert nodes(cluster, "shoal-router") == [cluster.node.name] * 2
    # The API server learns where the service's pods are after they are ready.
    healthy = (200, {"status": "ok"})
    wait_until(lambda: ask_router(cluster, "/healthz") == healthy, 60, "the router")
    routed = sandbox(name)
    routed["spec"]["podTemplate"]["spec"]["containers"] = [SERVING]
    cluster.apply(routed)
    wait_for_reason(cluster, BETA, name, "DependenciesReady")
    # The API server keeps `Authorization` to itself.
    key = {"X-API-Key": token_of(cluster, "user", USER)}
    # Each of the two learns of the sandbox from its own watch.
    wait_until(lambda: ask_router(cluster, "/", {"X-Sandbox-ID": name} | key) == (200, SERVES), 60, "the route")
    assert ask_router(cluster, "/", {"X-Sandbox-ID": name})[0] == 401
    stranger = {"X-API-Key": token_of(cluster, "stranger")}
    assert ask_router(cluster, "/", {"X-Sandbox-ID": name} | stranger)[0] == 403
    cluster.delete(BETA, name)


def test_the_operator_serves_sandboxes_from_its_deployment(imported, installed):
    """In both versions, so the API server reaches the webhook in the pods."""
    cluster = imported
    assert nodes(cluster, "shoal") == [cluster.node.name] * 2
    cluster.apply(running(f"beta-{installed}"))
    apply_in_time(cluster, running(f"alpha-{installed}", "v1alpha1"))
    wait_for_reason(cluster, BETA, f"beta-{installed}", "DependenciesReady")
    wait_for_reason(cluster, ALPHA, f"alpha-{installed}", "DependenciesReady")
    lease = cluster.get("lease", "a3317529.agent-sandbox.x-k8s.io", namespace=manifests.NAMESPACE)
    # The leader's pod goes; the other one takes over.
    leader = lease["spec"]["holderIdentity"].split("_")[0]
    cluster.delete("pod", leader, namespace=manifests.NAMESPACE)
    change = json.dumps({"spec": {"operatingMode": "Suspended"}})
    cluster.kubectl("patch", BETA, f"beta-{installed}", "--type=merge", "-p", change)
    wait_for_reason(cluster, BETA, f"beta-{installed}", "SandboxSuspended")
    if installed == "helm":
        # The webhook's authority, which the operator put into the definitions, stays.
        helm(cluster, "upgrade", manifests.RELEASE, manifests.CHART, "--reuse-values", "--set", "replicas=1",
             "--wait", "--timeout", "240s")

        def converted():
            try:
                return cluster.get(ALPHA, f"beta-{installed}")
            except Refused as refused:
                # It may ask a pod of the webhook that has just ended.
                assert refused.status >= 500, refused
                return None

        assert wait_until(converted, 60, "a conversion")["spec"]["replicas"] == 0
    cluster.delete(BETA, f"beta-{installed}", f"alpha-{installed}")


def test_the_tutorial_of_a_cluster(imported, installed, tmp_path):
    """The commands of the page, one after the other. Only the image and the port are others."""
    if installed != "helm":
        pytest.skip("the page is run once")
    page = (ROOT / "docs" / "tutorials" / "cluster.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    # After a failure, too, nothing forwards the port.
    script = "\n".join(["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT", *blocks]).replace("3000", str(free_port()))
    [manifest] = re.findall(r"<<'EOF'\n(.*?)^EOF$", script, re.DOTALL | re.MULTILINE)
    script = script.replace(manifest, json.dumps(on_this_machine(yaml.safe_load(manifest))) + "\n")
    assert "\npython3 parallel.py\n" in script
    script = script.replace("\npython3 parallel.py\n", f"\npython3 parallel.py || test $? = {128 + examples.ABORTED}\n")
    environment = imported.environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    shutil.copy(examples.EXAMPLES / "parallel.py", tmp_path)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(examples.OUTPUT["parallel.py"], done.stdout), done.stdout
    assert re.search(r"(?m)^base-\S+ ", done.stdout), done.stdout


def on_this_machine(pool: dict) -> dict:
    """A pool whose image has Python: that of this machine."""
    spec, theirs = (one["spec"]["template"]["spec"] for one in (pool, sdk_cases.pool("base", "runc")))
    container, other = spec["containers"][0], theirs["containers"][0]
    container |= {"image": other["image"], "volumeMounts": other["volumeMounts"]}
    spec |= {"volumes": theirs["volumes"], "terminationGracePeriodSeconds": 0}
    return pool


def test_an_upgrade_of_the_chart_keeps_sandboxes(imported, installed, tmp_path):
    """To a chart of the next version, with another value: new pods of the programs, and the same ones of sandboxes."""
    if installed != "helm":
        pytest.skip("the file for kubectl has no versions")
    cluster = imported
    pool = {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": "kept"},
        "spec": {"replicas": 2, "template": {"spec": {
            "containers": [{"name": "main", "image": SHELL, "command": ["sleep", "1000000"]}], "terminationGracePeriodSeconds": 0,
        }}},
    }
    cluster.apply(pool, running("kept"))
    wait_for_reason(cluster, BETA, "kept", "DependenciesReady")
    full = lambda: cluster.get("sandboxsets.agents.kruise.io", "kept").get("status", {}).get("availableReplicas") == 2  # noqa: E731
    wait_until(full, 120, "a full pool")
    before = pods_of_sandboxes(cluster)
    assert len(before) == 3
    chart = tmp_path / "shoal"
    shutil.copytree(manifests.CHART, chart)
    described = chart / "Chart.yaml"
    described.write_text(re.sub(r"(?m)^version: .*$", "version: 99.0.0", described.read_text()))
    programs = lambda: {one["metadata"]["uid"] for one in cluster.get("pods", labels="app.kubernetes.io/name=shoal", namespace=manifests.NAMESPACE)["items"]}  # noqa: E731
    former = programs()
    helm(cluster, "upgrade", manifests.RELEASE, chart, "--reuse-values", "--set-string", "podAnnotations.upgraded=true",
         "--wait", "--timeout", "240s")
    wait_until(lambda: not programs() & former, 90, "other pods of the operator")
    listed = json.loads(helm(cluster, "list", "--output", "json"))
    assert [one["chart"] for one in listed] == ["shoal-99.0.0"]
    # The new operator works: a member that goes is replaced, and nothing else has changed.
    name = next(name for name in before if name.startswith("kept-"))
    cluster.delete("sandboxes.agents.kruise.io", name)
    # The set's status may be the one from before.
    all_ready = lambda: all(is_ready(one) for one in cluster.get("pods")["items"] if one["metadata"]["name"].startswith("kept-"))  # noqa: E731
    replaced = lambda: len(pods := pods_of_sandboxes(cluster)) == 3 and name not in pods  # noqa: E731
    wait_until(replaced, 120, "a new member")
    wait_until(lambda: full() and all_ready(), 120, "a full pool")
    after = pods_of_sandboxes(cluster)
    assert {name: uid for name, uid in before.items() if name in after} == {key: uid for key, uid in before.items() if key != name}
    cluster.delete("sandboxsets.agents.kruise.io", "kept")
    cluster.delete(BETA, "kept")


def pods_of_sandboxes(cluster) -> dict[str, str]:
    """The UIDs of the pods in the default namespace."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in cluster.get("pods")["items"] if one["metadata"]["name"].startswith("kept")}
