"""Streams, timeouts and interruptions of executions."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from e2b.exceptions import TimeoutException

from .conftest import done

#: The time within which a context must be usable again after an interruption.
AGAIN_SECONDS = 100


async def test_lines_come_when_they_are_printed(sandbox):
    told = []

    def note(message):
        told.append(("err" if message.error else "out", message.line))
        return sandbox.files.write(f"/tmp/told-{message.line.strip()}", "")

    # It continues only when the last line was reported.
    code = """
import os, sys, time
def wait(word):
    end = time.monotonic() + 60
    while not os.path.exists(f"/tmp/told-{word}"):
        assert time.monotonic() < end, f"{word} was not told"
        time.sleep(0.05)
print("one", flush=True); wait("one"); print("two", file=sys.stderr, flush=True); wait("two"); print("three")
"""
    execution = await done(sandbox.run_code(code, on_stdout=note, on_stderr=note, timeout=150))
    assert execution.error is None, execution.error
    assert told == [("out", "one\n"), ("err", "two\n"), ("out", "three\n")]
    assert execution.logs.stdout == ["one\n", "three\n"] and execution.logs.stderr == ["two\n"]


async def test_results_and_errors_reach_callbacks(sandbox):
    results, errors = [], []
    await done(sandbox.run_code("display(1); 2", on_result=results.append, on_error=errors.append))
    assert [result.text for result in results] == ["1", "2"] and errors == []
    await done(sandbox.run_code("boom", on_result=results.append, on_error=errors.append))
    assert [error.name for error in errors] == ["NameError"] and len(results) == 2


async def test_large_output_is_complete(run):
    execution = await run("for n in range(100_000): print(n)")
    assert "".join(execution.logs.stdout).split() == [str(n) for n in range(100_000)]


#: Keeps a state in each language, and shows it.
KEPT = {
    "python": ("kept = 1", "print(kept)"), "bash": ("kept=1", "echo $kept"), "r": ("kept <- 1", "cat(kept)"),
    "javascript": ("var kept = 1", "console.log(kept)"), "typescript": ("var kept = 1", "console.log(kept)"),
    "java": ("int kept = 1;", "System.out.println(kept);"),
}


@pytest.mark.parametrize("language, forever, fine", [
    ("python", "import time; time.sleep(300)", "print('ok')"),
    ("python", "while True: pass", "print('ok')"),
    ("bash", "sleep 300", "echo ok"),
    ("r", "Sys.sleep(300)", "cat('ok')"),
    ("javascript", "while (true);", "console.log('ok')"),
    ("javascript", "await new Promise(() => {})", "console.log('ok')"),
    ("typescript", "let n: number = 0; while (true) n++;", "console.log('ok')"),
    ("java", "Thread.sleep(300_000);", "System.out.println(\"ok\");"),
])
async def test_a_timeout_interrupts_a_call_and_keeps_the_state(sandbox, language, forever, fine):
    await done(sandbox.run_code(KEPT[language][0], language=language))
    with pytest.raises(TimeoutException, match="(?i)timed out"):
        await done(sandbox.run_code(forever, language=language, timeout=3))
    began = time.monotonic()
    after = await done(sandbox.run_code(fine, language=language, timeout=120))
    assert "".join(after.logs.stdout).strip() == "ok", after
    assert time.monotonic() - began < AGAIN_SECONDS
    shown = "".join((await done(sandbox.run_code(KEPT[language][1], language=language))).logs.stdout).strip()
    # After a kernel was killed, the next execution reports it.
    assert shown == "1" or "restarted" in "".join(after.logs.stderr) and language in ("javascript", "typescript", "java")


async def test_a_sandbox_that_is_killed_ends_the_call(sdk):
    sandbox = await sdk.create(timeout=120)
    # Until the first output there is no answer that could end.
    code = "import time; print('begun', flush=True); time.sleep(90)"
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        run_code = functools.partial(sandbox.run_code, code, on_stdout=lambda _: begun.set())
        if sdk.name == "async":
            call = asyncio.ensure_future(run_code())
        else:
            call = asyncio.get_running_loop().run_in_executor(pool, run_code)
        assert await asyncio.to_thread(begun.wait, 60)
        await sdk.call("kill", sandbox.sandbox_id)
        with pytest.raises(TimeoutException, match="sandbox was killed while the request was in progress"):
            await asyncio.wait_for(call, 80)


async def there(sandbox, path: str) -> None:
    """Waits until there is such a file."""
    end = time.monotonic() + 60
    while not await done(sandbox.files.exists(path)):
        assert time.monotonic() < end, path
        await asyncio.sleep(0.05)


async def test_calls_run_one_by_one_in_a_context_and_in_parallel_in_two(sandbox, sdk):
    other = await done(sandbox.create_code_context())
    slow, quick = """
import os, time
open("/tmp/slow", "w").close()
while not os.path.exists("/tmp/go-on"): time.sleep(0.05)
'slow'""", "'quick'"

    def begin(code, **more):
        if sdk.name == "async":
            return asyncio.ensure_future(sandbox.run_code(code, **more))
        return asyncio.ensure_future(asyncio.to_thread(sandbox.run_code, code, **more))

    first = begin(slow)
    await there(sandbox, "/tmp/slow")
    assert (await asyncio.wait_for(begin(quick, context=other), 120)).text == "quick"
    second = begin(quick)
    assert not (await asyncio.wait((first, second), timeout=1))[0]
    await done(sandbox.files.write("/tmp/go-on", ""))
    assert [(await call).text for call in (first, second)] == ["slow", "quick"]
    await done(sandbox.remove_code_context(other))


async def test_a_dead_kernel_is_reported_and_restarted(sdk):
    sandbox = await sdk.create(timeout=120)
    died = await done(sandbox.run_code("import os; os._exit(1)"))
    assert died.error is not None, died
    again = await done(sandbox.run_code("1 + 1"))
    assert again.text == "2", again
    await done(sandbox.kill())


async def test_a_sandbox_that_is_connected_to_has_the_same_state(sdk, sandbox):
    await done(sandbox.run_code("there = 'still'"))
    connected = await sdk.call("connect", sandbox.sandbox_id)
    assert (await done(connected.run_code("there"))).text == "still"


@pytest.mark.kernel
async def test_output_waits_for_a_slow_reader(server, sdk):
    sandbox = await sdk.create(timeout=300)
    lines = 2000
    code = f"""
for n in range({lines}):
    print(n, "x" * 100_000, flush=True)
    open("/tmp/printed", "w").write(str(n))
"""
    body = json.dumps({"code": code})
    url, token = server.url, sandbox._envd_access_token
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999", "X-Access-Token": token}
    with httpx.stream("POST", url + "/execute", content=body, headers=headers, timeout=60) as answer:
        # Until it blocks: 200 MB are more than the buffers between the kernel and here.
        seen = None
        while (now := await done(printed(sandbox))) != seen or not now:
            seen = now
            await asyncio.sleep(1)
        assert int(seen) < lines - 1, "it did not wait"
        said = [json.loads(line) for line in answer.iter_lines()]
    texts = "".join(line["text"] for line in said if line["type"] == "stdout")
    assert [int(line.split()[0]) for line in texts.splitlines()] == list(range(lines))
    assert not [line for line in said if line["type"] in ("error", "stderr")]
    assert (await done(sandbox.run_code("1 + 1"))).text == "2"
    await done(sandbox.kill())


async def printed(sandbox) -> str:
    """How far the code has come; zero before it has started."""
    if not await done(sandbox.files.exists("/tmp/printed")):
        return ""
    return await done(sandbox.files.read("/tmp/printed"))
