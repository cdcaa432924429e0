"""Watches: the sync half polls, the async half listens to a stream."""

from __future__ import annotations

import pytest
from e2b import FileNotFoundException, FilesystemEventType, FileType, InvalidArgumentException, SandboxException

from .halves import done, eventually

CREATE, WRITE, REMOVE = FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.REMOVE
RENAME, CHMOD = FilesystemEventType.RENAME, FilesystemEventType.CHMOD


class Watched:
    """A watch of either half, with everything it has told."""

    def __init__(self, box, flavour: str):
        self.box, self.flavour, self.events = box, flavour, []

    async def open(self, path: str, **more):
        if self.flavour == "async":
            self.handle = await self.box.files.watch_dir(path, on_event=self.events.append, **more)
        else:
            self.handle = self.box.files.watch_dir(path, **more)
        return self

    def told(self) -> list:
        if self.flavour == "sync":
            self.events.extend(self.handle.get_new_events())
        return self.events

    async def until(self, name: str, kind: FilesystemEventType):
        def found():
            return [one for one in self.told() if (one.name, one.type) == (name, kind)]

        return (await eventually(found, f"{kind} of {name}"))[0]


@pytest.fixture
async def watched(box, flavour):
    watch = Watched(box, flavour)
    yield watch
    if hasattr(watch, "handle"):
        await done(watch.handle.stop())


async def test_each_kind_of_change(box, watched, directory):
    await watched.open(directory)
    await done(box.files.write(f"{directory}/f", "x"))
    await watched.until("f", CREATE)
    await watched.until("f", WRITE)
    await done(box.commands.run(f"chmod 600 {directory}/f"))
    await watched.until("f", CHMOD)
    await done(box.files.rename(f"{directory}/f", f"{directory}/g"))
    await watched.until("f", RENAME)
    await watched.until("g", CREATE)
    await done(box.files.remove(f"{directory}/g"))
    await watched.until("g", REMOVE)


async def test_below_only_when_asked_for(box, watched, directory):
    await done(box.files.make_dir(f"{directory}/sub"))
    await watched.open(directory)
    await done(box.files.write(f"{directory}/sub/unseen", "x"))
    await done(box.files.write(f"{directory}/last", "x"))
    await watched.until("last", CREATE)
    assert not [one for one in watched.told() if "unseen" in one.name]


async def test_recursive(box, watched, directory):
    await done(box.files.make_dir(f"{directory}/sub"))
    await watched.open(directory, recursive=True)
    await done(box.files.write(f"{directory}/sub/seen", "x"))
    await watched.until("sub/seen", WRITE)
    # What appears later is watched too.
    await done(box.files.write(f"{directory}/new/deep/f", "x"))
    await watched.until("new/deep/f", CREATE)


async def test_with_the_entry(box, watched, directory):
    await watched.open(directory, include_entry=True)
    await done(box.files.write(f"{directory}/f", "12345"))
    event = await watched.until("f", WRITE)
    assert (event.entry.path, event.entry.type) == (f"{directory}/f", FileType.FILE)
    await done(box.files.remove(f"{directory}/f"))
    assert (await watched.until("f", REMOVE)).entry is None


async def test_without_the_entry(box, watched, directory):
    await watched.open(directory)
    await done(box.files.write(f"{directory}/f", "x"))
    assert (await watched.until("f", CREATE)).entry is None


def test_a_poll_tells_what_happened_before_it(sandbox, directory):
    handle = sandbox.files.watch_dir(directory)
    for n in range(50):
        sandbox.files.write(f"{directory}/{n}", "x")
        assert f"{n}" in [one.name for one in handle.get_new_events()]
    handle.stop()


def test_a_poll_of_a_watch_that_has_ended(sandbox, directory):
    handle = sandbox.files.watch_dir(directory)
    handle.stop()
    with pytest.raises(SandboxException):
        handle.get_new_events()


async def test_the_end_of_a_stream_is_told(asandbox, directory):
    ends = []
    handle = await asandbox.files.watch_dir(directory, on_event=lambda _: None, on_exit=ends.append, timeout=1)
    await eventually(lambda: ends, "the end of the watch")
    await handle.stop()


async def test_what_is_not_there(box, flavour, directory):
    with pytest.raises(FileNotFoundException):
        await Watched(box, flavour).open(f"{directory}/none")


async def test_a_file(box, flavour, directory):
    await done(box.files.write(f"{directory}/f", "x"))
    with pytest.raises(InvalidArgumentException):
        await Watched(box, flavour).open(f"{directory}/f")


async def test_as_root(box, flavour):
    watch = await Watched(box, flavour).open("/root", user="root")
    await done(box.files.write("/root/by-root", "x", user="root"))
    await watch.until("by-root", WRITE)
    await done(watch.handle.stop())
