"""Files: read, write, list, stat, move and remove, as different users."""

import io

import pytest
from e2b import FileNotFoundException, FileType, InvalidArgumentException, WriteInfo
from e2b.exceptions import AuthenticationException, NotFoundException
from e2b.sandbox.filesystem.filesystem import WriteEntry

from .conftest import done

#: More than one buffer in transit, and not a whole number of them.
LARGE = bytes(range(256)) * 4096 * 5 + b"end"


@pytest.fixture
async def files(sandbox):
    return sandbox.files


async def test_text_is_read_as_it_was_written(files):
    info = await done(files.write("text.txt", "grüße, 世界\n"))
    assert isinstance(info, WriteInfo)
    assert (info.name, info.path, info.type) == ("text.txt", "/home/user/text.txt", FileType.FILE)
    assert await done(files.read("text.txt")) == "grüße, 世界\n"


async def test_bytes_are_read_as_they_were_written(files):
    await done(files.write("bytes.bin", LARGE))
    assert await done(files.read("bytes.bin", format="bytes")) == LARGE


async def test_a_large_file_is_read_as_a_stream(files, sdk):
    await done(files.write("stream.bin", LARGE))
    stream = await done(files.read("stream.bin", format="stream"))
    if sdk.name == "async":
        chunks = [chunk async for chunk in stream]
    else:
        chunks = list(stream)
    assert b"".join(chunks) == LARGE


@pytest.mark.parametrize("octets", [False, True, None])
async def test_a_file_object_is_written(files, octets):
    await done(files.write("object.bin", io.BytesIO(LARGE), use_octet_stream=octets))
    assert await done(files.read("object.bin", format="bytes")) == LARGE


async def test_what_is_compressed_on_the_way_arrives_whole(files):
    await done(files.write("zipped.txt", "abc" * 100_000, gzip=True))
    assert await done(files.read("zipped.txt", gzip=True)) == "abc" * 100_000
    assert (await done(files.get_info("zipped.txt"))).size == 300_000


async def test_an_empty_file_is_a_file(files):
    await done(files.write("empty", b""))
    assert await done(files.read("empty")) == ""
    assert (await done(files.get_info("empty"))).size == 0


async def test_writing_again_replaces_what_was_there(files):
    await done(files.write("again.txt", "a long first text"))
    await done(files.write("again.txt", "short"))
    assert await done(files.read("again.txt")) == "short"


async def test_directories_on_the_way_are_made_and_belong_to_the_user(files):
    await done(files.write("way/to/file.txt", "x"))
    info = await done(files.get_info("way/to"))
    assert (info.type, info.owner, info.group, info.mode) == (FileType.DIR, "user", "user", 0o755)


async def test_many_files_are_written_in_one_call(files):
    entries = [WriteEntry(path=f"many/{n}/{n}.txt", data=f"text {n}") for n in range(20)]
    infos = await done(files.write_files(entries))
    assert [info.path for info in infos] == [f"/home/user/many/{n}/{n}.txt" for n in range(20)]
    assert await done(files.read("many/19/19.txt")) == "text 19"


async def test_no_files_are_written_by_an_empty_call(files):
    assert await done(files.write_files([])) == []


@pytest.mark.parametrize("name", ["with space", "per%20cent", "plus+sign", "quo'te\"s", "naïve-文", "a&b=c?d#e", "-dash"])
async def test_any_name_goes(files, name):
    path = f"/home/user/names/{name}"
    info = await done(files.write(path, name))
    assert info.path == path
    assert await done(files.read(path)) == name
    assert name in [entry.name for entry in await done(files.list("/home/user/names"))]


async def test_a_home_may_be_said_with_a_tilde(files):
    await done(files.write("~/tilde.txt", "home"))
    assert await done(files.read("/home/user/tilde.txt")) == "home"


async def test_dots_in_a_path_lead_where_they_say_inside_the_sandbox(files):
    await done(files.write("/home/user/../../tmp/dots.txt", "x"))
    assert await done(files.read("/tmp/dots.txt")) == "x"
    assert "root:" in await done(files.read("../../../../../../etc/passwd"))


async def test_root_writes_where_the_user_may_not(files):
    info = await done(files.write("/root/secret.txt", "s", user="root"))
    assert info.path == "/root/secret.txt"
    assert (await done(files.get_info("/root/secret.txt", user="root"))).owner == "root"
    assert await done(files.read("secret.txt", user="root")) == "s"


async def test_an_unknown_user_is_refused(files):
    with pytest.raises(AuthenticationException):
        await done(files.read("text.txt", user="nobody-of-that-name"))
    with pytest.raises(AuthenticationException):
        await done(files.list("/home/user", user="nobody-of-that-name"))


async def test_a_missing_file_is_not_found(files):
    with pytest.raises(FileNotFoundException):
        await done(files.read("missing.txt"))
    with pytest.raises(FileNotFoundException):
        await done(files.get_info("missing.txt"))
    with pytest.raises(FileNotFoundException):
        await done(files.list("missing"))
    with pytest.raises(NotFoundException):
        await done(files.rename("missing.txt", "other.txt"))


async def test_a_directory_is_not_read_as_a_file(files):
    with pytest.raises(InvalidArgumentException):
        await done(files.read("/home/user"))


async def test_a_directory_is_not_written_over(files):
    with pytest.raises(InvalidArgumentException):
        await done(files.write("/home/user", "x"))


async def test_a_file_is_not_listed(files):
    await done(files.write("single.txt", "x"))
    with pytest.raises(InvalidArgumentException):
        await done(files.list("single.txt"))


async def test_a_file_tells_what_it_is(files, sandbox):
    await done(files.write("what.txt", "12345"))
    await done(sandbox.commands.run("chmod 640 what.txt"))
    info = await done(files.get_info("what.txt"))
    assert (info.name, info.path, info.type) == ("what.txt", "/home/user/what.txt", FileType.FILE)
    assert (info.size, info.mode, info.permissions) == (5, 0o640, "-rw-r-----")
    assert (info.owner, info.group, info.symlink_target) == ("user", "user", None)
    assert info.modified_time is not None


async def test_a_link_tells_where_it_leads(files, sandbox):
    await done(files.write("target.txt", "12345"))
    await done(sandbox.commands.run("ln -sf target.txt link && mkdir -p dir && ln -sfn dir dirlink"))
    info = await done(files.get_info("link"))
    assert (info.type, info.symlink_target) == (FileType.FILE, "/home/user/target.txt")
    assert info.permissions.startswith("L")
    assert (await done(files.get_info("dirlink"))).type == FileType.DIR
    assert await done(files.read("link")) == "12345"


async def test_a_dangling_link_is_not_listed(files, sandbox):
    await done(sandbox.commands.run("mkdir -p dangling && ln -sfn /nowhere dangling/link"))
    assert await done(files.list("dangling")) == []


async def test_lists_go_as_deep_as_is_asked(files, sandbox):
    await done(sandbox.commands.run("mkdir -p deep/a/b/c && touch deep/f deep/a/f deep/a/b/f"))

    async def paths(depth):
        entries = await done(files.list("deep", depth=depth))
        return [entry.path.removeprefix("/home/user/deep/") for entry in entries]

    assert await paths(1) == ["a", "f"]
    assert await paths(2) == ["a", "a/b", "a/f", "f"]
    assert await paths(9) == ["a", "a/b", "a/b/c", "a/b/f", "a/f", "f"]


@pytest.mark.parametrize("depth", [0, -1])
async def test_a_list_without_depth_is_refused(files, depth):
    with pytest.raises(InvalidArgumentException):
        await done(files.list("/home/user", depth=depth))


async def test_a_long_list_is_whole(files, sandbox):
    await done(sandbox.commands.run("mkdir -p long && cd long && touch $(seq -w 1 2000)"))
    entries = await done(files.list("long"))
    assert [entry.name for entry in entries] == [f"{n:04}" for n in range(1, 2001)]


async def test_what_is_there_exists(files):
    await done(files.write("here/file", "x"))
    assert await done(files.exists("here")) is True
    assert await done(files.exists("here/file")) is True
    assert await done(files.exists("not-here")) is False


async def test_a_file_is_renamed(files):
    await done(files.write("old.txt", "x"))
    info = await done(files.rename("old.txt", "new/place/new.txt"))
    assert info.path == "/home/user/new/place/new.txt"
    assert await done(files.exists("old.txt")) is False
    assert await done(files.read("new/place/new.txt")) == "x"


async def test_a_renamed_file_replaces_another(files):
    await done(files.write("from.txt", "from"))
    await done(files.write("to.txt", "to"))
    await done(files.rename("from.txt", "to.txt"))
    assert await done(files.read("to.txt")) == "from"


async def test_a_directory_is_made_once(files):
    assert await done(files.make_dir("made/of/dirs")) is True
    assert await done(files.make_dir("made/of/dirs")) is False
    assert (await done(files.get_info("made/of/dirs"))).type == FileType.DIR


async def test_a_directory_is_not_made_where_a_file_is(files):
    await done(files.write("a-file", "x"))
    with pytest.raises(InvalidArgumentException):
        await done(files.make_dir("a-file"))


async def test_what_is_removed_is_gone_with_all_below(files):
    await done(files.write("tree/a/b.txt", "x"))
    await done(files.remove("tree"))
    assert await done(files.exists("tree")) is False


async def test_removing_what_is_not_there_is_no_mistake(files):
    assert await done(files.remove("never-there")) is None


async def test_metadata_stays_with_a_file(files):
    written = await done(files.write("meta.txt", "x", metadata={"Author": "me", "purpose": "test"}))
    told = {"author": "me", "purpose": "test"}
    assert written.metadata == told
    assert (await done(files.get_info("meta.txt"))).metadata == told
    assert (await done(files.rename("meta.txt", "meta2.txt"))).metadata == told


async def test_metadata_is_replaced_as_a_whole(files):
    await done(files.write("meta3.txt", "x", metadata={"a": "1"}))
    await done(files.write("meta3.txt", "y", metadata={"b": "2"}))
    assert (await done(files.get_info("meta3.txt"))).metadata == {"b": "2"}
    await done(files.write("meta3.txt", "z"))
    assert (await done(files.get_info("meta3.txt"))).metadata is None


async def test_too_much_metadata_is_refused(files):
    with pytest.raises(InvalidArgumentException):
        await done(files.write("meta4.txt", "x", metadata={"k": "v" * 5000}))
