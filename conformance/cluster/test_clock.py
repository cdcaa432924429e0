"""The operator while its clock jumps. `libfaketime` answers what it asks of the system's clock."""

from __future__ import annotations

import glob
import time

import pytest

from ..installation import wait_until
from .operator import condition, wait_for_reason
from .test_operator_pool import CLAIMS, POOLS, claim, filled, pool, template

#: The reconciles that a pool of three and a claim need, several times over.
MANY = 200


@pytest.fixture
def clock(tmp_path):
    """Sets how far the clock is from the right time, and the environment of a program that has this clock."""
    library, = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    offset = tmp_path / "offset"
    offset.write_text("+0")
    environment = {
        "LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1",
        # The kernel's monotonic clock does not jump.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    return offset.write_text, environment


def test_claims_and_pools_are_served_on_while_the_clock_jumps(operators, cluster, clock):
    set_clock, environment = clock
    operator = operators("jumps", "--leader-elect=true", **environment)
    cluster.apply(template("jumps"), pool("jumps", "jumps", 3))
    filled(cluster, "jumps", 3)
    for number, offset in enumerate(("+1d", "-1d", "+0")):
        set_clock(offset)
        before = operator.counter("shoal_operator_reconciles_total")
        name = f"jumps-{number}"
        cluster.apply(claim(name, "jumps"))
        wait_for_reason(cluster, CLAIMS, name, "DependenciesReady")
        filled(cluster, "jumps", 3)
        wait_until(lambda: is_quiet(operator), 60, "quiet")
        assert operator.counter("shoal_operator_reconciles_total") - before < MANY, offset
    for number in range(3):
        assert condition(cluster.get(CLAIMS, f"jumps-{number}"))["status"] == "True"
    assert cluster.get(POOLS, "jumps")["status"]["readyReplicas"] == 3
    operator.clear()


def is_quiet(operator) -> bool:
    """Whether no object is reconciled for a second."""
    before = operator.counter("shoal_operator_reconciles_total")
    time.sleep(1)
    return before == operator.counter("shoal_operator_reconciles_total")
