"""Requests that schemathesis generates from the OpenAPI document, valid ones and others.

No request may be answered with a server error, with a status, a type or a body that the document does
not say, or without a key. The number of requests is bounded, and the same in each run.
"""

from __future__ import annotations

import json

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ..installation import ROOT
from .targets import NO_IMAGE, Targets, aim, keep_inside

DOCUMENT = ROOT / "crates" / "api" / "openapi.json"

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    ignored_auth,
]

CONFIG = {
    "generation": {"deterministic": True, "with-security-parameters": False},
    "phases": {"stateful": {"enabled": False}},
}

SCHEMA = schemathesis.openapi.from_path(DOCUMENT, config=SchemathesisConfig.from_dict(CONFIG))

#: A terminal or a stream of events is no exchange of a request and an answer: `sdk/test_native.py` opens them.
EXCHANGES = SCHEMA.exclude(path_regex=r"/(ws|sandboxes/events|sessions/\{id\}/events|files/watch)$")

#: Operations that make sandboxes, which are ended at once: others need the room.
CREATE = {"/sandboxes", "/v2/sandboxes", "/sandboxes/{id}/fork", "/api/v1/sandbox"}

SETTINGS = hypothesis.settings(
    max_examples=20,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.fixture(scope="module")
def server(another):
    """A server of its own, since generated requests may change anything."""
    started = another("openapi")
    started.add_team("tenant")
    # A limit of the team is refused with 429; the machine's would be a server error.
    limited = httpx.put(
        f"{started.url}/api/v1/teams/tenant/limits",
        headers={"X-API-Key": started.key}, json={"sandboxes": 3}, timeout=60,
    )
    assert limited.status_code == 200, limited.text
    return started


@pytest.fixture(scope="module")
def targets(server):
    targets = Targets(server, server.keys["tenant"])
    yield targets
    targets.end_sandboxes()
    admin = Targets(server, server.key)
    admin.end_sandboxes()


def is_admins(operation) -> bool:
    """Whether only admin keys get further: the document says 403, and the path is not a sandbox's."""
    path = operation.path
    words = ("/keys", "/api-keys", "/images", "/pool", "/config/", "/teams/{name}", "/snapshots/", "/api/v1/templates")
    return any(word in path for word in words)


@EXCHANGES.parametrize()
@EXCHANGES.given(aimed=hypothesis.strategies.booleans())
@SETTINGS
def test_every_answer_is_documented(case, aimed, server, targets):
    key = server.key if is_admins(case.operation) else targets.key
    if aimed:
        aim(case, targets)
    case.body = keep_inside(case.body)
    if case.operation.path.endswith("/images/pull") and isinstance(case.body, dict):
        case.body["name"] = NO_IMAGE
    answer = case.call_and_validate(
        base_url=server.url, headers={"X-API-Key": key}, checks=CHECKS, timeout=90
    )
    if case.operation.path in CREATE and answer.status_code == 201:
        targets.end_sandboxes()


def test_the_document_is_served_to_everyone(server):
    answer = httpx.get(f"{server.url}/openapi.json", timeout=60)
    assert answer.status_code == 200
    assert answer.json() == json.loads(DOCUMENT.read_text())
