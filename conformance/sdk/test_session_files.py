"""Files of sessions: kept outside of the machine, and equal on both sides while it lives."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..installation import wait_until
from .test_native import NATIVE, Native
from .test_sessions import machine, run, session  # noqa: F401 - a fixture

#: Commands that write every kind of file whose fate R2-039 to R2-054 say.
KINDS = r"""
mkdir -p src node_modules/left .venv/lib target/debug dist build sub/node_modules logs tmp __pycache__
for name in a.py a.rs a.ts a.c a.go a.sh a.json a.yaml a.toml a.md a.txt Makefile; do echo "text of $name" > "src/$name"; done
printf '\x89PNG\r\n\x1a\n\x00\x01' > i.png; printf '\xff\xd8\xff\xe0\x00' > i.jpg; printf '\xff\xd8\xff\xe0\x00' > i.jpeg
printf 'RIFF\x01\x00\x00\x00WEBP\x00' > i.webp; printf 'GIF89a\x00' > i.gif; printf '%%PDF-1.7\n\x00' > i.pdf
printf '\x00\x01' > data.bin; head -c 11000000 /dev/zero | tr '\0' 'x' > large.txt
for no in node_modules/left/a.js sub/node_modules/b.js .venv/lib/c.py target/debug/d.txt dist/e.js build/f.js logs/g.txt \
  tmp/h.txt __pycache__/i.py j.o k.class l.tmp m.swp n~ .#o; do echo no > "$no"; done
echo last > last.txt
"""


@pytest.fixture(scope="module")
def native(shared):
    return Native(shared)


@pytest.fixture(scope="module")
def mortal(another):
    """A server that tests may kill."""
    return another("session-files")


def listed(native, session: str, **params) -> dict[str, dict]:
    return {file["path"]: file for file in native("GET", f"/sessions/{session}/files", params=params)}


def put(native, session: str, path: str, contents: bytes | str, status: int = 200, headers=None, **params):
    answer = native.http.put(
        f"{NATIVE}/sessions/{session}/files/content", params={"path": path, **params}, content=contents, headers=headers
    )
    assert answer.status_code == status, answer.text
    return answer.json().get("data") if status == 200 else answer.text


def get(native, session: str, path: str, status: int = 200) -> bytes:
    answer = native.http.get(f"{NATIVE}/sessions/{session}/files/content", params={"path": path})
    assert answer.status_code == status, answer.text
    return answer.content


def arrives(native, session: str, path: str, contents: bytes):
    """Waits until the session has a file of the machine."""
    wait_until(lambda: path in listed(native, session) and get(native, session, path) == contents, 20, "the other side")


def test_files_are_there_without_a_machine(native, session):
    made = put(native, session, "example/test.txt", "here\n")
    assert made["sha256"] == hashlib.sha256(b"here\n").hexdigest() and made["size"] == 5
    assert get(native, session, "example/test.txt") == b"here\n"
    put(native, session, "example/test.txt", "new", 412, {"If-None-Match": "*"})
    put(native, session, "example/test.txt", "new", 412, {"If-Match": '"' + "0" * 64 + '"'})
    put(native, session, "example/test.txt", "new", headers={"If-Match": f'"{made["sha256"]}"'})
    put(native, session, "example/test.txt/below", "x", 409)
    assert native("POST", f"/sessions/{session}/files/move", json={"from": "example", "to": "moved"}) == {"files": 1}
    assert list(listed(native, session)) == ["moved/test.txt"]
    assert list(listed(native, session, path="mov")) == []
    assert native("DELETE", f"/sessions/{session}/files", params={"path": "moved"}) == {"files": 1}
    native("DELETE", f"/sessions/{session}/files", 404, params={"path": "moved"})
    get(native, session, "moved/test.txt", 404)
    assert machine(native, session) is None
    assert native("GET", f"/sessions/{session}/sync")["state"] == "synced"


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "x" * 2000, "a\0b"])
def test_r2_056_a_path_stays_below_the_home_directory(native, session, path):
    assert "path" in put(native, session, path, "x", 400)


def test_r2_021_r2_037_and_r2_038_files_are_in_the_machine_before_the_first_command_and_changes_at_once(native, session):
    put(native, session, "example/test.txt", "here\n")
    put(native, session, "run.sh", "#!/bin/sh\necho ran\n", executable="true")
    assert run(native, session, "cat ~/example/test.txt; ./run.sh")[0] == "here\nran\n"
    put(native, session, "example/test.txt", "edited\n")
    wait_until(lambda: run(native, session, "cat example/test.txt")[0] == "edited\n", 20, "the other side")
    native("DELETE", f"/sessions/{session}/files", params={"path": "example"})
    wait_until(lambda: run(native, session, "ls -d example")[1]["code"] == 2, 20, "the other side")


def test_r2_057_an_edit_is_an_event_of_the_same_file(native, session):
    put(native, session, "watched.txt", "one")
    watch = (
        "python3 -c \"import ctypes, os, select\n"
        "libc = ctypes.CDLL(None); fd = libc.inotify_init(); libc.inotify_add_watch(fd, b'watched.txt', 2)\n"
        "print('ready', os.stat('watched.txt').st_ino, flush=True)\n"
        "print(select.select([fd], [], [], 60)[0] != [], os.stat('watched.txt').st_ino)\""
    )
    with ThreadPoolExecutor() as threads:
        watching = threads.submit(run, native, session, watch + " | tee ready.log")
        wait_until(lambda: run(native, session, "cat ready.log", "other")[0].startswith("ready"), 30, "the other side")
        put(native, session, "watched.txt", "two")
        output, end = watching.result(90)
    (_, before), (seen, after) = (line.split() for line in output.split("\r\n" if "\r\n" in output else "\n")[:2])
    assert end["code"] == 0 and seen == "True" and before == after, output


def test_r2_039_to_r2_054_what_returns_and_what_does_not(native, session):
    run(native, session, KINDS)
    arrives(native, session, "last.txt", b"last\n")
    native("GET", f"/sessions/{session}/sync")
    names = ["a.py", "a.rs", "a.ts", "a.c", "a.go", "a.sh", "a.json", "a.yaml", "a.toml", "a.md", "a.txt", "Makefile"]
    returned = {f"src/{name}" for name in names} | {f"i.{kind}" for kind in ("png", "jpg", "jpeg", "webp", "gif", "pdf")}
    wait_until(lambda: returned <= set(listed(native, session)), 20, "the other side")
    assert set(listed(native, session)) == returned | {"last.txt"}
    assert get(native, session, "src/a.py") == b"text of a.py\n"


def test_r2_055_and_r2_060_gitignore_holds_in_both_directions(native, session):
    put(native, session, ".gitignore", "secret/\n*.cache\n!keep.cache\n/top.txt\n")
    put(native, session, "secret/key.txt", "not for the machine")
    run(native, session, "mkdir -p made; echo 1 > made/x.cache; echo 2 > made/keep.cache; echo 3 > top.txt; echo 4 > made/top.txt")
    run(native, session, "echo last > last.txt")
    arrives(native, session, "last.txt", b"last\n")
    wait_until(lambda: "made/top.txt" in listed(native, session), 20, "the other side")
    assert set(listed(native, session)) == {".gitignore", "secret/key.txt", "made/keep.cache", "made/top.txt", "last.txt"}
    assert run(native, session, "ls secret")[1]["code"] == 2


def test_r2_056_links_and_places_outside_of_the_home_are_not_synchronised(native, session):
    run(native, session, "echo no > /tmp/x.txt; ln -s /etc etc; ln -s /tmp/x.txt x.txt; mkdir real; ln -s real other; echo yes > real/y.txt")
    arrives(native, session, "real/y.txt", b"yes\n")
    assert set(listed(native, session)) == {"real/y.txt"}
    # Nothing is written through a link.
    put(native, session, "etc/hosts", "attacked")
    put(native, session, "x.txt", "attacked")
    put(native, session, "last.txt", "last")
    wait_until(lambda: run(native, session, "cat last.txt")[0] == "last", 20, "the other side")
    assert run(native, session, "grep --color=never -c attacked /etc/hosts /tmp/x.txt")[0] == "/etc/hosts:0\n/tmp/x.txt:0\n"
    sync = native("GET", f"/sessions/{session}/sync")
    assert sync["state"] == "behind" and sync["behind"] == 2 and len(sync["notes"]) == 2, sync


def test_r2_017_and_r2_019_files_outlive_the_machine_and_packages_do_not(native, session):
    run(native, session, "mkdir -p deep/er; echo kept > deep/er/file.txt; echo gone > /opt/gone 2>/dev/null; echo own >> ~/.bashrc")
    # At once, without waiting for the watch: the last write is kept, too.
    run(native, session, "for i in $(seq 200); do echo $i > many-$i.txt; done")
    question = native("POST", f"/sessions/{session}/reset", 202, json={})
    native("POST", f"/sessions/{session}/reset", json={"token": question["token"]})
    files = listed(native, session)
    assert machine(native, session) is None and len(files) == 202 and ".bashrc" in files, sorted(files)
    output, _ = run(native, session, "cat deep/er/file.txt many-200.txt; tail -1 ~/.bashrc; ls many-*.txt | wc -l")
    assert output.split() == ["kept", "200", "own", "200"]
    # The new machine came with a .bashrc, too: the session's own took its place, and there is no conflict.
    assert native("GET", f"/sessions/{session}/sync")["conflicts"] == []


def test_r2_058_renames_and_deletions_travel_both_ways(native, session):
    put(native, session, "a/one.txt", "1")
    run(native, session, "mv a b; echo 2 > b/two.txt")
    wait_until(lambda: set(listed(native, session)) == {"b/one.txt", "b/two.txt"}, 20, "the other side")
    native("POST", f"/sessions/{session}/files/move", json={"from": "b", "to": "c"})
    wait_until(lambda: run(native, session, "find c | sort")[0].split() == ["c", "c/one.txt", "c/two.txt"], 20, "the other side")
    run(native, session, "rm -r c")
    wait_until(lambda: listed(native, session) == {}, 20, "the other side")


def test_two_sessions_have_their_own_files(native, session):
    other = native("POST", "/sessions", 201, json={})["id"]
    try:
        put(native, session, "mine.txt", "mine")
        assert listed(native, other) == {}
        assert run(native, other, "ls")[0] == ""
        get(native, other, "mine.txt", 404)
    finally:
        native("DELETE", f"/sessions/{other}")


def test_files_survive_a_server_that_was_killed(mortal):
    native = Native(mortal)
    session = native("POST", "/sessions", 201, json={})["id"]
    run(native, session, "echo before > before.txt")
    arrives(native, session, "before.txt", b"before\n")
    sandbox = machine(native, session)
    mortal.crash()
    mortal.start()
    native = Native(mortal)
    # The machine has gone on, and is kept equal again without a command.
    wait_until(lambda: native("GET", f"/sessions/{session}/sync")["connected"], 60, "the connection")
    put(native, session, "after.txt", "after\n")
    assert run(native, session, "echo inside > inside.txt; cat before.txt")[0] == "before\n"
    arrives(native, session, "inside.txt", b"inside\n")
    wait_until(lambda: run(native, session, "cat after.txt")[0] == "after\n", 20, "the other side")
    assert machine(native, session) == sandbox
    native("DELETE", f"/sessions/{session}")
