"""Reads of the API server by the names that kubectl knows kinds by, without a process for each."""

from __future__ import annotations

import http.client
from urllib.parse import urlencode

from .api import Api, Refused
from .control_plane import ControlPlane


class Reads:
    """`kubectl get`, for tests that ask until something is true."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.api = Api(cluster)
        #: By the name of a kind: the path of its group and version, its plural, and whether it has namespaces.
        self.kinds: dict[str, tuple[str, str, bool]] = {}

    def get(self, kind: str, name: str = "", *, namespace: str = "default", labels: str = "", fields: str = "") -> dict:
        """An object, or the list of a kind. Raises `Refused`."""
        base, plural, namespaced = self._resolve(kind)
        path = f"{base}/namespaces/{namespace}/{plural}" if namespaced else f"{base}/{plural}"
        selected = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        return self._ask(path + (f"/{name}" if name else "") + (f"?{urlencode(selected)}" if selected else ""))

    def find(self, kind: str, name: str, *, namespace: str = "default") -> dict | None:
        """An object, if it exists."""
        try:
            return self.get(kind, name, namespace=namespace)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def _resolve(self, kind: str) -> tuple[str, str, bool]:
        if kind not in self.kinds:
            self.kinds[kind] = self._discover(kind)
        return self.kinds[kind]

    def _discover(self, kind: str) -> tuple[str, str, bool]:
        """`plural`, `singular`, a short name, `plural.group` or `plural.version.group`."""
        short, _, group = kind.partition(".")
        groups = {found["name"]: found for found in self._ask("/apis")["groups"]}
        if group in groups:
            places = [groups[group]["preferredVersion"]["groupVersion"]]
        elif group:
            version, _, group = group.partition(".")
            places = [f"{group}/{version}"]
        else:
            places = ["v1", *(found["preferredVersion"]["groupVersion"] for found in groups.values())]
        for place in places:
            base = f"/api/{place}" if place == "v1" else f"/apis/{place}"
            for found in self._ask(base)["resources"]:
                names = {found["name"], found.get("singularName"), *found.get("shortNames", [])}
                if short in names and "/" not in found["name"]:
                    return base, found["name"], found["namespaced"]
        raise AssertionError(f"the API server serves no {kind}")

    def _ask(self, path: str) -> dict:
        try:
            return self.api.get(path)
        except (ConnectionError, http.client.HTTPException):
            # The API server may have closed the connection since the last request, or have been restarted.
            return self.api.get(path)
