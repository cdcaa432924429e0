"""Git, by the SDK's helpers, between two repositories of one sandbox."""

import pytest

from .conftest import done


@pytest.fixture
async def repository(sandbox, request):
    """A repository with one commit and a bare one that it pushes to."""
    root = f"/home/user/git/{abs(hash(request.node.name))}"
    git = sandbox.git
    await done(git.init(f"{root}/origin.git", bare=True, initial_branch="main"))
    await done(git.init(f"{root}/work", initial_branch="main"))
    await done(git.configure_user("Person", "person@example.com", scope="local", path=f"{root}/work"))
    await done(git.remote_add(f"{root}/work", "origin", f"{root}/origin.git"))
    await done(sandbox.files.write(f"{root}/work/README", "one\n"))
    await done(git.add(f"{root}/work"))
    await done(git.commit(f"{root}/work", "first"))
    return f"{root}/work"


async def test_changes_are_seen_staged_and_committed(sandbox, repository):
    git = sandbox.git
    await done(sandbox.files.write(f"{repository}/README", "two\n"))
    await done(sandbox.files.write(f"{repository}/new", "new\n"))
    status = await done(git.status(repository))
    assert status.current_branch == "main"
    assert {entry.name: entry.status for entry in status.file_status} == {"README": "modified", "new": "untracked"}
    await done(git.add(repository))
    await done(git.commit(repository, "second"))
    assert (await done(git.status(repository))).file_status == []


async def test_branches_are_made_taken_and_deleted(sandbox, repository):
    git = sandbox.git
    await done(git.create_branch(repository, "side"))
    assert (await done(git.branches(repository))).current_branch == "side"
    await done(git.checkout_branch(repository, "main"))
    await done(git.delete_branch(repository, "side"))
    assert (await done(git.branches(repository))).branches == ["main"]


async def test_a_repository_is_pushed_and_cloned(sandbox, repository):
    git = sandbox.git
    await done(git.push(repository, remote="origin", branch="main"))
    origin = repository.replace("/work", "/origin.git")
    clone = repository.replace("/work", "/clone")
    await done(git.clone(origin, clone))
    assert await done(sandbox.files.read(f"{clone}/README")) == "one\n"
    assert await done(git.remote_get(clone, "origin")) == origin
