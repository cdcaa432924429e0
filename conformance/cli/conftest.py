"""Runs the real program, as people and scripts do."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass

import pytest

from ..installation import Installation, program
from .terminal import Terminal

#: The timeout of a command.
SECONDS = 240


@dataclass
class Answer:
    """A command's output and exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Client:
    """The program, configured for a server."""

    def __init__(self, server: Installation, **variables: str):
        self.server = server
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "E2B_"))}
        self.env = clean | {"SHOAL_URL": server.url, "SHOAL_DATA": str(server.data)} | variables

    def run(self, *words: str, stdin: bytes | str | None = None, **options) -> Answer:
        """Runs a command to its end."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        source = {"input": given} if given is not None else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(
            self.line(*words), capture_output=True, env=self.env, timeout=SECONDS, check=False,
            **source, **options,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *words: str, **options) -> str:
        """The output of a command that must succeed, without the final newline."""
        answer = self.run(*words, **options)
        assert answer.code == 0, answer
        return answer.out.rstrip("\n")

    def start(self, *words: str, **options) -> subprocess.Popen:
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE} | options
        return subprocess.Popen(self.line(*words), env=self.env, text=True, **options)

    def terminal(self, *words: str, **size: int) -> Terminal:
        env = self.env | {"TERM": "xterm-256color"}
        return Terminal(self.line(*words), env, **size)

    @staticmethod
    def line(*words: str) -> list[str]:
        return [str(program()), *words]


@pytest.fixture(scope="session")
def client(shared) -> Client:
    return Client(shared)


@pytest.fixture(scope="session")
def sandbox(client) -> str:
    """A sandbox that the tests share. Tests must not harm it."""
    made = client.ok("sandbox", "create", "--timeout", "30m", "--runtime", "runc")
    yield made
    client.run("sandbox", "kill", made)


@pytest.fixture
def fresh(client) -> str:
    """A sandbox of one test."""
    made = client.ok("sandbox", "create", "--timeout", "10m", "--runtime", "runc")
    yield made
    client.run("sandbox", "kill", made)


@pytest.fixture
def terminal(client):
    """Opens terminals that are closed when the test ends."""
    opened = []

    def open_one(*words: str, **size: int) -> Terminal:
        opened.append(client.terminal(*words, **size))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
