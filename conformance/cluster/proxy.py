"""A proxy in front of the API server that makes requests fail, as an API server under stress does.

It speaks plain HTTP to the controller, and passes its requests on as those of the operator's service
account. Leases pass untouched: losing them is a matter of other tests.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from . import manifests
from .api import Api
from .control_plane import ControlPlane
from .operator import service_account

#: The administrator, whose connection it is, acts as the operator if nothing else is given.
OPERATOR = f"system:serviceaccount:{manifests.NAMESPACE}:{manifests.RELEASE}"

#: Headers that belong to one connection.
OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade"}

REASONS = {
    409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass
class Faults:
    """Faults. Shares are between 0 and 1."""

    #: Refused with one of `codes`, before the API server sees them.
    refused: float = 0
    codes: tuple[int, ...] = (500,)
    #: For 429: seconds after which the client may try again.
    retry_after: int = 0
    #: Reads are refused, too.
    reads: bool = False
    #: Writes that the API server serves, and whose answer is lost.
    lost: float = 0
    #: Seconds that requests wait, at most.
    delay: float = 0
    #: The most seconds that a watch lasts.
    watch: float = 0
    #: Watches that must list again, like watches that fall behind too far.
    expired: float = 0
    #: Requests that are never passed on, nor answered: the verb, or `WATCH`, and the kind.
    held: tuple[str, ...] = ()


CALM = Faults()


class Server(ThreadingHTTPServer):
    """Accepts as many connections at once as a controller opens."""

    request_queue_size = 256
    daemon_threads = True


class Proxy:
    """The proxy, on a port of its own."""

    def __init__(self, cluster: ControlPlane, seed: int, user: str = OPERATOR) -> None:
        service_account(cluster)
        self.api = Api(cluster)
        #: The account whose requests they are.
        self.user = user
        self.closed = threading.Event()
        self.faults = CALM
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        #: Requests by verb and kind; watches and leases are left out.
        self.seen: Counter[str] = Counter()
        #: How often each fault happened.
        self.injected: Counter[str] = Counter()
        self.watches: set[Request] = set()
        self.server = Server(("127.0.0.1", 0), self.handler())
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.configuration = self.write_configuration(cluster.directory)

    def write_configuration(self, directory: Path) -> Path:
        """A client configuration that leads to the proxy."""
        port = self.server.server_address[1]
        path = directory / f"proxy-{port}.kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "contexts": [{"name": "proxy", "context": {
                "cluster": "proxy", "user": "proxy", "namespace": manifests.NAMESPACE,
            }}],
            "users": [{"name": "proxy", "user": {}}],
        }))
        return path

    def inject(self, faults: Faults) -> None:
        """Begins with faults. Watches that are open end like later ones."""
        self.faults = faults
        with self.lock:
            watches = list(self.watches)
        for watch in watches:
            watch.limit(faults)

    def requests(self) -> int:
        return sum(self.seen.values())

    def quiet(self, seconds: float = 4) -> int:
        """How many requests arrive in the next seconds."""
        before = self.requests()
        time.sleep(seconds)
        return self.requests() - before

    def happens(self, share: float) -> bool:
        with self.lock:
            return self.random.random() < share

    def between(self, most: float) -> float:
        with self.lock:
            return self.random.uniform(0, most)

    def choose(self, codes: tuple[int, ...]) -> int:
        with self.lock:
            return self.random.choice(codes)

    def count(self, counter: Counter[str], what: str) -> None:
        with self.lock:
            counter[what] += 1

    def close(self) -> None:
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(Request):
            pass

        Handler.proxy = proxy
        return Handler


class Request(BaseHTTPRequestHandler):
    """One connection of the controller."""

    proxy: Proxy
    protocol_version = "HTTP/1.1"
    # An answer in several parts must not wait for the acknowledgement of the first.
    disable_nagle_algorithm = True
    upstream: http.client.HTTPSConnection | None = None

    def log_message(self, *_: object) -> None:
        """Quiet: tests print what matters."""

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, http.client.HTTPException):
            # The controller or the API server has gone.
            self.close_connection = True

    def finish(self) -> None:
        super().finish()
        if self.upstream:
            self.upstream.close()

    def serve(self) -> None:
        proxy, faults = self.proxy, self.proxy.faults
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        watches = parse_qs(parts.query).get("watch", [""])[0] in ("1", "true")
        if "/leases" in parts.path:
            self.forward(body)
            return
        asked = f"{'WATCH' if watches else self.command} {kind_of(parts.path)}"
        if not watches:
            proxy.count(proxy.seen, asked)
        if asked in faults.held:
            proxy.count(proxy.injected, "held")
            proxy.closed.wait()
            self.close_connection = True
            return
        if faults.delay:
            time.sleep(proxy.between(faults.delay))
        if watches:
            self.serve_watch(faults)
        elif (self.command != "GET" or faults.reads) and proxy.happens(faults.refused):
            self.refuse(proxy.choose(faults.codes), faults)
        elif self.command != "GET" and proxy.happens(faults.lost):
            proxy.count(proxy.injected, "lost")
            self.ask(body).read()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.forward(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def refuse(self, code: int, faults: Faults) -> None:
        self.proxy.count(self.proxy.injected, str(code))
        body = json.dumps(status(code)).encode()
        self.send_response(code)
        if code == 429:
            self.send_header("Retry-After", str(faults.retry_after))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def ask(self, body: bytes) -> http.client.HTTPResponse:
        """The API server's answer."""
        if self.upstream is None:
            self.upstream = self.proxy.api.connect()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_CONNECTION}
        # The body that is passed on must be readable to `json`.
        headers["Accept-Encoding"] = "identity"
        headers["Impersonate-User"] = self.proxy.user
        self.upstream.request(self.command, self.path, body or None, headers)
        return self.upstream.getresponse()

    def begin(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in OF_CONNECTION:
                self.send_header(name, value)

    def forward(self, body: bytes) -> None:
        answer = self.ask(body)
        content = answer.read()
        self.begin(answer)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def serve_watch(self, faults: Faults) -> None:
        self.close_connection = True
        if self.proxy.happens(faults.expired):
            self.proxy.count(self.proxy.injected, "expired")
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(json.dumps({"type": "ERROR", "object": status(410)}).encode() + b"\n")
            return
        answer = self.ask(b"")
        self.begin(answer)
        self.send_header("Connection", "close")
        self.end_headers()
        with self.proxy.lock:
            self.proxy.watches.add(self)
        try:
            self.limit(faults)
            while part := answer.read1(1 << 16):
                self.wfile.write(part)
        finally:
            with self.proxy.lock:
                self.proxy.watches.discard(self)

    def limit(self, faults: Faults) -> None:
        """Cuts this watch some time later, if the faults say so."""
        if faults.watch:
            cut = threading.Timer(self.proxy.between(faults.watch), self.cut)
            cut.daemon = True
            cut.start()

    def cut(self) -> None:
        """Ends a watch without a word, in the middle of an event if it comes to that."""
        self.proxy.count(self.proxy.injected, "cut")
        for end in (self.connection, self.upstream and self.upstream.sock):
            try:
                if end:
                    end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def kind_of(path: str) -> str:
    """The plural of a path's kind."""
    words = path.strip("/").split("/")
    if "namespaces" in words[:-2]:
        words = words[words.index("namespaces") + 2:]
        return "/".join([words[0], *words[2:]])
    return words[-1]


def status(code: int) -> dict:
    """The API server's body of a refused request."""
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": REASONS[code],
        "message": f"a test refuses this request: {REASONS[code]}",
    }
