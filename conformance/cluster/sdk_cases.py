"""The cases of the released SDKs against one machine, run against a cluster with a real node. A plugin of pytest:

    python -m pytest -c conformance/pytest.ini -p conformance.cluster.sdk_cases conformance/sdk/test_commands.py

`DIFFERENT` lists the cases that cannot pass there, with the reason. It is kept true: a case of it that passes fails
the run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from e2b import AsyncSandbox, Sandbox

from .. import conftest as servers
from .. import interpreter
from ..installation import wait_until
from ..interpreter.server import TEMPLATE as INTERPRETER_TEMPLATE
from . import images
from .cluster import Cluster
from .conftest import cluster_of
from .jupyter import add_kernel
from .operator import Operator
from .serving import Replica, first_key

#: The templates of the two runtimes.
TEMPLATES = {"runc": "base", "runsc": "base-gvisor"}

#: The suite of the code interpreter.
INTERPRETER = Path(interpreter.__file__).parent

METADATA = "metadata has the name of the custom resource, too, as with OpenKruise"

#: Why a case cannot pass in a cluster, by a part of its name.
DIFFERENT = {
    "test_the_user_may_become_root_without_a_password": "the image of the pod decides who may become root",
    "test_a_sandbox_tells_what_it_is": METADATA,
    "test_a_list_is_filtered_by_metadata": METADATA,
    "vmware": "a request names no runtime, not even a wrong one",
    "test_a_body_of_blanks_clears_no_rules": "a request has no network rules",
    "test_metrics_are_measured": "the disk is that of the node",
    "test_traffic_is_measured": "a cluster measures no traffic",
    "test_a_host_is_masked": "requests keep their host name",
    "test_r2_098_a_machine_is_refused_by_name_before_anything_starts[{'privileged': True}-501": "no setting allows containers in a sandbox",
    "test_a_request_wakes_the_machine_and_its_page_looks_again": "the case reads the audit log of one machine",
}


@dataclass
class ClusterServer:
    """A replica of the API beside a cluster, for cases that know the server of one machine."""

    port: int
    keys: dict[str, str]
    tls: bool = False
    listen: str = "127.0.0.1"
    settings: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return self.keys["default"]

    def options(self, team: str = "default") -> dict:
        return {"api_key": self.keys[team], "api_url": self.url, "sandbox_url": self.url}


class SharedCluster:
    """The cluster of a run, with an operator, a replica of the API and a pool for each runtime."""

    def __init__(self) -> None:
        #: Whether there is a pool for `run_code`, too.
        self.interprets = False
        self.server: ClusterServer | None = None
        self.life = None

    def start(self) -> ClusterServer:
        if self.server is None:
            self.life = cluster_of("sdk", node=True)
            self.cluster = next(self.life)
            operator = Operator(self.cluster)
            operator.install()
            operator.start("--runtime-image", images.RUNTIME)
            replica = Replica(self.cluster, "replica")
            replica.start("kubernetes.sessions=true", f"sessions.template={TEMPLATES['runsc']}")
            pools = [pool(name, runtime) for runtime, name in TEMPLATES.items()]
            if self.interprets:
                pools.append(add_kernel(pool(INTERPRETER_TEMPLATE, "runsc")))
            self.cluster.apply(*pools)
            for name in (made["metadata"]["name"] for made in pools):
                wait_until(lambda name=name: is_full(self.cluster, name), 120, f"a member of {name}")
            self.server = ClusterServer(replica.port, {"default": first_key(self.cluster)})
        return self.server

    def known(self, port: int, keys: dict[str, str]) -> ClusterServer:
        return ClusterServer(port, keys)

    def stop(self) -> None:
        if self.life is not None:
            next(self.life, None)


def pool(name: str, runtime: str) -> dict:
    """A pool of pods with the programs of this machine, which they can only read."""
    places = {"/usr": "/usr", "/lib": "/usr/lib", "/lib64": "/usr/lib64", "/bin": "/usr/bin", "/sbin": "/usr/sbin"}
    places["/etc/alternatives"] = "/etc/alternatives"
    volumes = [{"name": f"host-{number}", "hostPath": {"path": path}} for number, path in enumerate(places.values())]
    mounts = [{"name": f"host-{number}", "mountPath": path, "readOnly": True} for number, path in enumerate(places)]
    container = {
        "name": "main", "image": images.BASE, "command": ["/bin/sh", "-c", "chown 1000:1000 /home/user; exec tail -f /dev/null"],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "volumeMounts": mounts, "env": [{"name": "SHOAL_DEFAULT_USER", "value": "user"}],
    }
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    if runtime == "runsc":
        spec["runtimeClassName"] = "gvisor"
    return {
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": name},
        "spec": {"replicas": 2, "runtimes": [{"name": "agent-runtime"}], "template": {"spec": spec}},
    }


def is_full(cluster: Cluster, name: str) -> bool:
    status = cluster.get("sandboxsets.agents.kruise.io", name).get("status", {})
    return status.get("availableReplicas", 0) >= 1


def of_runtime(create):
    """A create whose metadata may name a runtime: in a cluster the template says how its pods run."""

    @functools.wraps(create)
    def wrapped(cls, template=None, *args, **more):
        metadata = dict(more.pop("metadata", None) or {})
        runtime = metadata.pop("shoal/runtime", None)
        return create(cls, template or TEMPLATES.get(runtime), *args, metadata=metadata or None, **more)

    return classmethod(wrapped)


def pytest_configure(config):
    servers.SERVERS["shared"] = SharedCluster()
    for sandbox in (Sandbox, AsyncSandbox):
        sandbox.create = of_runtime(sandbox.create.__func__)


def pytest_collection_modifyitems(config, items):
    shared = servers.SERVERS["interpreter"] = servers.SERVERS["shared"]
    shared.interprets = any(INTERPRETER in item.path.parents for item in items)
    for item in items:
        reason = next((reason for name, reason in DIFFERENT.items() if name in item.name), None)
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        elif "another" in item.fixturenames:
            item.add_marker(pytest.mark.skip(reason="the case needs a server with settings of its own"))
        elif language_of(item) != "python":
            item.add_marker(pytest.mark.skip(reason="the pods have Python's kernel only"))


def language_of(item) -> str:
    """The language of a case of the code interpreter."""
    values = getattr(item, "callspec", None) and item.callspec.params
    return (values or {}).get("language", "python")
