"""Reads and applies objects as kubectl does, without a process for each."""

from __future__ import annotations

import http.client
from urllib.parse import urlencode

from ..installation import wait_until
from .api import Api, Refused
from .control_plane import ControlPlane


#: The most seconds that an object takes to be gone: its pod may have thirty to end.
LONGEST = 120
#: The name under which `apply` writes.
MANAGER = "conformance"
#: `kubectl apply` under that name.
SERVER_SIDE = ("apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}")


class Objects:
    """`kubectl get`, `apply --server-side`, `patch` and `delete`, by the names that kubectl knows kinds by."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.api = Api(cluster)
        #: By the name of a kind: the path of its group and version, its plural, and whether it has namespaces.
        self.kinds: dict[str, tuple[str, str, bool]] = {}
        #: The same by group, version and kind.
        self.applied: dict[tuple[str, str], tuple[str, str, bool]] = {}

    def get(self, kind: str, name: str = "", *, namespace: str = "default", labels: str = "", fields: str = "") -> dict:
        """An object, or the list of a kind. Raises `Refused`."""
        selected = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        return self._ask(self._path(kind, name, namespace) + (f"?{urlencode(selected)}" if selected else ""))

    def find(self, kind: str, name: str, *, namespace: str = "default") -> dict | None:
        """An object, if it exists."""
        try:
            return self.get(kind, name, namespace=namespace)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def apply(self, wanted: dict) -> dict:
        """Creates an object, or changes what an earlier `apply` wrote. Fails when it is refused."""
        kind, metadata = wanted["kind"], wanted["metadata"]
        base, plural, namespaced = self._resource(wanted["apiVersion"], kind)
        within = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        path = f"{base}{within}/{plural}/{metadata['name']}?fieldManager={MANAGER}&force=true&fieldValidation=Strict"
        try:
            return self._send("PATCH", path, wanted, "application/apply-patch+yaml")
        except Refused as refused:
            raise AssertionError(f"{kind} {metadata['name']}: {refused}") from None

    def delete(
        self, kind: str, *names: str, namespace: str = "default", within: float = LONGEST, wait=True, missing_ok=False
    ) -> None:
        """Deletes objects and, with `wait`, waits until they are gone. Fails when one is not there, or stays.

        A controller may make another object of the name at once, which `kubectl delete` can take for the first.
        """
        found = {name: self._begin_delete(kind, name, namespace, missing_ok) for name in names}
        for name, uid in found.items():
            if wait and uid:
                gone = lambda name=name, uid=uid: self._uid(kind, name, namespace) != uid  # noqa: E731
                wait_until(gone, within, f"{kind} {name} is gone")

    def delete_all(self, kind: str, *, namespace: str = "default", within: float = LONGEST) -> None:
        """Deletes all objects of a kind, and waits until there is none."""
        self._send("DELETE", self._path(kind, "", namespace) + "?propagationPolicy=Background")
        wait_until(lambda: not self.get(kind, namespace=namespace)["items"], within, f"no {kind}")

    def patch(self, kind: str, name: str, change: dict, *, namespace: str = "default") -> dict:
        """Changes an object by a JSON merge patch. Fails when it is refused."""
        try:
            return self._send("PATCH", self._path(kind, name, namespace), change, "application/merge-patch+json")
        except Refused as refused:
            raise AssertionError(f"{kind} {name}: {refused}") from None

    def _begin_delete(self, kind: str, name: str, namespace: str, missing_ok: bool) -> str | None:
        """Deletes an object, and returns its UID. Fails when it is refused."""
        uid = self._uid(kind, name, namespace)
        assert uid or missing_ok, f"there is no {kind} {name}"
        if uid:
            options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
            try:
                self._send("DELETE", self._path(kind, name, namespace), options, "application/json")
            except Refused as refused:
                # It has gone since, and another object may have its name.
                assert refused.status in (404, 409), f"{kind} {name}: {refused}"
        return uid

    def _uid(self, kind: str, name: str, namespace: str) -> str | None:
        found = self.find(kind, name, namespace=namespace)
        return found and found["metadata"]["uid"]

    def _path(self, kind: str, name: str, namespace: str) -> str:
        """The path of an object, or of all objects of a kind."""
        base, plural, namespaced = self._resolve(kind)
        within = f"/namespaces/{namespace}" if namespaced else ""
        return f"{base}{within}/{plural}" + (f"/{name}" if name else "")

    def _resource(self, version: str, kind: str) -> tuple[str, str, bool]:
        if (version, kind) not in self.applied:
            base = f"/api/{version}" if version == "v1" else f"/apis/{version}"
            served = {found["kind"]: found for found in self._ask(base)["resources"] if "/" not in found["name"]}
            assert kind in served, f"the API server serves no {kind} of {version}"
            self.applied[version, kind] = base, served[kind]["name"], served[kind]["namespaced"]
        return self.applied[version, kind]

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
        return self._send("GET", path)

    def _send(self, method: str, path: str, body: dict | None = None, content_type: str = "") -> dict:
        """Sends a request that may be repeated."""
        try:
            return self.api.request(method, path, body, content_type)
        except (OSError, http.client.HTTPException):
            # The API server may have closed the connection since the last request, or have been restarted.
            return self.api.request(method, path, body, content_type)
