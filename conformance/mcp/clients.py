"""The official Python client, and requests that it would not send."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager

import httpx
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from ..installation import Installation, program

#: The longest wait of a case for an answer, in seconds.
PATIENCE = 120

#: The last revision of the protocol with sessions.
VERSION = "2025-11-25"


@asynccontextmanager
async def over_http(server: Installation, team: str = "default", headers=None, mode: str = "auto", heard=None):
    """A client with a session of its own."""
    headers = {"Authorization": f"Bearer {server.keys[team]}", **(headers or {})}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(PATIENCE)) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE, message_handler=heard) as client:
            yield client


def bridge(server: Installation, *arguments: str) -> StdioServerParameters:
    """`shoal mcp`, as an agent starts it."""
    variables = {"E2B_API_URL": server.url, "E2B_API_KEY": server.key, "PATH": os.environ["PATH"]}
    return StdioServerParameters(command=str(program()), args=["mcp", *arguments], env=variables)


@asynccontextmanager
async def over_stdio(server: Installation, *arguments: str, heard=None):
    """A client of `shoal mcp`."""
    async with Client(bridge(server, *arguments), read_timeout_seconds=PATIENCE, message_handler=heard) as client:
        yield client


async def done(client: Client, tool: str, **arguments) -> dict:
    """The structured result of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


async def refused(client: Client, tool: str, **arguments) -> dict:
    """The error of a call that fails, which the model reads too."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    error = result.meta["shoal.dev/error"]
    assert result.structured_content is None
    assert result.content[0].text == error["message"]
    return error


class Raw:
    """Requests without a client."""

    def __init__(self, server: Installation, key: str | None):
        self.url = f"{server.url}/mcp"
        self.headers = {"Accept": "application/json, text/event-stream"}
        if key is not None:
            self.headers["X-API-Key"] = key

    def send(self, body=None, method: str = "POST", session: str | None = None, **headers):
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        if session is not None:
            more |= {"Mcp-Session-Id": session, "Mcp-Protocol-Version": VERSION}
        return httpx.request(method, self.url, json=body, headers=self.headers | more, timeout=PATIENCE)

    def initialize(self, **headers):
        parameters = {
            "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
        }
        return self.send(request("initialize", parameters), **headers)

    def open(self) -> str:
        """Opens a session and returns its id."""
        opened = self.initialize()
        assert opened.status_code == 200, opened.text
        session = opened.headers["mcp-session-id"]
        initialized = self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, session=session)
        assert initialized.status_code == 202, initialized.text
        return session


def request(method: str, parameters: dict | None = None) -> dict:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters or {}}


def call(tool: str, **arguments) -> dict:
    return request("tools/call", {"name": tool, "arguments": arguments})
