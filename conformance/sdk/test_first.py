"""The path that a person takes first."""

from .conftest import done


async def test_a_sandbox_runs_commands(sandbox, runtime):
    result = await done(sandbox.commands.run("whoami; pwd"))
    assert result.stdout == "user\n/home/user\n"
    assert result.exit_code == 0


async def test_a_file_is_read_as_it_was_written(sandbox):
    await done(sandbox.files.write("a/b.txt", "hello"))
    assert await done(sandbox.files.read("a/b.txt")) == "hello"
