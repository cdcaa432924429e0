"""Commands: what they say, who runs them, how they end."""

from __future__ import annotations

import time

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    TimeoutException,
)

from .halves import done, eventually


async def test_run_says_what_the_command_said(box):
    ran = await done(box.commands.run("echo out; echo err >&2"))
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.error) == ("out\n", "err\n", 0, None)


@pytest.mark.parametrize("code", [1, 2, 42, 126, 127, 255])
async def test_an_exit_code_is_an_exception_that_tells_all(box, code):
    with pytest.raises(CommandExitException) as failed:
        await done(box.commands.run(f"echo out; echo err >&2; exit {code}"))
    assert (failed.value.exit_code, failed.value.stdout, failed.value.stderr) == (code, "out\n", "err\n")
    assert failed.value.error == f"exit status {code}"


async def test_a_command_that_is_not_there(box):
    with pytest.raises(CommandExitException) as failed:
        await done(box.commands.run("there-is-no-such-command"))
    assert failed.value.exit_code == 127 and "not found" in failed.value.stderr


async def test_the_user_is_user_at_home(box):
    ran = await done(box.commands.run("whoami; pwd; echo $HOME; echo $USER; sudo -n whoami"))
    assert ran.stdout.split() == ["user", "/home/user", "/home/user", "user", "root"]


async def test_another_user(box):
    ran = await done(box.commands.run("whoami; pwd; echo $HOME", user="root"))
    assert ran.stdout.split()[::2] == ["root", "/root"]


async def test_a_user_that_is_not_there(box):
    with pytest.raises(AuthenticationException, match="nobody-at-all"):
        await done(box.commands.run("true", user="nobody-at-all"))


async def test_cwd(box):
    ran = await done(box.commands.run("pwd", cwd="/usr/share"))
    assert ran.stdout == "/usr/share\n"


@pytest.mark.parametrize("cwd", ["", "~", "~/", "."])
async def test_cwd_that_is_home(box, cwd):
    assert (await done(box.commands.run("pwd", cwd=cwd))).stdout == "/home/user\n"


async def test_cwd_is_relative_to_home(box, directory):
    name = directory.rsplit("/", 1)[1]
    assert (await done(box.commands.run("pwd", cwd=name))).stdout == f"{directory}\n"


async def test_cwd_that_is_not_there(box):
    with pytest.raises(InvalidArgumentException, match="cwd '/no/such' does not exist"):
        await done(box.commands.run("true", cwd="/no/such"))


async def test_envs(box):
    ran = await done(box.commands.run('echo "$A|$B"', envs={"A": "one two", "B": "$A;`x`"}))
    assert ran.stdout == "one two|$A;`x`\n"


async def test_what_a_sandbox_knows_of_itself(box, sandbox):
    ran = await done(box.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX_ID"))
    assert ran.stdout.split() == ["true", sandbox.sandbox_id, sandbox.sandbox_id]


async def test_callbacks_get_the_output_as_it_comes(box):
    out, err = [], []
    ran = await done(
        box.commands.run(
            "for n in 1 2 3; do echo o$n; echo e$n >&2; sleep 0.05; done",
            on_stdout=out.append, on_stderr=err.append,
        )
    )
    assert "".join(out) == ran.stdout == "o1\no2\no3\n" and len(out) >= 2
    assert "".join(err) == ran.stderr == "e1\ne2\ne3\n"


async def test_text_that_is_split_between_two_frames(box):
    ran = await done(box.commands.run("python3 -c \"print('ä€😀' * 40000, end='')\""))
    assert ran.stdout == "ä€😀" * 40000


async def test_bytes_that_are_no_text(box):
    assert (await done(box.commands.run(r"printf 'a\xffb'"))).stdout == "a\ufffdb"


async def test_a_command_that_says_nothing(box):
    ran = await done(box.commands.run("true"))
    assert (ran.stdout, ran.stderr) == ("", "")


async def test_a_flood_arrives_whole(box):
    """64 MiB; the reader is slower than the writer, and nothing is lost or kept."""
    sizes = []
    ran = await done(
        box.commands.run(
            "head -c 67108864 /dev/zero | tr '\\0' x", timeout=50, retain_output=False,
            on_stdout=lambda text: sizes.append(len(text)),
        )
    )
    assert ran.exit_code == 0 and sum(sizes) == 64 << 20


async def test_a_long_line(box):
    """One argument of 100 KiB, and it comes back."""
    text = "x" * 100_000
    assert (await done(box.commands.run(f"echo {text}"))).stdout == text + "\n"


async def test_a_timeout_ends_the_command(box):
    begun = time.monotonic()
    with pytest.raises(TimeoutException):
        await done(box.commands.run("sleep 31.4159", timeout=1))
    assert time.monotonic() - begun < 10
    gone = "! pgrep -f 'sleep 31[.]4159'"
    await eventually(lambda: succeeds(box, gone), "the end of the command")


async def succeeds(box, command: str) -> bool:
    try:
        await done(box.commands.run(command))
        return True
    except CommandExitException:
        return False


async def test_a_background_command(box):
    handle = await done(box.commands.run("echo out; sleep 0.1; exit 3", background=True))
    assert handle.pid > 0
    with pytest.raises(CommandExitException) as failed:
        await done(handle.wait())
    assert (failed.value.exit_code, failed.value.stdout) == (3, "out\n")


async def test_a_background_command_lives_no_longer_than_its_timeout(box):
    handle = await done(box.commands.run("sleep 1000", background=True, timeout=1))
    with pytest.raises(TimeoutException):
        await done(handle.wait())

    async def gone():
        return handle.pid not in [one.pid for one in await done(box.commands.list())]

    await eventually(gone, "the end of the process")


async def test_list(box):
    handle = await done(
        box.commands.run("sleep 1000", background=True, timeout=0, envs={"A": "1"}, cwd="/tmp")
    )
    found = next(one for one in await done(box.commands.list()) if one.pid == handle.pid)
    assert (found.cmd, found.args, found.cwd) == ("/bin/bash", ["-l", "-c", "sleep 1000"], "/tmp")
    assert found.envs == {"A": "1"} and found.tag is None
    assert await done(handle.kill()) is True


async def test_kill(box):
    handle = await done(box.commands.run("sleep 1000", background=True, timeout=0))
    assert await done(box.commands.kill(handle.pid)) is True
    with pytest.raises(CommandExitException) as failed:
        await done(handle.wait())
    assert (failed.value.exit_code, failed.value.error) == (-1, "signal: killed")


async def test_kill_what_is_not_there(box):
    assert await done(box.commands.kill(999_999)) is False


async def test_a_signal_is_an_end_like_another(box):
    with pytest.raises(CommandExitException) as failed:
        await done(box.commands.run("kill -TERM $$"))
    assert (failed.value.exit_code, failed.value.error) == (-1, "signal: terminated")


async def test_connect(box):
    handle = await done(
        box.commands.run("read line; echo got $line; exit 7", background=True, stdin=True, timeout=0)
    )
    other = await done(box.commands.connect(handle.pid))
    assert other.pid == handle.pid
    await done(box.commands.send_stdin(handle.pid, "it\n"))
    for one in (handle, other):
        with pytest.raises(CommandExitException) as failed:
            await done(one.wait())
        assert (failed.value.exit_code, failed.value.stdout) == (7, "got it\n")


async def test_connect_to_what_is_not_there(box):
    with pytest.raises(NotFoundException, match="999999"):
        await done(box.commands.connect(999_999))


async def test_disconnect_leaves_the_process(box):
    handle = await done(box.commands.run("sleep 1000", background=True, timeout=0))
    await done(handle.disconnect())
    assert handle.pid in [one.pid for one in await done(box.commands.list())]
    assert await done(box.commands.kill(handle.pid)) is True


async def test_stdin(box):
    handle = await done(box.commands.run("cat", background=True, stdin=True, timeout=20))
    await done(handle.send_stdin("one "))
    await done(handle.send_stdin(b"two \xc3\xa4"))
    await done(handle.close_stdin())
    ran = await done(handle.wait())
    assert ran.stdout == "one two ä" and ran.exit_code == 0


async def test_stdin_of_a_megabyte(box):
    handle = await done(box.commands.run("wc -c", background=True, stdin=True, timeout=30))
    for _ in range(16):
        await done(handle.send_stdin("x" * 65536))
    await done(handle.close_stdin())
    assert (await done(handle.wait())).stdout == "1048576\n"


async def test_stdin_is_closed_unless_asked_for(box):
    assert (await done(box.commands.run("cat; echo end"))).stdout == "end\n"


async def test_stdin_of_what_is_not_there(box):
    with pytest.raises(NotFoundException):
        await done(box.commands.send_stdin(999_999, "x"))
    with pytest.raises(NotFoundException):
        await done(box.commands.close_stdin(999_999))


async def test_stdin_in_a_stream(box, flavour):
    handle = await done(box.commands.run("cat", background=True, stdin=True, timeout=20))
    parts = [f"part {n}\n" for n in range(100)]
    if flavour == "sync":
        box.commands.stream_input(handle.pid, iter(parts))
    else:
        async with box.commands.stream_input(handle.pid) as stream:
            for part in parts:
                await stream.send(part)
    await done(handle.close_stdin())
    assert (await done(handle.wait())).stdout == "".join(parts)


def test_stdin_in_a_stream_to_what_is_not_there(sandbox):
    with pytest.raises(NotFoundException):
        sandbox.commands.stream_input(999_999, ["x"])


async def test_stdin_in_a_stream_to_what_is_not_there_async(asandbox):
    with pytest.raises(NotFoundException):
        async with asandbox.commands.stream_input(999_999) as stream:
            await stream.send("x")


def test_iterating_over_a_command(sandbox):
    handle = sandbox.commands.run("echo a; echo b >&2", background=True)
    seen = list(handle)
    assert "".join(out for out, _, _ in seen if out) == "a\n"
    assert "".join(err for _, err, _ in seen if err) == "b\n"


async def test_many_at_once(asandbox):
    import asyncio

    ran = await asyncio.gather(*(asandbox.commands.run(f"echo {n}") for n in range(40)))
    assert [one.stdout for one in ran] == [f"{n}\n" for n in range(40)]


async def test_what_a_command_leaves_behind_runs_on(box):
    begun = time.monotonic()
    ran = await done(box.commands.run("setsid sleep 27.1 >/dev/null 2>&1 & echo started", timeout=40))
    assert ran.stdout == "started\n" and time.monotonic() - begun < 20
    assert await succeeds(box, "pkill -f 'sleep 27[.]1'")
