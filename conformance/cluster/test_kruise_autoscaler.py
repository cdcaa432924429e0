"""`PoolAutoscaler`, served by `shoal operator`, on a real API server with a fake node."""

from __future__ import annotations

import pytest

from ..installation import wait_until
from .operator import condition
from .test_kruise_sandbox import patch, pod_template, wait_for
from .test_kruise_set import SETS, pool, wait_until_full

KIND = "poolautoscalers.v1alpha1.agents.kruise.io"
#: A pod with this annotation is never reported as running.
HOLD = "fake-node/hold"
#: The most seconds until a schedule for each minute comes due.
MINUTE = 120


@pytest.fixture
def operator(operators, cluster):
    """One that looks every second."""
    started = operators(
        "autoscaler", "--poolautoscaler-sampling-interval-seconds=1", "--poolautoscaler-observation-window-seconds=4",
        "--max-pending-timeout=15",
    )
    yield started
    started.clear()


def scaler(name: str, least: int, most: int, target: str | None = None, **spec) -> dict:
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "PoolAutoscaler", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"kind": "SandboxSet", "name": target or name}, "minReplicas": least, "maxReplicas": most, **spec,
        },
    }


def each_minute(replicas: int, **policy) -> dict:
    return {"name": "each-minute", "schedule": "* * * * *", "targetReplicas": replicas, **policy}


def size(cluster, name: str) -> int:
    return cluster.get(SETS, name)["spec"]["replicas"]


def has_reason(kind: str, reason: str):
    return lambda found: condition(found, kind).get("reason") == reason


def wait_for_reason(cluster, name: str, kind: str, reason: str) -> dict:
    return wait_for(cluster, name, has_reason(kind, reason), reason, KIND)


def events(cluster, name: str) -> list[str]:
    listed = cluster.get("events.events.k8s.io")["items"]
    return [one["reason"] for one in listed if one["regarding"]["kind"] == "PoolAutoscaler" and one["regarding"]["name"] == name]


def test_a_pool_with_too_many_free_sandboxes_shrinks(operator, cluster):
    cluster.apply(pool("shrinks", 12))
    wait_until_full(cluster, "shrinks", 12)
    cluster.apply(scaler("shrinks", 6, 20, capacityPolicy={"targetAvailable": 5}))
    wait_until(lambda: size(cluster, "shrinks") == 6, 60, "six replicas")
    wait_until_full(cluster, "shrinks", 6)

    def sees_six(found: dict) -> bool:
        status = found["status"]
        return status.get("currentReplicas") == 6 and status["currentCapacity"] == {"available": 6}

    seen = wait_for(cluster, "shrinks", sees_six, "it sees six", KIND)
    assert seen["status"]["desiredReplicas"] == 6 and seen["status"]["lastScaleTime"]
    assert has_reason("ScalingActive", "ValidPolicy")(seen) and has_reason("AbleToScale", "ReadyToScale")(seen)
    wait_until(lambda: "ScaledDown" in events(cluster, "shrinks"), 60, "an event")
    listed = cluster.kubectl("get", "pa", "shrinks").split()
    assert listed[:5] == ["NAME", "REFERENCE", "MINREPLICAS", "MAXREPLICAS", "CURRENTREPLICAS"]
    # Somebody changes the size to one that is out of the bounds.
    cluster.kubectl("scale", SETS, "shrinks", "--replicas=30")
    wait_until(lambda: size(cluster, "shrinks") == 20, 60, "the most")
    cluster.delete(KIND, "shrinks")
    assert size(cluster, "shrinks") == 20


def test_a_pool_with_too_few_free_sandboxes_grows_while_they_start(operator, cluster):
    cluster.apply(pool("grows", 6, pod_template(annotations={HOLD: "true"})))
    cluster.apply(scaler("grows", 6, 20, capacityPolicy={"targetAvailable": 5}))
    wait_until(lambda: size(cluster, "grows") == 11, 60, "eleven replicas")
    wait_until(lambda: "ScaledUp" in events(cluster, "grows"), 60, "an event")
    # None of them starts: the pool no longer grows.
    wait_for_reason(cluster, "grows", "AbleToScale", "StartupBudgetExhausted")
    assert size(cluster, "grows") == 11
    wait_until(lambda: "ScaleBlocked" in events(cluster, "grows"), 60, "an event")


@pytest.mark.timeout(600)
def test_a_schedule_sets_the_size_whatever_demand_there_is(operator, cluster):
    cluster.apply(pool("scheduled", 1))
    cluster.apply(scaler(
        "scheduled", 0, 9, cronPolicies=[each_minute(3, timeZone="Asia/Tokyo")],
    ))
    wait_until(lambda: size(cluster, "scheduled") == 3, MINUTE, "three replicas")
    wait_until_full(cluster, "scheduled", 3)
    seen = wait_for(cluster, "scheduled", lambda found: found["status"].get("appliedCronPolicies"), "its record", KIND)
    (first,) = seen["status"]["appliedCronPolicies"]
    assert first["name"] == "each-minute" and first["lastScheduleTime"].endswith(":00Z")
    assert has_reason("ScalingLimited", "DesiredWithinRange")(seen)
    cluster.kubectl("scale", SETS, "scheduled", "--replicas=5")
    wait_until(lambda: size(cluster, "scheduled") == 3, MINUTE, "the next minute")

    def later_than(moment: str):
        return lambda found: found["status"]["appliedCronPolicies"][0]["lastScheduleTime"] > moment

    # The size is written before the record.
    seen = wait_for(cluster, "scheduled", later_than(first["lastScheduleTime"]), "its next record", KIND)
    later = seen["status"]["appliedCronPolicies"][0]["lastScheduleTime"]
    # Suspended, it leaves the size alone; afterwards it resumes.
    patch(cluster, KIND, "scheduled", {"spec": {"suspend": True}})
    wait_for_reason(cluster, "scheduled", "ScalingActive", "Suspended")
    cluster.kubectl("scale", SETS, "scheduled", "--replicas=4")
    wait_until(lambda: later_than(later)(cluster.get(KIND, "scheduled")), MINUTE, "another minute")
    assert size(cluster, "scheduled") == 4
    patch(cluster, KIND, "scheduled", {"spec": {"suspend": False, "cronPolicies": [each_minute(20)]}})
    wait_until(lambda: size(cluster, "scheduled") == 9, MINUTE, "the most")
    seen = wait_for_reason(cluster, "scheduled", "ScalingLimited", "TooManyReplicas")
    assert seen["status"]["desiredReplicas"] == 9


def test_the_oldest_of_two_autoscalers_decides(operator, cluster):
    cluster.apply(pool("contested", 1))
    cluster.apply(scaler("contested-a", 0, 9, "contested", cronPolicies=[each_minute(2)]))
    wait_until(lambda: size(cluster, "contested") == 2, MINUTE, "two replicas")
    # Both may have the same second of creation: the name decides then.
    cluster.apply(scaler("contested-b", 0, 9, "contested", cronPolicies=[each_minute(5)]))
    seen = wait_for_reason(cluster, "contested-b", "ScalingActive", "ConflictingAutoscaler")
    assert "contested-a" in condition(seen, "ScalingActive")["message"]
    assert size(cluster, "contested") == 2
    cluster.delete(KIND, "contested-a")
    wait_until(lambda: size(cluster, "contested") == 5, MINUTE, "the other one")


def test_a_pool_that_is_missing_is_told_and_found_later(operator, cluster):
    cluster.apply(scaler("late", 0, 9, cronPolicies=[each_minute(2)]))
    seen = wait_for_reason(cluster, "late", "AbleToScale", "FailedGetTarget")
    assert has_reason("ScalingActive", "FailedGetTarget")(seen)
    told = wait_until(lambda: events(cluster, "late"), 60, "an event")
    assert set(told) == {"FailedGetScale"}
    cluster.apply(pool("late", 1))
    wait_until(lambda: size(cluster, "late") == 2, MINUTE, "two replicas")
    wait_for_reason(cluster, "late", "AbleToScale", "ReadyToScale")
    cluster.delete(SETS, "late")
    wait_for_reason(cluster, "late", "AbleToScale", "FailedGetTarget")


@pytest.mark.parametrize("spec, told", [
    ({}, "at least one of"), ({"cronPolicies": []}, "at least one of"),
    ({"cronPolicies": [each_minute(1)], "minReplicas": 10}, "must not be more than maxReplicas"),
    ({"cronPolicies": [each_minute(1), each_minute(2)]}, "duplicate entries"),
    ({"cronPolicies": [each_minute(-1)]}, "greater than or equal to 0"),
    ({"capacityPolicy": {"targetAvailable": "half"}}, "targetAvailable"),
    ({"capacityPolicy": {"targetAvailable": 5, "scaleUp": {"stabilizationWindowSeconds": 5}}}, "stabilizationWindowSeconds"),
    ({"cronPolicies": [each_minute(1)], "scaleTargetRef": {"kind": "Deployment", "name": "x"}}, "Unsupported value"),
])
def test_what_the_definition_refuses(operator, cluster, spec, told):
    with pytest.raises(Exception, match=told):
        cluster.apply(scaler("refused", 1, 9, **spec) if "minReplicas" not in spec and "scaleTargetRef" not in spec
                      else {**scaler("refused", 1, 9), "spec": {**scaler("refused", 1, 9)["spec"], **spec}})


@pytest.mark.parametrize("name, spec, told", [
    ("no-schedule", {"cronPolicies": [each_minute(1, schedule="whenever")]}, "schedule"),
    ("no-zone", {"cronPolicies": [each_minute(1, timeZone="Europe/Atlantis")]}, "time zone"),
    ("no-way-down", {"capacityPolicy": {"targetAvailable": 5}}, "minReplicas"),
])
def test_a_policy_that_contradicts_itself_changes_nothing(operator, cluster, name, spec, told):
    cluster.apply(pool(name, 1))
    cluster.apply(scaler(name, 2, 9, **spec))
    seen = wait_for_reason(cluster, name, "ScalingActive", "InvalidPolicy")
    assert told in condition(seen, "ScalingActive")["message"]
    assert size(cluster, name) == 1
    wait_until(lambda: "FailedComputeReplicas" in events(cluster, name), 60, "an event")
