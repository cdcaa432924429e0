"""Every tool and resource with the official Python client, over streamable HTTP and stdio, in gVisor."""

from __future__ import annotations

import base64
import contextlib
import json

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError

from ..installation import wait_until
from .clients import done, over_http, over_stdio, refused

#: One pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(params=["http", "stdio"])
def connect(request, shared):
    """Opens a client of either transport."""
    return (lambda: over_http(shared)) if request.param == "http" else (lambda: over_stdio(shared))


def exists(server, sandbox: str) -> bool:
    answer = httpx.get(f"{server.url}/sandboxes/{sandbox}", headers={"X-API-Key": server.key}, timeout=60)
    return answer.status_code == 200


async def test_a_session_has_a_sandbox_from_its_first_tool_until_its_end(connect, shared):
    async with connect() as client:
        assert client.server_info.name == "shoal" and client.protocol_version == "2025-11-25"
        assert (await refused(client, "pause_sandbox"))["code"] == "no_sandbox"
        first = await done(client, "run_command", command="echo $((6 * 7)); echo no >&2; touch kept; exit 3")
        assert (first["stdout"], first["stderr"], first["exit_code"]) == ("42\n", "no\n", 3)
        second = await done(client, "list_files")
        assert second["sandbox"] == first["sandbox"]
        assert "kept" in [entry["name"] for entry in second["entries"]]
        assert exists(shared, first["sandbox"])
    wait_until(lambda: not exists(shared, first["sandbox"]), 120, "the end of the session's sandbox")


async def test_every_tool_has_hints_and_schemas(shared):
    async with over_http(shared) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["read_file"].annotations.read_only_hint
        assert tools["kill_sandbox"].annotations.destructive_hint
        assert all(tool.output_schema["type"] == "object" and tool.description for tool in tools.values())
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("no_such_tool", {})
        error = await refused(client, "run_command", line="true")
        assert error["code"] == "invalid_argument" and "unknown field `line`" in error["message"]


async def test_files_are_written_read_edited_searched_and_listed(connect):
    async with connect() as client:
        await done(client, "write_file", path="app/main.py", content="x = 1\ny = 2\nx = 3\n")
        part = await done(client, "read_file", path="app/main.py", offset=2, limit=1)
        assert (part["text"], part["next_offset"]) == ("y = 2\n", 3)
        assert "2 times" in (await refused(client, "edit_file", path="app/main.py", old="x = ", new="z = "))["message"]
        await done(client, "edit_file", path="app/main.py", old="y = 2", new="y = 5")
        assert (await done(client, "read_file", path="app/main.py"))["text"] == "x = 1\ny = 5\nx = 3\n"
        found = await done(client, "search_files", pattern="^[xz] = [0-9]", path="app", glob="*.py", limit=1)
        assert [match["line"] for match in found["matches"]] == [1] and found["truncated"]
        entries = (await done(client, "list_files", path="app"))["entries"]
        assert [(entry["name"], entry["kind"]) for entry in entries] == [("main.py", "file")]
        assert (await refused(client, "read_file", path="nowhere"))["code"] == "not_found"
        await done(client, "write_file", path="dot.png", content=base64.b64encode(PNG).decode(), base64=True)
        (image,) = (await client.call_tool("read_file", {"path": "dot.png"})).content
        assert (image.type, image.mime_type, base64.b64decode(image.data)) == ("image", "image/png", PNG)


async def test_progress_is_told_while_a_command_runs(connect):
    async with connect() as client:
        await done(client, "run_command", command="mkfifo gate")
        told, begun, results = [], anyio.Event(), []

        async def hear(progress, total, message):
            told.append((progress, message))
            begun.set()

        async def run():
            arguments = {"command": "echo first; cat gate"}
            results.append(await client.call_tool("run_command", arguments, progress_callback=hear))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            # The command waits for this: progress comes before its end.
            await begun.wait()
            await done(client, "run_command", command="echo go > gate")
        assert results[0].structured_content["stdout"] == "first\ngo\n"
        assert told[0] == (6, "first\n")


async def test_a_cancelled_command_is_killed(connect):
    async with connect() as client:
        await done(client, "run_command", command="true")
        with anyio.CancelScope() as scope:

            async def hear(progress, total, message):
                scope.cancel()

            arguments = {"command": "echo running; exec -a cancel-me sleep 3000"}
            await client.call_tool("run_command", arguments, progress_callback=hear)
        assert scope.cancelled_caught
        gone = "for i in $(seq 600); do pgrep -f '^cancel-m[e]' >/dev/null || exit 0; sleep 0.1; done; exit 1"
        assert (await done(client, "run_command", command=gone))["exit_code"] == 0


async def test_a_command_ends_at_its_timeout_and_a_long_output_is_cut(shared):
    async with over_http(shared) as client:
        late = await done(client, "run_command", command="sleep 600", timeout=1)
        assert late["exit_code"] == -1 and "timeout of 1 s" in late["error"]
        much = await done(client, "run_command", command="echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
        assert much["stdout"].startswith("begin\n") and much["stdout"].endswith("end\n")
        assert len(much["stdout"]) < 40_000 and much["left_out"] > 2_900_000


async def test_a_sandbox_without_bash_runs_commands_in_sh(shared):
    async with over_http(shared) as client:
        shell = "readlink -f /proc/$$/exe; shopt -q login_shell 2>/dev/null && echo login"
        assert (await done(client, "run_command", command=shell))["stdout"] == "/usr/bin/bash\nlogin\n"
        assert (await done(client, "run_command", command="-x"))["exit_code"] == 127
        moved = 'mv "$(readlink -f /bin/bash)" /usr/local/bin/bash'
        assert (await done(client, "run_command", command=moved, user="root"))["exit_code"] == 0
        assert (await done(client, "run_command", command=shell))["stdout"] == "/usr/local/bin/bash\nlogin\n"
        assert (await done(client, "run_command", command="rm /usr/local/bin/bash", user="root"))["exit_code"] == 0
        assert (await done(client, "run_command", command="readlink -f /proc/$$/exe"))["stdout"] == "/usr/bin/dash\n"
        assert "no-such-directory" in (await refused(client, "run_command", command="true", cwd="/no-such-directory"))["message"]


async def test_sandboxes_beside_the_sessions_are_made_named_and_ended(shared):
    async with over_http(shared) as client:
        made = await done(client, "create_sandbox", metadata={"case": "mcp"}, env={"WORD": "told"}, timeout=600)
        other = made["sandbox"]
        ran = await done(client, "run_command", command="echo $WORD", sandbox=other)
        assert (ran["stdout"], ran["sandbox"]) == ("told\n", other)
        listed = await done(client, "list_sandboxes", metadata={"case": "mcp"})
        assert [one["sandbox"] for one in listed["sandboxes"]] == [other]
        await done(client, "run_command", command="echo kept > kept", sandbox=other)
        await done(client, "pause_sandbox", sandbox=other)
        assert (await refused(client, "run_command", command="true", sandbox=other))["code"] == "paused"
        assert (await done(client, "resume_sandbox", sandbox=other))["state"] == "running"
        (fork,) = (await done(client, "fork_sandbox", sandbox=other))["forks"]
        assert (await done(client, "read_file", path="kept", sandbox=fork["sandbox"]))["text"] == "kept\n"
        taken = await done(client, "snapshot", sandbox=other, name="mcp-case")
        restored = await done(client, "restore", snapshot=taken["snapshot"])
        assert (await done(client, "read_file", path="kept", sandbox=restored["sandbox"]))["text"] == "kept\n"
        for sandbox in (other, fork["sandbox"], restored["sandbox"]):
            assert (await done(client, "kill_sandbox", sandbox=sandbox))["state"] == "killed"
        assert (await refused(client, "run_command", command="true", sandbox=other))["code"] == "not_found"


async def test_a_session_whose_sandbox_was_killed_is_told_or_gets_another(shared):
    async with over_http(shared) as client:
        first = (await done(client, "run_command", command="true"))["sandbox"]
        answer = httpx.delete(f"{shared.url}/sandboxes/{first}", headers={"X-API-Key": shared.key}, timeout=60)
        assert answer.status_code == 204
        assert (await refused(client, "run_command", command="true"))["code"] == "sandbox_ended"
        second = (await done(client, "run_command", command="true"))["sandbox"]
        assert second != first
        await done(client, "kill_sandbox")
        assert (await refused(client, "kill_sandbox"))["code"] == "no_sandbox"


async def test_an_exposed_port_is_reached(shared):
    async with over_http(shared) as client:
        serve = "mkdir -p w && echo served > w/index.html && cd w && (python3 -m http.server 8000 >/dev/null 2>&1 &)"
        await done(client, "run_command", command=serve)
        exposed = await done(client, "expose_port", port=8000)
        sandbox = exposed["sandbox"]
        assert exposed["url"] == f"http://8000-{sandbox}.localhost:{shared.port}"

        def served() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(exposed["server"], headers=exposed["headers"], timeout=30).text == "served\n"
            return False

        wait_until(served, 120, "the server in the sandbox")


async def test_files_and_logs_are_resources(connect):
    async with connect() as client:
        assert (await client.list_resources()).resources == []
        await done(client, "write_file", path="a b.txt", content="text")
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["sandbox://{id}/{+path}", "sandbox-logs://{id}"]
        named = {resource.name: resource.uri for resource in (await client.list_resources()).resources}
        (contents,) = (await client.read_resource(named["a b.txt"])).contents
        assert contents.text == "text"
        (log,) = (await client.read_resource(named["logs"])).contents
        assert log.mime_type == "text/plain"
        sandbox = named["logs"].removeprefix("sandbox-logs://")
        for uri in (f"sandbox://{sandbox}/no/such/file", "sandbox://inothing/etc/passwd", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)


async def test_code_without_an_interpreter_is_refused_with_a_reason(shared):
    async with over_http(shared) as client:
        error = await refused(client, "run_code", code="1 + 1")
        assert error["message"], json.dumps(error)
