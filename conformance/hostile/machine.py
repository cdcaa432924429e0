"""Small tools: raw calls of the API, commands inside, programs compiled inside."""

from __future__ import annotations

import http.client
import json

from e2b import CommandExitException, Sandbox

from ..installation import Installation


class Call:
    """Raw API calls, without a client that would correct or retry them."""

    def __init__(self, server: Installation, team: str | None = "default", timeout: float = 60):
        self.server, self.team, self.timeout = server, team, timeout

    def __call__(self, method: str, path: str, body=None, headers=None) -> tuple[int, object]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=self.timeout)
        sent = {"X-API-Key": self.server.keys[self.team]} if self.team else {}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        try:
            connection.request(method, path, body=data, headers=sent)
            answer = connection.getresponse()
            text = answer.read()
            try:
                return answer.status, json.loads(text)
            except ValueError:
                return answer.status, text.decode(errors="replace")
        finally:
            connection.close()

    def get(self, path: str, **more):
        return self("GET", path, **more)

    def post(self, path: str, body=None, **more):
        return self("POST", path, body, **more)

    def put(self, path: str, body=None, **more):
        return self("PUT", path, body, **more)

    def delete(self, path: str, **more):
        return self("DELETE", path, **more)

    def ids(self) -> list[str]:
        """Every running sandbox of the team."""
        status, found = self.get("/v2/sandboxes?limit=100")
        assert status == 200, found
        return [one["sandboxID"] for one in found]


class Said:
    """A command's output and exit code."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    @property
    def all(self) -> str:
        return self.out + self.err

    def __repr__(self) -> str:
        return f"exit {self.code}: {self.out[-2000:]!r} {self.err[-2000:]!r}"


def run(sandbox: Sandbox, command: str, root: bool = False, timeout: float = 60) -> Said:
    """Runs a command inside, as the user or as root; a failure is a result too."""
    try:
        done = sandbox.commands.run(command, user="root" if root else None, timeout=timeout)
        return Said(done.exit_code, done.stdout, done.stderr)
    except CommandExitException as failed:
        return Said(failed.exit_code, failed.stdout, failed.stderr)


def python(sandbox: Sandbox, source: str, root: bool = False, timeout: float = 60) -> Said:
    """Runs a Python program inside."""
    sandbox.files.write("/tmp/attack.py", source, user="root")
    return run(sandbox, "python3 /tmp/attack.py", root, timeout)


def compiled(sandbox: Sandbox, source: str, root: bool = False, timeout: float = 60) -> Said:
    """Runs a C program inside, for system calls that no shell can make."""
    sandbox.files.write("/var/tmp/attack.c", source, user="root")
    built = run(sandbox, "gcc -O1 -w -pthread -o /var/tmp/attack /var/tmp/attack.c", root=True)
    assert built.code == 0, built
    return run(sandbox, "/var/tmp/attack", root, timeout)
