"""The cluster of this suite. Its programs are compiled when they are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ..shared import WORK, data_directory, remove
from .cluster import Cluster
from .operator import Operator
from .proxy import Proxy
from .serving import Replica, first_key


#: The files that show how busy the machine is.
LOAD = ("loadavg", "pressure/cpu", "pressure/io", "pressure/memory")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the cluster's processes, and how busy the machine is."""
    report = yield
    if report.failed:
        clusters = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Cluster)]
        state = [one.processes.state() for one in clusters]
        load = [f"{name}: {path.read_text()}" for name in LOAD if (path := Path("/proc") / name).exists()]
        report.sections.append(("cluster", "\n".join([*state, *load])))
    return report


def cluster_of(name: str, node: bool):
    # Suites that run side by side have clusters of their own. The path is short: it names sockets.
    suite = data_directory().parent.name if "SHOAL_TEST_DATA" in os.environ else "cluster"
    directory = WORK / suite / f"{name}-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    remove(directory)
    cluster = Cluster(directory, node=node)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def cluster():
    """An API server with a fake node: pods are ready at once, or fail on demand."""
    yield from cluster_of("fake", node=False)


@pytest.fixture(scope="session")
def real_cluster():
    """A cluster with a real node, which runs pods with runc and gVisor."""
    if os.geteuid() != 0:
        pytest.skip("a node needs root")
    yield from cluster_of("real", node=True)


def operator_of(cluster: Cluster, *flags: str):
    """An operator with its webhook and these flags."""
    operator = Operator(cluster)
    operator.install()
    operator.start(*flags)
    yield operator
    operator.clear()
    operator.stop()


def sdk_of(cluster: Cluster):
    """Starts a replica. The value is how the SDK reaches it."""
    replica = Replica(cluster, "replica-1")
    replica.start()
    yield {"api_key": first_key(cluster), "api_url": replica.url, "sandbox_url": replica.url}
    replica.kill()


def replicas_of(cluster: Cluster, name: str, count: int):
    """Starts so many replicas."""
    started = [Replica(cluster, f"{name}-{number}") for number in range(1, count + 1)]
    for replica in started:
        replica.start()
    yield started
    for replica in started:
        replica.kill()


@pytest.fixture(scope="module")
def operator(cluster):
    """One operator with its webhook."""
    yield from operator_of(cluster)


@pytest.fixture(scope="module")
def real_operator(real_cluster):
    """The same beside the cluster with a real node."""
    yield from operator_of(real_cluster)


@pytest.fixture(scope="module")
def definitions(cluster):
    """The definitions. Nothing listens at their webhook: the module uses the stored version only."""
    Operator(cluster).install()


@pytest.fixture
def operators(cluster, definitions):
    """Starts operators without a webhook, and kills them at the end."""
    started: list[Operator] = []

    def start(name: str, *flags: str, configuration=None, **environment: str) -> Operator:
        operator = Operator(cluster, name, configuration)
        started.append(operator)
        operator.start("--enable-webhook=false", *flags, **environment)
        return operator

    yield start
    for operator in started:
        operator.kill()


@pytest.fixture
def proxy(cluster):
    proxy = Proxy(cluster, seed=13)
    yield proxy
    proxy.close()
