"""`shoal operator` while the API server refuses, delays, forgets and restarts, and while operators die."""

from __future__ import annotations

import itertools
import signal
import time

import pytest

from ..installation import wait_until
from .api import Api
from .invariants import hold, violations
from .operator import leads
from .proxy import CALM, Faults
from .storm import POOL, Users

#: How long each fault lasts, in seconds.
STORM = 6
#: The most seconds until everything is as it should be, after the last fault.
CALM_SECONDS = 120

FAULTS = {
    "conflicts": Faults(refused=0.4, codes=(409,)),
    "throttled": Faults(refused=0.3, codes=(429,), retry_after=1, reads=True),
    "failing": Faults(refused=0.3, codes=(500, 503, 504), reads=True),
    "answers-lost": Faults(lost=0.4),
    "slow": Faults(delay=1),
    "watches-cut": Faults(watch=1),
    "watches-expired": Faults(watch=1, expired=0.5),
    "everything": Faults(
        refused=0.15, codes=(409, 429, 500, 503), reads=True, lost=0.1, delay=0.2, watch=2, expired=0.2
    ),
}

#: Each case has a namespace of its own.
NAMESPACES = itertools.count()


@pytest.fixture
def users(cluster, definitions):
    """Users in a namespace that is empty at first."""
    number = next(NAMESPACES)
    users = Users(Api(cluster, namespace=f"storm-{number}"), seed=number)
    users.begin()
    yield users
    users.end()


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_the_api_server_leave_nothing_behind(users, operators, proxy, name):
    operators("storm", "--leader-elect=false", configuration=proxy.configuration)
    hold(users.api, CALM_SECONDS)
    proxy.inject(FAULTS[name])
    begun, before = time.monotonic(), proxy.requests()
    users.churn(STORM)
    rate = (proxy.requests() - before) / (time.monotonic() - begun)
    proxy.inject(CALM)
    hold(users.api, CALM_SECONDS)
    print(f"{name}: {users.created} claims, {rate:.0f} requests a second, faults: {dict(proxy.injected)}")
    assert name == "slow" or sum(proxy.injected.values()) > 0, "no fault was injected"
    # Twenty writes for each claim and its refill, with every one of them repeated.
    assert rate * STORM < 40 * (users.created + POOL), f"a hot loop: {rate:.0f} requests a second"
    # Statuses that tell of progress may wait for a second.
    wait_until(lambda: proxy.quiet() <= 4, 60, f"quiet, not {proxy.seen}")


@pytest.mark.parametrize("code", [500, 503])
def test_an_api_server_that_refuses_every_write_is_asked_less_and_less(users, operators, proxy, code):
    """The client repeats requests after a 503, the queue reconciles after a 500."""
    operator = operators("storm", "--leader-elect=false", configuration=proxy.configuration)
    hold(users.api, CALM_SECONDS)
    proxy.inject(Faults(refused=1, codes=(code,)))
    for _ in range(6):
        users.claim()
    first = proxy.quiet(4)
    later = proxy.quiet(8) / 2
    failures = operator.counter("shoal_operator_reconcile_failures_total")
    proxy.inject(CALM)
    hold(users.api, CALM_SECONDS)
    print(f"{code}: {first} requests in 4 s, then {later:.0f}; {failures:.0f} failed reconciles")
    assert proxy.injected[str(code)] > 6
    assert code != 500 or failures > 6
    assert later <= max(first, 20)
    # Six claims and a pool, each about ten times within 12 s.
    assert failures < 7 * 16


def test_the_operator_outlives_a_restart_of_the_api_server(users, operators, cluster):
    operators("storm", "--leader-elect=false")
    users.churn(2)
    for _ in range(4):
        users.claim()
    cluster.restart_api_server()
    users.churn(2)
    hold(users.api, CALM_SECONDS)


def test_an_operator_that_is_killed_again_and_again_leaves_nothing_behind(users, operators):
    for _ in range(6):
        operator = operators("storm", "--leader-elect=false")
        # In the middle of the first claims, or between two of them.
        users.churn(users.random.uniform(0.2, 1.5))
        operator.kill()
        users.churn(0.3)
    operators("storm", "--leader-elect=false")
    hold(users.api, CALM_SECONDS)


def test_a_second_operator_takes_over_when_the_leader_dies(users, operators):
    leader = operators("storm-leader", "--leader-elect=true")
    wait_until(lambda: leads(leader), 90, "a leader")
    other = operators("storm-other", "--leader-elect=true")
    users.churn(2)
    assert not leads(other), "two operators lead"
    leader.kill()
    users.churn(2)
    wait_until(lambda: leads(other), 90, "another leader")
    hold(users.api, CALM_SECONDS)


def test_a_leader_that_was_asleep_ends_when_another_leads(users, operators, cluster):
    leader = operators("storm-leader", "--leader-elect=true")
    wait_until(lambda: leads(leader), 90, "a leader")
    other = operators("storm-other", "--leader-elect=true")
    process = cluster.processes.running["storm-leader"]
    process.send_signal(signal.SIGSTOP)
    users.churn(2)
    wait_until(lambda: leads(other), 90, "another leader")
    for _ in range(3):
        users.claim()
    process.send_signal(signal.SIGCONT)
    users.churn(2)
    assert wait_until(lambda: process.poll() is not None, 60, "the end of the first leader")
    hold(users.api, CALM_SECONDS)


def test_violations_are_found(users, operators):
    """The check itself can fail."""
    operator = operators("storm", "--leader-elect=false")
    hold(users.api, CALM_SECONDS)
    operator.kill()
    users.claim()
    assert any("is not ready" in found for found in violations(users.api))
    member = users.api.items("sandboxes")[0]["metadata"]["name"]
    users.api.patch(users.api.path("sandboxes", member), {"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "SandboxClaim", "name": "gone", "uid": "gone", "controller": True}]}})
    assert any("is an orphan" in found for found in violations(users.api))
    assert any("pool storm" in found for found in violations(users.api))
