"""A response means that the operation is complete: the next request sees its effect."""

import pytest
from e2b import CommandExitException, PtySize, Sandbox


@pytest.fixture(scope="module")
def sandbox(shared, runtime):
    made = Sandbox.create(metadata={"shoal/runtime": runtime}, timeout=600, **shared.options())
    yield made
    made.kill()


def test_a_poll_tells_what_happened_before_it(sandbox):
    sandbox.files.make_dir("polled")
    watch = sandbox.files.watch_dir("polled")
    for n in range(50):
        sandbox.files.write(f"polled/{n}", "x")
        assert str(n) in [event.name for event in watch.get_new_events()]
    watch.stop()


def test_what_was_killed_is_gone(sandbox):
    for _ in range(10):
        command = sandbox.commands.run("sleep 1000", background=True, timeout=0)
        terminal = sandbox.pty.create(PtySize(24, 80), timeout=0)
        assert command.kill() and sandbox.pty.kill(terminal.pid)
        for pid in (command.pid, terminal.pid):
            with pytest.raises(CommandExitException):
                sandbox.commands.run(f"kill -0 {pid}", user="root")


def test_a_directory_has_a_size(sandbox):
    sandbox.files.make_dir("empty")
    assert sandbox.files.get_info("empty").size > 0
