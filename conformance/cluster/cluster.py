"""A whole cluster: a control plane, a fake node, and a real one on demand."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

from .control_plane import ControlPlane
from .node import FIRST, Link, Node
from .objects import Objects

#: The taint of the fake node when there is a real one too: pods that tolerate it are not run.
FAKE = {"key": "node/fake", "operator": "Exists"}


class Cluster(ControlPlane):
    """A control plane with a fake node and, with `node`, a real one."""

    def __init__(self, directory: Path, node: bool = False) -> None:
        link = Link(FIRST)
        if node:
            link.add()
        super().__init__(directory, address=link.machine if node else "127.0.0.1")
        self.node = Node(self) if node else None
        self.objects = Objects(self)

    def start(self) -> None:
        super().start()
        self.add_fake_node()
        if self.node:
            self.kubectl("taint", "node", "fake-0", "node/fake=:NoSchedule")
            self.node.start()
            runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}}
            self.apply(runtime | {"handler": "runsc"})

    @contextmanager
    def another_node(self):
        """A second real node, which ends with the block."""
        Link(FIRST + 1).add()
        node = Node(self, 1)
        node.start()
        node.join(self.node)
        try:
            yield node
        finally:
            node.stop()
            self.delete("node", node.name, missing_ok=True)

    def restart_api_server(self) -> None:
        """Kills the API server and starts it again.

        The fake node begins anew: a report that found no API server is not repeated until its pod changes.
        """
        self.stop_api_server()
        self.start_api_server()
        self.processes.kill("node-fake-0")
        self.add_fake_node()

    def get(self, kind: str, name: str = "", **selected: str) -> dict:
        """An object, or a list of them (`Objects.get`)."""
        return self.objects.get(kind, name, **selected)

    def find(self, kind: str, name: str, **selected: str) -> dict | None:
        """An object, if it exists."""
        return self.objects.find(kind, name, **selected)

    def apply(self, *objects: dict) -> None:
        """Creates or changes objects (`Objects.apply`)."""
        for one in objects:
            self.objects.apply(one)

    def patch(self, kind: str, name: str, change: dict, **selected: str) -> dict:
        """Changes an object (`Objects.patch`)."""
        return self.objects.patch(kind, name, change, **selected)

    def delete(self, kind: str, *names: str, **how) -> None:
        """Deletes objects and waits until they are gone (`Objects.delete`)."""
        self.objects.delete(kind, *names, **how)

    def delete_all(self, kind: str, **how) -> None:
        """Deletes all objects of a kind and waits until they are gone (`Objects.delete_all`)."""
        self.objects.delete_all(kind, **how)

    def stop(self) -> None:
        if self.node:
            self.node.stop()
        super().stop()
