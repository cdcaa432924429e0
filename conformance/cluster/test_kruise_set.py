"""`SandboxSet`, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import datetime

from ..installation import wait_until
from .api import Api, Watch
from .test_kruise_sandbox import KIND, missing, patch, pod_template, wait_for

SETS = "sandboxsets.v1alpha1.agents.kruise.io"
TEMPLATES = "sandboxtemplates.agents.kruise.io"


def pool(name: str, replicas: int, template: dict | None = None, **spec) -> dict:
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": template or pod_template(), **spec},
    }


def members(cluster, name: str) -> list[dict]:
    selector = f"agents.kruise.io/sandbox-pool={name},agents.kruise.io/sandbox-claimed=false"
    return cluster.get(KIND, labels=selector)["items"]


def uids(found: list[dict]) -> set[str]:
    return {one["metadata"]["uid"] for one in found}


def is_full(count: int):
    def holds(found: dict) -> bool:
        status = found.get("status", {})
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return current and [status.get(field) for field in ("replicas", "availableReplicas", "updatedAvailableReplicas")] == [count] * 3

    return holds


def wait_until_full(cluster, name: str, count: int) -> dict:
    return wait_for(cluster, name, is_full(count), f"{count} available", SETS)


def test_a_pool_is_filled(operator, cluster):
    cluster.apply(pool("fills", 5))
    seen = wait_until_full(cluster, "fills", 5)
    found = members(cluster, "fills")
    assert len(found) == 5
    labels = found[0]["metadata"]["labels"]
    assert labels["agents.kruise.io/template-hash"] == seen["status"]["updateRevision"]
    assert labels["agents.kruise.io/sandbox-template"] == "fills"
    assert found[0]["metadata"]["generateName"] == "fills-"
    assert found[0]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    template = cluster.get("sandboxtemplates.agents.kruise.io", seen["status"]["currentRevision"])
    assert template["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] is False
    cluster.delete(SETS, "fills")
    wait_until(lambda: not members(cluster, "fills"), 60, "no members")


def test_a_pool_is_scaled(operator, cluster):
    cluster.apply(pool("scales", 1))
    wait_until_full(cluster, "scales", 1)
    cluster.kubectl("scale", SETS, "scales", "--replicas=6")
    wait_until_full(cluster, "scales", 6)
    # Dashboards have these names.
    series = 'sandboxset_available_replicas{namespace="default",name="scales"} 6'
    wait_until(lambda: series in operator.read(operator.metrics, "/metrics").splitlines(), 60, series)
    running = [line for line in operator.read(operator.metrics, "/metrics").splitlines() if 'phase="Running"' in line]
    assert len(running) >= 6 and all(line.startswith("sandbox_status_phase{") for line in running)
    cluster.kubectl("scale", SETS, "scales", "--replicas=2")
    wait_until_full(cluster, "scales", 2)
    wait_until(lambda: len(members(cluster, "scales")) == 2, 60, "two members")


def test_a_claimed_sandbox_is_replaced_and_stays(operator, cluster):
    cluster.apply(pool("claimed", 2))
    wait_until_full(cluster, "claimed", 2)
    before = members(cluster, "claimed")
    name = before[0]["metadata"]["name"]
    claim = {"labels": {"agents.kruise.io/sandbox-claimed": "true"}, "ownerReferences": None}
    patch(cluster, KIND, name, {"metadata": claim})
    wait_until(lambda: len(uids(members(cluster, "claimed")) - uids(before)) == 1, 60, "another member")
    wait_until_full(cluster, "claimed", 2)
    cluster.delete(SETS, "claimed")
    wait_until(lambda: not members(cluster, "claimed"), 60, "no members")
    assert not missing(cluster, KIND, name)


def test_a_failed_sandbox_is_replaced(operator, cluster):
    cluster.apply(pool("heals", 2))
    wait_until_full(cluster, "heals", 2)
    before = members(cluster, "heals")
    cluster.delete("pod", before[0]["metadata"]["name"])
    wait_until(lambda: before[0]["metadata"]["uid"] not in uids(members(cluster, "heals")), 60, "its end")
    wait_until_full(cluster, "heals", 2)


def test_a_set_whose_sandboxes_fail_makes_them_less_and_less_often(operator, cluster):
    # The times of the API server: the events of the watch come late on a machine with much to do.
    made: dict[str, datetime.datetime] = {}

    def see(kind: str, sandbox: dict, _: float) -> None:
        metadata = sandbox["metadata"]
        if kind == "ADDED" and metadata.get("labels", {}).get("agents.kruise.io/sandbox-pool") == "fails":
            made.setdefault(metadata["uid"], datetime.datetime.fromisoformat(metadata["creationTimestamp"]))

    watch = Watch(Api(cluster), "/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxes", see)
    try:
        cluster.apply(pool("fails", 1, pod_template(annotations={"fake-node/exit": "1"})))
        wait_until(lambda: len(made) >= 4, 120, "the fourth sandbox")
    finally:
        watch.close()
    times = sorted(made.values())
    # In whole seconds: whatever a second began with, two times that are a second apart differ by one.
    waits = [(after - before).total_seconds() for before, after in zip(times, times[1:])]
    assert all(wait >= least for wait, least in zip(waits, (1, 2, 4))), waits
    selected = "involvedObject.name=fails,reason=FailedSandboxDeleted"
    found = wait_until(lambda: cluster.get("events", fields=selected)["items"], 60, "the event")
    assert "less and less often" in found[0]["message"]
    cluster.delete(SETS, "fails")


def test_a_change_of_the_template_replaces_all(operator, cluster):
    cluster.apply(pool("rolls", 4, updateStrategy={"maxUnavailable": 1}))
    first = wait_until_full(cluster, "rolls", 4)
    before = uids(members(cluster, "rolls"))
    patch(cluster, SETS, "rolls", {"spec": {"template": pod_template("500m")}})
    wait_until(lambda: not uids(members(cluster, "rolls")) & before, 60, "new members")
    seen = wait_until_full(cluster, "rolls", 4)
    assert seen["status"]["updateRevision"] != first["status"]["updateRevision"]


def test_a_limit_of_starting_sandboxes_holds(operator, cluster):
    held = pod_template(annotations={"fake-node/hold": "true"})
    cluster.apply(pool("limited", 10, held, scaleStrategy={"maxUnavailable": "30%"}))
    wait_for(cluster, "limited", lambda one: one.get("status", {}).get("replicas") == 3, "three replicas", SETS)
    assert len(members(cluster, "limited")) == 3
    cluster.delete(SETS, "limited")


def test_a_template_of_somebody_else_is_not_taken_for_that_of_the_set(operator, cluster):
    cluster.apply(pool("taken", 0))
    seen = wait_for(cluster, "taken", lambda one: one.get("status", {}).get("currentRevision"), "a revision", SETS)
    name = seen["status"]["currentRevision"]
    cluster.delete(SETS, "taken")
    cluster.delete(TEMPLATES, name, missing_ok=True)
    foreign = {"apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxTemplate", "metadata": {"name": name}}
    cluster.apply(foreign | {"spec": {"template": pod_template("900m")}})
    cluster.apply(pool("taken", 0))

    def is_told() -> bool:
        events = cluster.get("events", fields="involvedObject.name=taken")["items"]
        return any(one["reason"] == "TemplateNameTaken" and name in one["message"] for one in events)

    wait_until(is_told, 60, "an event that says so")
    assert not cluster.get(SETS, "taken").get("status", {}).get("currentRevision")
