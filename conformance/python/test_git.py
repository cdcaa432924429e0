"""`sandbox.git`: commands, made by the SDK, of the git that is in the template."""

from __future__ import annotations

import pytest
from e2b import CommandExitException

from .halves import done


@pytest.fixture
async def repository(box, directory):
    path = f"{directory}/repo"
    await done(box.git.init(path, initial_branch="main"))
    await done(box.git.configure_user("A Name", "a@example.com", scope="local", path=path))
    return path


async def commit(box, path: str, name: str, text: str):
    await done(box.files.write(f"{path}/{name}", text))
    await done(box.git.add(path))
    await done(box.git.commit(path, f"write {name}"))


async def test_status_add_commit(box, repository):
    await done(box.files.write(f"{repository}/a.txt", "one"))
    status = await done(box.git.status(repository))
    assert [one.name for one in status.file_status] == ["a.txt"] and not status.is_clean
    await done(box.git.add(repository))
    await done(box.git.commit(repository, "first", author_name="B", author_email="b@example.com"))
    status = await done(box.git.status(repository))
    assert status.is_clean and status.current_branch == "main"
    log = await done(box.commands.run("git log --format=%an:%s", cwd=repository))
    assert log.stdout == "B:first\n"


async def test_branches(box, repository):
    await commit(box, repository, "a", "1")
    await done(box.git.create_branch(repository, "topic"))
    branches = await done(box.git.branches(repository))
    assert set(branches.branches) == {"main", "topic"} and branches.current_branch == "topic"
    await done(box.git.checkout_branch(repository, "main"))
    await done(box.git.delete_branch(repository, "topic"))
    assert (await done(box.git.branches(repository))).branches == ["main"]


async def test_reset_and_restore(box, repository):
    await commit(box, repository, "a", "1")
    await commit(box, repository, "a", "2")
    await done(box.files.write(f"{repository}/a", "3"))
    await done(box.git.restore(repository, ["a"]))
    assert await done(box.files.read(f"{repository}/a")) == "2"
    await done(box.git.reset(repository, mode="hard", target="HEAD~1"))
    assert await done(box.files.read(f"{repository}/a")) == "1"


async def test_clone_push_pull(box, repository, directory):
    await commit(box, repository, "a", "1")
    bare, copy = f"{directory}/bare.git", f"{directory}/copy"
    await done(box.git.init(bare, bare=True, initial_branch="main"))
    await done(box.git.remote_add(repository, "origin", f"file://{bare}"))
    assert await done(box.git.remote_get(repository, "origin")) == f"file://{bare}"
    await done(box.git.push(repository, remote="origin", branch="main"))
    await done(box.git.clone(f"file://{bare}", copy))
    assert await done(box.files.read(f"{copy}/a")) == "1"
    await commit(box, repository, "a", "2")
    await done(box.git.push(repository))
    await done(box.git.pull(copy))
    assert await done(box.files.read(f"{copy}/a")) == "2"


async def test_config(box, repository):
    await done(box.git.set_config("shoal.own", "value", scope="local", path=repository))
    assert await done(box.git.get_config("shoal.own", scope="local", path=repository)) == "value"
    assert await done(box.git.get_config("shoal.none", scope="local", path=repository)) is None


async def test_what_is_no_repository(box, directory):
    with pytest.raises(CommandExitException):
        await done(box.git.status(directory + "/none"))
