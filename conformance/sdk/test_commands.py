"""Commands: output, exit codes, input, listing and reconnecting."""

import asyncio
import hashlib

import pytest
from e2b import CommandExitException, InvalidArgumentException, TimeoutException
from e2b.exceptions import AuthenticationException, NotFoundException

from .conftest import done


@pytest.fixture
async def commands(sandbox):
    return sandbox.commands


async def wait_for(handle, **more):
    """The result of a background command."""
    return await done(handle.wait(**more))


async def test_stdout_and_stderr_are_separate(commands):
    result = await done(commands.run("echo out; echo err >&2"))
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("out\n", "err\n", 0, None)


@pytest.mark.parametrize("code", [1, 2, 42, 127, 255])
async def test_a_failure_is_raised_with_its_code(commands, code):
    with pytest.raises(CommandExitException) as raised:
        await done(commands.run(f"echo out; echo err >&2; exit {code}"))
    assert raised.value.exit_code == code
    assert (raised.value.stdout, raised.value.stderr) == ("out\n", "err\n")
    assert raised.value.error == f"exit status {code}"


async def test_a_command_that_kills_itself_has_a_signal_for_an_end(commands):
    with pytest.raises(CommandExitException) as raised:
        await done(commands.run("kill -TERM $$"))
    assert raised.value.exit_code == -1
    assert raised.value.error == "signal: terminated"


async def test_an_unknown_program_fails_in_the_shell(commands):
    with pytest.raises(CommandExitException) as raised:
        await done(commands.run("no-such-program"))
    assert raised.value.exit_code == 127
    assert "no-such-program" in raised.value.stderr


async def test_commands_begin_at_home_in_a_login_shell(commands):
    result = await done(commands.run('pwd; whoami; echo $HOME $USER $LOGNAME; shopt -q login_shell && echo login'))
    assert result.stdout == "/home/user\nuser\n/home/user user user\nlogin\n"


async def test_a_working_directory_is_taken(commands):
    assert (await done(commands.run("pwd", cwd="/tmp"))).stdout == "/tmp\n"


async def test_a_missing_working_directory_is_refused(commands):
    with pytest.raises(InvalidArgumentException, match="cwd '/nowhere' does not exist"):
        await done(commands.run("pwd", cwd="/nowhere"))


async def test_root_starts_in_the_default_directory(commands):
    result = await done(commands.run("id -un; id -u; echo $HOME; pwd", user="root"))
    assert result.stdout == "root\n0\n/root\n/home/user\n"


async def test_an_unknown_user_runs_nothing(commands):
    with pytest.raises(AuthenticationException, match="invalid username: 'ghost'"):
        await done(commands.run("true", user="ghost"))


async def test_the_user_may_become_root_without_a_password(commands):
    assert (await done(commands.run("sudo -n id -u"))).stdout == "0\n"


async def test_variables_are_given_to_a_command(commands):
    envs = {"ONE": "1", "TEXT": "with space and 'quotes' and $dollar", "EMPTY": ""}
    result = await done(commands.run('echo "$ONE|$TEXT|$EMPTY|"', envs=envs))
    assert result.stdout == "1|with space and 'quotes' and $dollar||\n"


async def test_a_sandbox_knows_itself(commands, sandbox):
    result = await done(commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX_ID"))
    assert result.stdout.split() == ["true", sandbox.sandbox_id, sandbox.sandbox_id]


async def test_output_arrives_while_the_command_runs(commands, sdk):
    seen = []
    handle = await done(commands.run("echo first; read line; echo got $line", background=True, stdin=True))
    if sdk.name == "sync":
        for stdout, _, _ in handle:
            seen.append(stdout)
            if stdout == "first\n":
                commands.send_stdin(handle.pid, "word\n")
    else:
        # The async handle passes its output to a callback: a second handle listens from the start.
        await commands.send_stdin(handle.pid, "word\n")
        seen = [(await handle.wait()).stdout]
    assert "".join(seen) == "first\ngot word\n"


async def test_callbacks_get_each_stream(commands):
    out, err = [], []
    result = await done(
        commands.run("for n in 1 2 3; do echo o$n; echo e$n >&2; done", on_stdout=out.append, on_stderr=err.append)
    )
    assert "".join(out) == "o1\no2\no3\n" == result.stdout
    assert "".join(err) == "e1\ne2\ne3\n" == result.stderr


async def test_callbacks_work_without_kept_output(commands):
    out = []
    result = await done(commands.run("echo told", on_stdout=out.append, retain_output=False))
    assert out == ["told\n"]
    assert result.stdout is None


async def test_multibyte_characters_survive_chunk_boundaries(commands):
    text = "grüße 世界 🐟 " * 20_000
    result = await done(commands.run("python3 -c \"print('grüße 世界 🐟 ' * 20000, end='')\""))
    assert result.stdout == text


async def test_bytes_that_are_no_text_are_replaced(commands):
    assert (await done(commands.run(r"printf 'a\xffb'"))).stdout == "a\ufffdb"


async def test_large_output_arrives_complete(commands):
    size = 16 * 1024 * 1024
    total = [0]

    def count(text):
        total[0] += len(text)

    result = await done(
        commands.run(f"head -c {size} /dev/zero | tr '\\0' x", on_stdout=count, retain_output=False)
    )
    assert result.exit_code == 0
    assert total[0] == size


async def test_unread_output_does_not_affect_other_commands(commands):
    flood = await done(commands.run("yes", background=True, timeout=0))
    assert (await done(commands.run("echo still here"))).stdout == "still here\n"
    await done(flood.kill())


async def test_a_background_command_runs_and_can_be_awaited(commands):
    handle = await done(commands.run("read x; exit $x", background=True, stdin=True))
    assert handle.pid > 0
    await done(commands.send_stdin(handle.pid, "7\n"))
    with pytest.raises(CommandExitException) as raised:
        await wait_for(handle)
    assert raised.value.exit_code == 7


async def test_input_is_closed(commands):
    handle = await done(commands.run("cat; echo closed", background=True, stdin=True))
    await done(commands.send_stdin(handle.pid, "text "))
    await done(commands.close_stdin(handle.pid))
    assert (await wait_for(handle)).stdout == "text closed\n"


async def test_input_of_bytes_goes_in_unchanged(commands):
    handle = await done(commands.run("sha256sum", background=True, stdin=True))
    data = bytes(range(256)) * 512
    await done(commands.send_stdin(handle.pid, data))
    await done(commands.close_stdin(handle.pid))
    assert (await wait_for(handle)).stdout.split()[0] == hashlib.sha256(data).hexdigest()


async def test_input_is_streamed(commands, sdk):
    handle = await done(commands.run("wc -c", background=True, stdin=True))
    chunks = [b"x" * 1000] * 100
    if sdk.name == "async":
        stream = commands.stream_input(handle.pid)
        for chunk in chunks:
            await stream.send(chunk)
        await stream.close()
    else:
        commands.stream_input(handle.pid, chunks)
    await done(commands.close_stdin(handle.pid))
    assert (await wait_for(handle)).stdout.strip() == "100000"


async def test_without_input_a_command_reads_the_end(commands):
    assert (await done(commands.run("cat; echo end"))).stdout == "end\n"


async def test_input_for_no_process_is_refused(commands):
    with pytest.raises(NotFoundException):
        await done(commands.send_stdin(999_999, "x"))


async def test_a_command_is_killed(commands):
    handle = await done(commands.run("sleep 1000", background=True))
    assert await done(handle.kill()) is True
    with pytest.raises(CommandExitException) as raised:
        await wait_for(handle)
    assert (raised.value.exit_code, raised.value.error) == (-1, "signal: killed")
    assert await done(commands.kill(handle.pid)) is False


async def test_killing_a_missing_process_returns_false(commands):
    assert await done(commands.kill(999_999)) is False


async def test_running_commands_are_listed(commands):
    handle = await done(commands.run("exec sleep 1001", background=True, envs={"K": "v"}, cwd="/tmp"))
    found = [process for process in await done(commands.list()) if process.pid == handle.pid]
    assert len(found) == 1
    assert found[0].cmd == "/bin/bash"
    assert found[0].args == ["-l", "-c", "exec sleep 1001"]
    assert (found[0].envs, found[0].cwd) == ({"K": "v"}, "/tmp")
    await done(handle.kill())


async def test_a_command_is_found_again(commands):
    first = await done(commands.run("read x; echo got $x", background=True, stdin=True))
    await done(first.disconnect())
    second = await done(commands.connect(first.pid))
    await done(commands.send_stdin(first.pid, "it\n"))
    assert (await wait_for(second)).stdout == "got it\n"


async def test_two_may_listen_to_one_command(commands):
    first = await done(commands.run("read x; echo got $x", background=True, stdin=True))
    second = await done(commands.connect(first.pid))
    await done(commands.send_stdin(first.pid, "it\n"))
    assert (await wait_for(first)).stdout == (await wait_for(second)).stdout == "got it\n"


async def test_connecting_to_no_process_is_refused(commands):
    with pytest.raises(NotFoundException):
        await done(commands.connect(999_999))


async def test_disconnecting_does_not_end_a_command(commands):
    handle = await done(commands.run("sleep 1002", background=True, timeout=0))
    await done(handle.disconnect())
    assert handle.pid in [process.pid for process in await done(commands.list())]
    assert await done(commands.kill(handle.pid)) is True


async def test_a_timeout_ends_the_command_itself(commands):
    with pytest.raises(TimeoutException):
        await done(commands.run("echo $$ > timed.pid; exec sleep 1003", timeout=1))
    gone = await done(commands.run("while kill -0 $(cat timed.pid) 2>/dev/null; do sleep 0.05; done; echo gone"))
    assert gone.stdout == "gone\n"


async def test_a_timeout_holds_in_the_background_too(commands):
    handle = await done(commands.run("exec sleep 1004", background=True, timeout=1))
    with pytest.raises(TimeoutException):
        await wait_for(handle)


async def test_many_commands_run_at_once(commands, sdk):
    if sdk.name == "async":
        results = await asyncio.gather(*(commands.run(f"echo {n}") for n in range(40)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(40)]
    else:
        handles = [commands.run(f"echo {n}", background=True) for n in range(20)]
        assert [handle.wait().stdout for handle in handles] == [f"{n}\n" for n in range(20)]


async def test_a_long_command_line_works(commands):
    word = "x" * 100_000
    assert (await done(commands.run(f"printf %s {word} | wc -c"))).stdout.strip() == "100000"


async def test_no_zombies_are_left(commands):
    await done(commands.run("(sleep 0.01 &) ; (true &)"))
    await done(commands.run("for n in $(seq 20); do (true &); done"))
    # They are taken one after the other, soon after they have ended.
    count = "ps -eo stat | grep -c ^Z || true"
    until = f'for n in $(seq 600); do [ "$({count})" = 0 ] && break; sleep 0.1; done; {count}'
    assert (await done(commands.run(until, timeout=120))).stdout == "0\n"
