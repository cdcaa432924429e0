"""Claims of `agents.kruise.io` while the API server loses answers and operators die. No other operator runs."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from ..installation import wait_until
from .proxy import CALM, Faults
from .test_kruise_sandboxclaim import CLAIMS, OWNER, PATIENT, claim, completed, of_claim
from .test_kruise_set import pool, wait_until_full


@pytest.mark.timeout(600)
def test_nothing_is_claimed_twice_while_answers_are_lost_and_operators_die(operators, cluster, proxy):
    operator = operators("lossy", "--leader-elect=false", configuration=proxy.configuration)
    cluster.apply(pool("storm", 8))
    wait_until_full(cluster, "storm", 8)
    proxy.inject(Faults(lost=0.4, refused=0.1, codes=(409, 500)))
    claims = [claim(f"storm-{number}", "storm", 3, **PATIENT) for number in range(10)]
    begun = threading.Thread(target=cluster.apply, args=claims[5:])
    cluster.apply(*claims[:5])
    begun.start()
    for number in range(3):
        wait_until(lambda: sum(proxy.injected.values()) >= 10 * (number + 1), 120, "faults")
        operator.kill()
        operator = operators(f"lossy-{number}", "--leader-elect=false", configuration=proxy.configuration)
    begun.join()
    proxy.inject(CALM)
    for one in claims:
        assert completed(cluster, one["metadata"]["name"])["status"]["claimedReplicas"] == 3
    owners = {one["metadata"]["uid"]: one["metadata"]["name"] for one in cluster.get(CLAIMS)["items"]}
    held = [one for number in range(10) for one in of_claim(cluster, f"storm-{number}")]
    assert Counter(owners[one["metadata"]["annotations"][OWNER]] for one in held) == {
        f"storm-{number}": 3 for number in range(10)
    }
    wait_until_full(cluster, "storm", 8)
    operator.clear()
