"""MCP servers inside sandboxes: their tools are tools of the session."""

from __future__ import annotations

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from ..installation import wait_until
from .clients import done, over_http, over_stdio, refused

#: A server of the protocol in a shell, which every template has. `$1` is what its tool adds.
SERVER = r"""
id() { sed -n 's/.*"id":\([0-9]*\).*/\1/p'; }
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
tools='{"name":"add","description":"Adds.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}'
echo "$1 is ready" >&2
echo "this line is no message"
while read -r line; do
  n=$(printf %s "$line" | id)
  case $line in
    *'"method":"initialize"'*)
      answer "$n" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"method":"tools/list"'*) answer "$n" "{\"tools\":[$tools]}" ;;
    *'"name":"add"'*)
      word=$(printf %s "$line" | sed -n 's/.*"word":"\([a-z]*\)".*/\1/p')
      answer "$n" "{\"content\":[{\"type\":\"text\",\"text\":\"$word$1\"}]}" ;;
    *'"name":"grow"'*)
      tools="$tools,"'{"name":"more","inputSchema":{"type":"object"}}'
      echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
      answer "$n" '{"content":[]}' ;;
    *'"name":"die"'*) echo "no more memory" >&2; exit 7 ;;
    *'"name":"wait"'*) touch waiting ;;
    *notifications/cancelled*) touch cancelled ;;
  esac
done
"""


@pytest.fixture(params=["http", "stdio"])
def connect(request, shared):
    """Opens a client of either transport."""
    return (lambda: over_http(shared)) if request.param == "http" else (lambda: over_stdio(shared))


async def names(client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools if "__" in tool.name]


async def start(client, name: str, command: str = "bash server.sh !", **arguments) -> dict:
    await done(client, "write_file", path="server.sh", content=SERVER)
    return await done(client, "start_mcp_server", name=name, command=command, **arguments)


async def test_the_tools_of_a_server_are_called_and_go_with_it(connect):
    async with connect() as client:
        started = await start(client, "sh", env={"WORD": "x"})
        assert started["tools"] == ["sh__add"] == await names(client)
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "sh__add"]
        # Hints of a program about itself do not make it harmless.
        assert tool.description == "Adds." and not tool.annotations.read_only_hint
        result = await client.call_tool("sh__add", {"word": "so"})
        assert result.content[0].text == "so!" and not result.is_error
        second = await start(client, "second", "exec bash server.sh ?")
        assert second["sandbox"] == started["sandbox"]
        assert (await client.call_tool("second__add", {"word": "so"})).content[0].text == "so?"
        assert "runs already" in (await refused(client, "start_mcp_server", name="sh", command="cat"))["message"]
        await done(client, "stop_mcp_server", name="sh")
        assert await names(client) == ["second__add"]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("sh__add", {})
        gone = "for i in $(seq 600); do pgrep -f 'server.sh [!]' >/dev/null || exit 0; sleep 0.1; done; exit 1"
        assert (await done(client, "run_command", command=gone))["exit_code"] == 0
        assert (await refused(client, "stop_mcp_server", name="sh"))["code"] == "not_found"


@pytest.mark.parametrize("over", [over_http, over_stdio])
async def test_agents_are_told_when_tools_come_change_and_go(shared, over):
    told, hears = anyio.create_memory_object_stream(100)

    async def heard(message):
        await told.send(getattr(message, "method", None))

    async def changed():
        with anyio.fail_after(60):
            while await hears.receive() != "notifications/tools/list_changed":
                pass

    async with over(shared, heard=heard) as client:
        await start(client, "sh")
        await changed()
        await client.call_tool("sh__grow", {})
        await changed()
        assert await names(client) == ["sh__add", "sh__more"]
        await refused(client, "sh__die")
        await changed()
        assert await names(client) == []


async def test_a_server_that_ends_is_told_with_its_last_words(shared):
    async with over_http(shared) as client:
        await start(client, "sh")
        dead = await refused(client, "sh__die")
        assert dead["code"] == "mcp_server_ended"
        assert "exit code 7" in dead["message"] and "no more memory" in dead["message"]
        assert await names(client) == []
        assert (await refused(client, "sh__add"))["code"] == "mcp_server_ended"
        # Its name is free again.
        assert (await start(client, "sh"))["tools"] == ["sh__add"]


async def test_a_pause_ends_a_server(shared):
    async with over_http(shared) as client:
        await start(client, "sh")
        await done(client, "pause_sandbox")
        await done(client, "resume_sandbox")
        assert (await refused(client, "sh__add"))["code"] == "mcp_server_ended"
        assert await names(client) == []
        assert (await start(client, "sh"))["tools"] == ["sh__add"]


async def test_a_cancelled_call_is_cancelled_inside(shared):
    async with over_http(shared) as client:
        await start(client, "sh")
        with anyio.move_on_after(60) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "sh__wait", {})
                waiting = "for i in $(seq 600); do [ -e waiting ] && exit 0; sleep 0.1; done; exit 1"
                assert (await done(client, "run_command", command=waiting))["exit_code"] == 0
                tasks.cancel_scope.cancel()
        assert not scope.cancelled_caught
        cancelled = "for i in $(seq 600); do [ -e cancelled ] && exit 0; sleep 0.1; done; exit 1"
        assert (await done(client, "run_command", command=cancelled))["exit_code"] == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo no such module >&2; exit 3", "exit code 3\n[stderr]\nno such module"),
        ("sleep 600", "did not answer within 2 s"),
        ("echo loading >&2; sleep 600", "did not answer within 2 s\n[stderr]\nloading"),
        ("yes", "did not answer within 2 s"),
        ("head -c 9000000 /dev/zero; sleep 600", "a message of more than 4 MiB"),
        ("no-such-program-here", "exit code 127"),
    ],
)
async def test_a_program_that_is_no_server_is_refused_and_killed(shared, command, words):
    async with over_http(shared) as client:
        error = await refused(client, "start_mcp_server", name="bad", command=command, timeout=2)
        assert error["code"] == "mcp_server" and words in error["message"]
        assert await names(client) == []
        left = "for i in $(seq 600); do pgrep -x 'yes|sleep' >/dev/null || exit 0; sleep 0.1; done; exit 1"
        # The sleep of the loop itself counts too: it is looked for between two of them.
        assert (await done(client, "run_command", command=left))["exit_code"] == 0


async def test_a_program_that_floods_reaches_nobody(shared):
    """Unexpected messages, among them requests, are dropped. The server stays connected."""
    flood = (
        "(while :; do"
        ' echo \'{"jsonrpc":"2.0","id":1,"method":"ping"}\';'
        ' echo \'{"jsonrpc":"2.0","id":9999,"result":{}}\';'
        ' echo \'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\';'
        " done) & bash server.sh !; kill $!"
    )
    async with over_http(shared) as client:
        assert (await start(client, "flood", flood))["tools"] == ["flood__add"]
        for _ in range(3):
            assert (await client.call_tool("flood__add", {"word": "so"})).content[0].text == "so!"
        await done(client, "stop_mcp_server", name="flood")


async def test_bad_arguments_are_named(shared):
    async with over_http(shared) as client:
        for arguments, word in [
            ({"name": "A", "command": "cat"}, "`name`"),
            ({"name": "a__b", "command": "cat"}, "`name`"),
            ({"name": "a", "command": " "}, "`command` is empty"),
            ({"name": "a", "command": "cat", "timeout": 0}, "`timeout`"),
            ({"name": "a"}, "command"),
        ]:
            error = await refused(client, "start_mcp_server", **arguments)
            assert error["code"] == "invalid_argument" and word in error["message"]


async def test_a_session_does_not_see_the_servers_of_another(shared):
    async with over_http(shared) as one, over_http(shared) as two:
        started = await start(one, "sh")
        assert await names(two) == []
        with pytest.raises(MCPError, match="Unknown tool"):
            await two.call_tool("sh__add", {})
        # A server in a sandbox that outlives the session ends with the session.
        other = (await done(two, "create_sandbox", timeout=600))["sandbox"]
        await done(two, "write_file", path="server.sh", content=SERVER, sandbox=other)
        await done(two, "start_mcp_server", name="far", command="bash server.sh !", sandbox=other)
        assert (await two.call_tool("far__add", {"word": "so"})).content[0].text == "so!"
        assert started["sandbox"] != other
    async with over_http(shared) as third:
        gone = "for i in $(seq 600); do pgrep -f 'server.sh [!]' >/dev/null || exit 0; sleep 0.1; done; exit 1"
        assert (await done(third, "run_command", command=gone, sandbox=other))["exit_code"] == 0
        await done(third, "kill_sandbox", sandbox=other)
