"""State, variables and working directories in every language."""

from __future__ import annotations

import pytest
from e2b.exceptions import NotFoundException, SandboxException

from .conftest import done

#: For each language: code that defines, code that uses, what that says; and what prints a
#: variable of the environment, and where it is.
CASES = {
    "python": ("x = 41", "print(x + 1)", "import os; print(os.environ.get('COLOUR'))", "import os; print(os.getcwd())"),
    "javascript": ("let x = 41", "console.log(x + 1)", "console.log(process.env.COLOUR)", "console.log(process.cwd())"),
    "js": ("let y = 41", "console.log(y + 1)", "console.log(process.env.COLOUR)", "console.log(process.cwd())"),
    "typescript": ("const x: number = 41", "console.log(x + 1)", "console.log(process.env.COLOUR)", "console.log(process.cwd())"),
    "ts": ("const y: number = 41", "console.log(y + 1)", "console.log(process.env.COLOUR)", "console.log(process.cwd())"),
    "bash": ("x=41", "echo $((x + 1))", "echo ${COLOUR-None}", "pwd"),
    "r": ("x <- 41", "cat(x + 1, '\\n')", "cat(Sys.getenv('COLOUR'), '\\n')", "cat(getwd(), '\\n')"),
    "java": ("int x = 41;", "System.out.println(x + 1);", "System.out.println(System.getProperty(\"COLOUR\"));",
             "System.out.println(System.getProperty(\"user.dir\"));"),
}


def said(execution) -> str:
    return "".join(execution.logs.stdout).strip()


@pytest.mark.kernel
@pytest.mark.parametrize("language", CASES)
async def test_state_is_kept_from_call_to_call(run, language):
    define, use, _, _ = CASES[language]
    await run(define, language=language)
    assert said(await run(use, language=language)) == "42"


@pytest.mark.kernel
@pytest.mark.parametrize("language", [name for name in CASES if len(name) > 2 or name == "r"])
async def test_a_variable_of_a_call_lasts_for_that_call_only(run, language):
    _, _, show, _ = CASES[language]
    blue = "a 'b' \"c\" $d \\ ü"
    assert said(await run(show, language=language, envs={"COLOUR": blue})) == blue
    assert said(await run(show, language=language)) in ("None", "undefined", "null", "")


@pytest.mark.kernel
@pytest.mark.parametrize("language", [name for name in CASES if len(name) > 2 or name == "r"])
async def test_a_context_starts_in_its_directory(sandbox, run, language):
    *_, where = CASES[language]
    assert said(await run(where, language=language)) == "/home/user"
    context = await done(sandbox.create_code_context(cwd="/tmp", language=language))
    try:
        assert said(await run(where, context=context)) == "/tmp"
    finally:
        await done(sandbox.remove_code_context(context))


@pytest.mark.kernel
async def test_variables_of_the_sandbox_are_in_every_language(sdk):
    sandbox = await sdk.create(timeout=300, envs={"COLOUR": "green"})
    for language in ("python", "javascript", "bash", "r", "java"):
        show = CASES[language][2]
        execution = await done(sandbox.run_code(show, language=language))
        assert said(execution) == "green", (language, execution)
        over = await done(sandbox.run_code(show, language=language, envs={"COLOUR": "red"}))
        assert said(over) == "red", language
        execution = await done(sandbox.run_code(show, language=language))
        assert said(execution) == "green", language
    await done(sandbox.kill())


#: Programs that run inside.
PROGRAMS = """
from pathlib import Path
found = []
for path in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        found.append(path.read_text().replace("\\0", " "))
    except OSError:
        pass
found"""


async def kernels(sandbox) -> list[str]:
    """The kernels that run, by the first word of their programs."""
    programs = (await done(sandbox.run_code(PROGRAMS))).results[0].json
    return sorted(program.split()[0].rsplit("/", 1)[-1] for program in programs if "kernel" in program)


async def test_a_new_sandbox_has_the_contexts_of_its_template_and_no_others(sdk):
    sandbox = await sdk.create(timeout=120)
    listed = await done(sandbox.list_code_contexts())
    assert sorted(context.language for context in listed) == ["javascript", "python"]
    # Python's kernel is in its memory. That of JavaScript is not: it takes much, and many never use it.
    assert await kernels(sandbox) == ["python3"]
    script = next(context for context in listed if context.language == "javascript")
    assert (await done(sandbox.run_code("let kept = 6; kept", context=script))).text == "6"
    assert (await done(sandbox.run_code("kept * 7", language="js"))).text == "42"
    assert await kernels(sandbox) == ["deno", "python3"]
    assert len(await done(sandbox.list_code_contexts())) == 2
    await done(sandbox.kill())


async def test_a_context_that_has_run_nothing_is_restarted_and_removed(sdk):
    sandbox = await sdk.create(timeout=120)
    listed = await done(sandbox.list_code_contexts())
    script = next(context for context in listed if context.language == "javascript")
    await done(sandbox.restart_code_context(script))
    execution = await done(sandbox.run_code("process.cwd()", context=script))
    assert execution.text == "/home/user" and execution.execution_count == 1
    await done(sandbox.remove_code_context(script))
    # The next execution creates another.
    assert (await done(sandbox.run_code("1 + 1", language="js"))).text == "2"
    again = [context for context in await done(sandbox.list_code_contexts()) if context.language == "javascript"]
    assert len(again) == 1 and again[0].id != script.id
    await done(sandbox.kill())


async def test_contexts_are_apart_listed_restarted_and_removed(sandbox, run):
    before = {context.language for context in await done(sandbox.list_code_contexts())}
    assert {"python", "javascript"} <= before
    one = await done(sandbox.create_code_context())
    other = await done(sandbox.create_code_context(language="python"))
    await run("mark = 1", context=one)
    apart = await done(sandbox.run_code("mark", context=other))
    assert apart.error.name == "NameError"
    await done(sandbox.restart_code_context(one))
    gone = await done(sandbox.run_code("mark", context=one))
    assert gone.error.name == "NameError" and gone.execution_count == 1
    for context in (one, other):
        await done(sandbox.remove_code_context(context))
    known = {context.id for context in await done(sandbox.list_code_contexts())}
    assert not known & {one.id, other.id}
    with pytest.raises(NotFoundException):
        await done(sandbox.run_code("1", context=one))


async def test_an_unknown_language_is_an_error(sandbox):
    with pytest.raises(SandboxException, match="(?i)cobol"):
        await done(sandbox.run_code("x", language="cobol"))


async def test_javascript_awaits_and_imports(run):
    code = "import { join } from 'node:path'; const v = await Promise.resolve(join('a', 'b')); v"
    assert (await run(code, language="js")).text == "a/b"
    typed = "interface P { n: number }; const p: P = { n: 2 }; p.n * 21"
    assert (await run(typed, language="ts")).text == "42"


#: Code that imports modules of Node without their prefix, and its result.
BARE = {
    "import { readFileSync } from 'fs'; readFileSync('/etc/passwd', 'utf8').includes('root')": "true",
    "import fs from 'fs'; typeof fs.existsSync": "function",
    "import * as path from 'path'; path.join('a', 'b')": "a/b",
    "import { readFile } from 'fs/promises'; typeof readFile": "function",
    "import os, { EOL } from \"os\"; typeof os.cpus + EOL.length": "function1",
    "const m = await import('fs'); typeof m.readFileSync": "function",
    "const { existsSync } = require('fs'); existsSync('/etc/passwd')": "true",
    "require('node:path').sep": "/",
    "typeof require('child_process').spawn": "function",
    # Text that only looks like an import is not changed.
    "const text = \"import x from 'fs'\"; /* import 'os' */ text": "import x from 'fs'",
    "`require('fs') from '${'path'}'`": "require('fs') from 'path'",
    "let require = 3; require": "3",
}


@pytest.mark.kernel
@pytest.mark.parametrize("language", ["js", "ts"])
async def test_modules_of_node_need_no_prefix(sandbox, language):
    context = await done(sandbox.create_code_context(language=language))
    try:
        for code, text in BARE.items():
            # A name can be declared once in a context.
            scoped = code if "import" in code else "{ " + code + " }"
            execution = await done(sandbox.run_code(scoped, context=context))
            assert execution.error is None, (code, execution.error)
            assert execution.text.strip('"') == text, code
    finally:
        await done(sandbox.remove_code_context(context))


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("language", "code", "name"),
    [
        ("python", "1 / 0", "ZeroDivisionError"),
        ("python", "def f(:", "SyntaxError"),
        ("javascript", "throw new TypeError('no')", "TypeError"),
        ("typescript", "const n: number = 1; throw new RangeError('no')", "RangeError"),
        # The kernel names no error, only the exit status of the code.
        ("bash", "ls /no/such", ""),
        ("r", "stop('no')", "ERROR"),
        # Java's kernel puts the error into the value.
        ("java", 'throw new IllegalStateException("no");', "RuntimeException"),
    ],
)
async def test_failures_are_errors_of_the_language_and_the_next_call_works(sandbox, run, language, code, name):
    failed = await done(sandbox.run_code(code, language=language))
    assert failed.error.name.endswith(name), failed.error
    assert failed.text is None
    if language == "bash":
        assert failed.error.value == "2" and "No such file" in said(failed), failed
    else:
        assert failed.error.traceback
    fine = "System.out.println(7)" if language == "java" else {
        "r": "cat(7)", "javascript": "console.log(7)", "typescript": "console.log(7)", "bash": "echo 7",
    }.get(language, "print(7)")
    assert said(await run(fine, language=language)) == "7"
