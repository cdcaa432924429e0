"""Traces of the operator, at a collector of OTLP over HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ..installation import wait_until
from .operator import wait_for_reason
from .test_operator_pool import CLAIMS, claim, pool, template

TRACE = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = json.dumps({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})


@pytest.fixture
def collector():
    """Its address, and what it has received. Names and identifiers are in the messages as they are."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            assert self.path == "/v1/traces"
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()


def test_the_trace_of_a_claim_continues_in_the_operator(operators, cluster, collector):
    url, received = collector
    operator = operators(
        "traced", "--leader-elect=false", OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_SERVICE_NAME="sandboxes",
    )
    wanted = claim("traced", "traced")
    wanted["metadata"]["annotations"] = {"opentelemetry.io/trace-context": CONTEXT}
    cluster.apply(template("traced"), pool("traced", "traced", 0), wanted)
    wait_for_reason(cluster, CLAIMS, "traced", "DependenciesReady")
    # The sandbox of the claim continues its trace, too.
    names = [b"ReconcileSandboxClaim", b"ReconcileSandbox", b"create Sandbox", b"create Pod", b"patch_status SandboxClaim"]

    def is_complete():
        messages = [message for message in received if bytes.fromhex(TRACE) in message]
        return all(any(name in message for message in messages) for name in names)

    wait_until(is_complete, 60, "spans")
    assert all(b"sandboxes" in message for message in received)
    operator.clear()
