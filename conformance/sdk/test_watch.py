"""Watches: events of a directory, by name and kind."""

import asyncio

import pytest
from e2b import FileNotFoundException, FilesystemEventType, InvalidArgumentException
from e2b.exceptions import SandboxException

from .conftest import done

CREATE, WRITE = FilesystemEventType.CREATE, FilesystemEventType.WRITE
REMOVE, RENAME, CHMOD = FilesystemEventType.REMOVE, FilesystemEventType.RENAME, FilesystemEventType.CHMOD


class Watch:
    """A watch of either SDK: the sync one polls, the async one has callbacks."""

    def __init__(self, sdk, sandbox, path, **more):
        self.sdk, self.sandbox, self.path, self.more = sdk, sandbox, path, more
        self.events = []
        self.ended = []

    async def __aenter__(self):
        files = self.sandbox.files
        if self.sdk.name == "async":
            self.handle = await files.watch_dir(
                self.path, self.events.append, on_exit=self.ended.append, **self.more
            )
        else:
            self.handle = files.watch_dir(self.path, **self.more)
        return self

    async def __aexit__(self, *_):
        await done(self.handle.stop())

    async def wait_for(self, name, kind):
        """The first event with this name and kind."""
        for _ in range(2400):
            if self.sdk.name == "sync":
                self.events += self.handle.get_new_events()
            for event in self.events:
                if (event.name, event.type) == (name, kind):
                    return event
            # Yields to the event loop; the sync SDK can only poll.
            await asyncio.sleep(0.025)
        raise AssertionError(f"no {kind} of {name} among {self.events}")


@pytest.fixture
async def directory(sandbox, request):
    path = f"/home/user/watched/{abs(hash(request.node.name))}"
    await done(sandbox.files.make_dir(path))
    return path


async def test_files_that_come_change_and_go_are_told(sdk, sandbox, directory):
    async with Watch(sdk, sandbox, directory) as watch:
        await done(sandbox.files.write(f"{directory}/f", "1"))
        await watch.wait_for("f", CREATE)
        await watch.wait_for("f", WRITE)
        await done(sandbox.commands.run(f"chmod 600 {directory}/f"))
        await watch.wait_for("f", CHMOD)
        await done(sandbox.files.rename(f"{directory}/f", f"{directory}/g"))
        await watch.wait_for("f", RENAME)
        await watch.wait_for("g", CREATE)
        await done(sandbox.files.remove(f"{directory}/g"))
        await watch.wait_for("g", REMOVE)


async def test_below_is_told_only_when_asked(sdk, sandbox, directory):
    await done(sandbox.files.make_dir(f"{directory}/below"))
    async with Watch(sdk, sandbox, directory) as flat:
        async with Watch(sdk, sandbox, directory, recursive=True) as deep:
            await done(sandbox.files.write(f"{directory}/below/f", "1"))
            await done(sandbox.files.write(f"{directory}/mark", "1"))
            await deep.wait_for("below/f", CREATE)
            await flat.wait_for("mark", CREATE)
            assert "below/f" not in [event.name for event in flat.events]


async def test_directories_that_come_later_are_watched_too(sdk, sandbox, directory):
    async with Watch(sdk, sandbox, directory, recursive=True) as watch:
        await done(sandbox.files.make_dir(f"{directory}/new"))
        await watch.wait_for("new", CREATE)
        await done(sandbox.files.write(f"{directory}/new/f", "1"))
        await watch.wait_for("new/f", WRITE)


async def test_an_event_shows_the_entry_when_asked(sdk, sandbox, directory):
    async with Watch(sdk, sandbox, directory, include_entry=True) as watch:
        await done(sandbox.files.write(f"{directory}/f", "12345"))
        event = await watch.wait_for("f", CREATE)
        assert event.entry.path == f"{directory}/f"
        await done(sandbox.files.remove(f"{directory}/f"))
        assert (await watch.wait_for("f", REMOVE)).entry is None


async def test_a_missing_directory_is_not_watched(sdk, sandbox):
    with pytest.raises(FileNotFoundException):
        await Watch(sdk, sandbox, "/nowhere").__aenter__()


async def test_a_file_is_not_watched(sdk, sandbox):
    with pytest.raises(InvalidArgumentException):
        await Watch(sdk, sandbox, "/etc/passwd").__aenter__()


async def test_a_watch_that_was_stopped_is_over(sdk, sandbox, directory):
    watch = Watch(sdk, sandbox, directory)
    async with watch:
        await done(sandbox.files.write(f"{directory}/f", "1"))
        await watch.wait_for("f", CREATE)
    if sdk.name == "sync":
        with pytest.raises(SandboxException):
            watch.handle.get_new_events()
    else:
        assert watch.ended == [None]
