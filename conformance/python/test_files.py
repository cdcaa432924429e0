"""Files: written, read, listed, described, moved, removed."""

from __future__ import annotations

import io
import os

import pytest
from e2b import (
    AuthenticationException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotEnoughSpaceException,
)

from .conftest import TINY
from .halves import done


async def content(box, path: str, **more) -> bytes:
    return bytes(await done(box.files.read(path, format="bytes", **more)))


async def test_text(box, directory):
    wrote = await done(box.files.write(f"{directory}/a.txt", "hëllo\n"))
    assert (wrote.name, wrote.path, wrote.type) == ("a.txt", f"{directory}/a.txt", FileType.FILE)
    assert await done(box.files.read(f"{directory}/a.txt")) == "hëllo\n"


async def test_bytes(box, directory):
    data = bytes(range(256)) * 300
    await done(box.files.write(f"{directory}/b", data))
    assert await content(box, f"{directory}/b") == data


async def test_a_file_like_object(box, directory):
    await done(box.files.write(f"{directory}/c", io.BytesIO(b"from a stream")))
    assert await content(box, f"{directory}/c") == b"from a stream"


@pytest.mark.parametrize("octet, gzip", [(False, False), (True, False), (True, True)])
async def test_every_form_of_upload(box, directory, octet, gzip):
    data = os.urandom(100_000) + b"a" * 1_000_000
    path = f"{directory}/d"
    await done(box.files.write(path, data, gzip=gzip, use_octet_stream=octet))
    assert await content(box, path) == data
    assert await content(box, path, gzip=True) == data


async def test_reading_as_a_stream(box, flavour, directory):
    data = os.urandom(3 << 20)
    await done(box.files.write(f"{directory}/e", data))
    stream = await done(box.files.read(f"{directory}/e", format="stream"))
    if flavour == "sync":
        assert b"".join(stream) == data
    else:
        assert b"".join([part async for part in stream]) == data


async def test_an_empty_file(box, directory):
    await done(box.files.write(f"{directory}/empty", ""))
    assert await done(box.files.read(f"{directory}/empty")) == ""
    assert (await done(box.files.get_info(f"{directory}/empty"))).size == 0


async def test_writing_makes_the_directories(box, directory):
    await done(box.files.write(f"{directory}/x/y/z.txt", "deep"))
    assert await done(box.files.read(f"{directory}/x/y/z.txt")) == "deep"
    assert (await done(box.files.get_info(f"{directory}/x/y"))).owner == "user"


async def test_writing_again_replaces(box, directory):
    await done(box.files.write(f"{directory}/r", "a long first text"))
    await done(box.files.write(f"{directory}/r", "short"))
    assert await done(box.files.read(f"{directory}/r")) == "short"


async def test_relative_paths_are_below_home(box, directory):
    name = directory.rsplit("/", 1)[1]
    await done(box.files.write(f"{name}/rel", "x"))
    assert await done(box.files.read(f"/home/user/{name}/rel")) == "x"
    assert await done(box.files.read(f"~/{name}/rel")) == "x"
    assert await done(box.files.exists(f"/home/../home/user/./{name}//rel"))


async def test_names_that_are_hard(box, directory):
    for name in ("with space", "ünï", "a&b=c", "100%", "#hash?", "-dash", "'quote\"", "new\nline"):
        path = f"{directory}/{name}"
        await done(box.files.write(path, name))
        assert await done(box.files.read(path)) == name
        assert (await done(box.files.get_info(path))).path == path


async def test_another_users_files(box, directory):
    path = f"{directory}/root.txt"
    await done(box.files.write(path, "mine", user="root"))
    info = await done(box.files.get_info(path))
    assert (info.owner, info.group, info.mode) == ("root", "root", 0o644)
    await done(box.files.write("of-root.txt", "x", user="root"))
    assert (await done(box.files.get_info("/root/of-root.txt"))).owner == "root"


async def test_a_user_that_is_not_there(box):
    with pytest.raises(AuthenticationException):
        await done(box.files.read("/etc/hostname", user="nobody-at-all"))
    with pytest.raises(AuthenticationException):
        await done(box.files.list("/", user="nobody-at-all"))


async def test_what_is_not_there(box, directory):
    path = f"{directory}/none"
    for call in (box.files.read, box.files.get_info, box.files.list):
        with pytest.raises(FileNotFoundException):
            await done(call(path))
    with pytest.raises(FileNotFoundException):
        await done(box.files.rename(path, f"{path}2"))
    assert await done(box.files.exists(path)) is False


async def test_a_directory_is_no_file(box, directory):
    with pytest.raises(InvalidArgumentException):
        await done(box.files.read(directory))
    with pytest.raises(InvalidArgumentException):
        await done(box.files.write(directory, "x"))


async def test_a_file_is_no_directory(box, directory):
    await done(box.files.write(f"{directory}/f", "x"))
    with pytest.raises(InvalidArgumentException):
        await done(box.files.list(f"{directory}/f"))
    with pytest.raises(InvalidArgumentException):
        await done(box.files.make_dir(f"{directory}/f"))


async def test_write_files(box, directory):
    entries = [{"path": f"{directory}/w/{n}", "data": f"{n}" * n} for n in range(12)]
    wrote = await done(box.files.write_files(entries))
    assert [one.path for one in wrote] == [entry["path"] for entry in entries]
    for n in range(12):
        assert await done(box.files.read(f"{directory}/w/{n}")) == f"{n}" * n


async def test_write_no_files(box):
    assert await done(box.files.write_files([])) == []


async def test_metadata(box, directory):
    path = f"{directory}/m"
    wrote = await done(box.files.write(path, "x", metadata={"origin": "a b", "kind": "test"}))
    assert wrote.metadata == {"origin": "a b", "kind": "test"}
    assert (await done(box.files.get_info(path))).metadata == wrote.metadata
    listed = await done(box.files.list(directory))
    assert listed[0].metadata == wrote.metadata
    # An upload replaces the whole of it.
    await done(box.files.write(path, "y"))
    assert not (await done(box.files.get_info(path))).metadata


async def test_list(box, directory):
    await done(box.files.write(f"{directory}/b.txt", "12345"))
    await done(box.files.write(f"{directory}/a/inner.txt", "x"))
    found = await done(box.files.list(directory))
    assert [(one.name, one.type) for one in found] == [("a", FileType.DIR), ("b.txt", FileType.FILE)]
    assert found[1].path == f"{directory}/b.txt" and found[1].size == 5


@pytest.mark.parametrize("depth, count", [(1, 2), (2, 4), (3, 5), (10, 5)])
async def test_list_depth(box, directory, depth, count):
    for name in ("1/2/3", "1/f", "g"):
        await done(box.files.write(f"{directory}/{name}", ""))
    found = await done(box.files.list(directory, depth=depth))
    assert len(found) == count, [one.path for one in found]


async def test_list_of_depth_zero(box, directory):
    with pytest.raises(InvalidArgumentException):
        await done(box.files.list(directory, depth=0))


async def test_info_of_a_file(box, directory):
    path = f"{directory}/i"
    await done(box.files.write(path, "12345"))
    info = await done(box.files.get_info(path))
    assert (info.name, info.path, info.type, info.size) == ("i", path, FileType.FILE, 5)
    assert (info.mode, info.permissions) == (0o644, "-rw-r--r--")
    assert (info.owner, info.group, info.symlink_target) == ("user", "user", None)
    assert info.modified_time.tzinfo is not None


async def test_info_of_a_directory(box, directory):
    info = await done(box.files.get_info(directory))
    assert (info.type, info.mode, info.permissions) == (FileType.DIR, 0o755, "drwxr-xr-x")
    assert info.size > 0


async def test_info_of_a_link(box, directory):
    await done(box.files.write(f"{directory}/target", "x"))
    await done(box.commands.run("ln -s target link", cwd=directory))
    info = await done(box.files.get_info(f"{directory}/link"))
    assert (info.type, info.symlink_target) == (FileType.FILE, f"{directory}/target")
    assert await done(box.files.read(f"{directory}/link")) == "x"


async def test_exists(box, directory):
    await done(box.files.write(f"{directory}/is", ""))
    assert await done(box.files.exists(f"{directory}/is")) is True
    assert await done(box.files.exists(directory)) is True
    assert await done(box.files.exists(f"{directory}/is-not")) is False


async def test_make_dir(box, directory):
    assert await done(box.files.make_dir(f"{directory}/p/q")) is True
    assert await done(box.files.make_dir(f"{directory}/p/q")) is False
    assert (await done(box.files.get_info(f"{directory}/p/q"))).owner == "user"


async def test_rename(box, directory):
    await done(box.files.write(f"{directory}/old", "x"))
    info = await done(box.files.rename(f"{directory}/old", f"{directory}/sub/new"))
    assert (info.name, info.path) == ("new", f"{directory}/sub/new")
    assert await done(box.files.read(f"{directory}/sub/new")) == "x"
    assert await done(box.files.exists(f"{directory}/old")) is False


async def test_rename_onto_a_file_replaces_it(box, directory):
    await done(box.files.write(f"{directory}/one", "1"))
    await done(box.files.write(f"{directory}/two", "2"))
    await done(box.files.rename(f"{directory}/one", f"{directory}/two"))
    assert await done(box.files.read(f"{directory}/two")) == "1"


async def test_rename_a_directory(box, directory):
    await done(box.files.write(f"{directory}/dir/f", "x"))
    await done(box.files.rename(f"{directory}/dir", f"{directory}/moved"))
    assert await done(box.files.read(f"{directory}/moved/f")) == "x"


async def test_remove(box, directory):
    await done(box.files.write(f"{directory}/gone/f", "x"))
    await done(box.files.remove(f"{directory}/gone/f"))
    assert await done(box.files.exists(f"{directory}/gone/f")) is False
    await done(box.files.remove(f"{directory}/gone"))
    assert await done(box.files.exists(f"{directory}/gone")) is False


async def test_remove_a_tree(box, directory):
    await done(box.files.write(f"{directory}/t/a/b/c", "x"))
    await done(box.files.remove(f"{directory}/t"))
    assert await done(box.files.list(directory)) == []


async def test_remove_what_is_not_there(box, directory):
    assert await done(box.files.remove(f"{directory}/none")) is None


async def test_a_path_with_dots_stays_inside(box, server):
    await done(box.files.write("../../../../../../tmp/dots.txt", "inside"))
    assert await done(box.files.read("/tmp/dots.txt")) == "inside"
    assert not os.path.exists("/tmp/dots.txt")


async def test_a_large_file(box, directory):
    data = os.urandom(1 << 20) * 48
    await done(box.files.write(f"{directory}/large", data, use_octet_stream=True))
    assert await content(box, f"{directory}/large") == data


@pytest.mark.timeout(120)
async def test_an_upload_that_does_not_fit(sdk, options):
    box = await done(sdk.create(TINY, timeout=120, **options))
    try:
        with pytest.raises(NotEnoughSpaceException):
            await done(box.files.write("large", os.urandom(1 << 20) * 200))
        # What is there goes on, and there is room again.
        await done(box.files.remove("large"))
        await done(box.files.write("small", "fits"))
        assert await done(box.files.read("small")) == "fits"
    finally:
        await done(box.kill())
