"""JSON schemas of a cluster's kinds for kubeconform, from what its API server publishes."""

from __future__ import annotations

import json
from pathlib import Path

from .control_plane import ControlPlane

#: Where kubeconform finds the schema of an object, in the directory of schemas.
LOCATION = "{{ .ResourceKind }}{{ .KindSuffix }}.json"


def write(cluster: ControlPlane, directory: Path, kinds: set[tuple[str, str]]) -> None:
    """Writes the schemas of kinds, each an `apiVersion` and a `kind`, into a directory."""
    for api_version, kind in kinds:
        place = f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"
        published = json.loads(cluster.kubectl("get", "--raw", f"/openapi/v3/{place}"))["components"]["schemas"]
        group, _, version = api_version.rpartition("/")
        of = {"group": group, "kind": kind, "version": version}
        named = [name for name, schema in published.items() if schema.get("x-kubernetes-group-version-kind") == [of]]
        assert len(named) == 1, f"{api_version} {kind}: {named}"
        definitions = {name: strict(schema) for name, schema in published.items()}
        suffix = f"{group.split('.')[0]}-{version}" if group else version
        whole = {"$ref": f"#/definitions/{named[0]}", "definitions": definitions}
        (directory / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(whole))


def strict(schema):
    """A schema of the API server as a JSON schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # The API server checks formats itself, and its extensions mean nothing here.
    made = {key: strict(value) for key, value in schema.items()
            if key not in ("properties", "default", "format") and not key.startswith("x-")}
    if "$ref" in made:
        made["$ref"] = made["$ref"].replace("#/components/schemas/", "#/definitions/")
    if "properties" in schema:
        made["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        made.setdefault("additionalProperties", False)
    return made
