"""Processors that a create asks for, of pods that wait in a pool: a real kubelet changes them in place."""

from __future__ import annotations

import pytest
from e2b import Sandbox
from e2b.exceptions import SandboxException

from ..installation import wait_until
from .test_sdk import api, available, members, operator, pool, resource_of  # noqa: F401

E2B = "e2b.agents.kruise.io/"
#: The processors of the pool's pods, in microseconds of every 100,000: half a core at most.
QUOTA = "50000"


def container(cluster, pod: str) -> dict:
    """The status of a pod's container, as its kubelet reports it."""
    [status] = cluster.get("pods", pod)["status"]["containerStatuses"]
    return status


def processors(cluster, pod: str) -> tuple[str, str]:
    """The request and the limit that are in force."""
    resources = container(cluster, pod).get("resources", {})
    return resources.get("requests", {}).get("cpu", ""), resources.get("limits", {}).get("cpu", "")


def quota(sandbox: Sandbox) -> str:
    """What the kernel grants, as the container sees it in either version of cgroups."""
    read = "cat /sys/fs/cgroup/cpu.max || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    return sandbox.commands.run(read).stdout.split()[0]


@pytest.fixture
def waiting(pool, real_cluster):  # noqa: F811
    """The pod of a member that waits in the pool."""

    def member() -> list[dict]:
        # The count may be older than the claim of the last case.
        return members(real_cluster, pool) if available(real_cluster, pool) >= 1 else []

    return wait_until(member, 120, "a member waits")[0]["metadata"]["name"]


CHANGES = {
    "a factor": ({"cpu-scale-factor": "2"}, ("100m", "1"), "100000"),
    "a factor below one": ({"cpu-scale-factor": "0.5"}, ("25m", "250m"), "25000"),
    "a limit": ({"cpu-limit": "750m"}, ("50m", "750m"), "75000"),
    "both": ({"cpu-request": "200m", "cpu-limit": "1500m"}, ("200m", "1500m"), "150000"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_container_has_other_processors(pool, waiting, api, real_cluster, change):  # noqa: F811
    options, wanted, wanted_quota = CHANGES[change]
    before = container(real_cluster, waiting)
    sandbox = Sandbox.create(pool, metadata={E2B + key: value for key, value in options.items()}, timeout=300, **api)
    assert resource_of(sandbox) == waiting, "it was claimed, not created"
    # The create waits until the kubelet reports them.
    assert processors(real_cluster, waiting) == wanted
    after = container(real_cluster, waiting)
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert after["state"]["running"] == before["state"]["running"], "it goes on as before"
    if "runc" in pool:
        assert quota(sandbox) == wanted_quota
    sandbox.kill()


def test_an_early_return_does_not_wait(pool, waiting, api, real_cluster):  # noqa: F811
    asked = {f"{E2B}cpu-scale-factor": "3", f"{E2B}cpu-resize-early-return": "true"}
    sandbox = Sandbox.create(pool, metadata=asked, timeout=300, **api)
    assert sandbox.commands.run("echo here").stdout == "here\n"
    wait_until(lambda: processors(real_cluster, waiting) == ("150m", "1500m"), 60, "the kubelet has changed them")
    assert container(real_cluster, waiting)["restartCount"] == 0
    sandbox.kill()


def test_more_than_the_node_has_is_an_error_and_costs_no_sandbox(pool, waiting, api, real_cluster):  # noqa: F811
    with pytest.raises(SandboxException) as refused:
        Sandbox.create(pool, metadata={f"{E2B}cpu-scale-factor": "1000"}, timeout=300, **api)
    assert "cpu" in str(refused.value).lower() or "processor" in str(refused.value).lower(), refused.value
    assert Sandbox.list(**api).next_items() == []
    wait_until(lambda: available(real_cluster, pool) >= 1, 120, "a member waits")
    sandbox = Sandbox.create(pool, timeout=300, **api)
    if "runc" in pool:
        assert quota(sandbox) == QUOTA
    sandbox.kill()


@pytest.mark.parametrize("factor", ["0", "-1", "nan", "two"])
def test_a_factor_that_is_none_is_refused_before_anything_is_claimed(pool, waiting, api, real_cluster, factor):  # noqa: F811
    with pytest.raises(SandboxException, match="cpu-scale-factor"):
        Sandbox.create(pool, metadata={f"{E2B}cpu-scale-factor": factor}, timeout=300, **api)
    assert [one["metadata"]["name"] for one in members(real_cluster, pool)] == [waiting]
