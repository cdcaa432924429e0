"""Random work on both sides of a session with an external machine, while its connections are cut.

In the end both sides are equal, and nothing is lost that no user gave up. Users of the session write over what they have
read, and users of the machine replace whole files, so what they give up is known.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import itertools
import os
import random
from pathlib import Path

import pytest

from ..installation import wait_until
from ..sshd import ACCOUNT, Sshd
from .test_native import NATIVE, Native
from .test_session_ssh import SETTINGS, asked, sshd  # noqa: F401
from .test_sessions import run

PATHS = ["a.txt", "b.txt", "d", "d/c.txt", "d/e/f.txt"]
#: How many times something happens in one case.
STEPS = 60
#: The most seconds until both sides are equal.
CALM_SECONDS = 60

LIBC = ctypes.CDLL(None, use_errno=True)
#: Flags of renameat2(2).
NOREPLACE, EXCHANGE = 1, 2
CURRENT_DIRECTORY = -100


@pytest.fixture(scope="module")
def native(another):
    return Native(another("random", SETTINGS))


class Machine:
    """A user of the account. A directory that is not part of the session keeps the files that this user replaces or removes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.given_up = home / ".given-up"
        self.given_up.mkdir()
        self.names = itertools.count()

    def set_aside(self, text: str = "") -> Path:
        """A new file beside the session's files."""
        path = self.given_up / str(next(self.names))
        path.write_text(text)
        os.chown(path, ACCOUNT, ACCOUNT)
        return path

    def write(self, name: str, text: str) -> bool:
        """Puts a new file at a path. False if something is in the way."""
        path, new = self.home / name, self.set_aside(text)
        try:
            for parent in reversed(path.relative_to(self.home).parents[:-1]):
                if not (self.home / parent).is_dir():
                    (self.home / parent).mkdir()
                    os.chown(self.home / parent, ACCOUNT, ACCOUNT)
            if path.is_dir():
                return False
            rename(new, path, EXCHANGE if path.exists() else NOREPLACE)
        except OSError:
            # The server makes and removes directories at the same time.
            return False
        return True

    def remove(self, name: str) -> None:
        try:
            rename(self.home / name, self.given_up / str(next(self.names)), NOREPLACE)
        except OSError as error:
            assert error.errno in (errno.ENOENT, errno.ENOTDIR)

    def move(self, name: str, to: str) -> None:
        try:
            rename(self.home / name, self.home / to, NOREPLACE)
        except OSError as error:
            assert error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EINVAL)

    def tidy(self) -> None:
        """Removes empty directories, which keep files of the session out."""
        for path in sorted(self.home.rglob("*"), reverse=True):
            if not path.relative_to(self.home).parts[0].startswith(".") and path.is_dir():
                try:
                    path.rmdir()
                except OSError as error:
                    assert error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY)

    def files(self) -> dict[str, str]:
        return {name: text for name, text in texts(self.home).items() if not name.startswith(".")}


def rename(old: Path, new: Path, flags: int) -> None:
    if LIBC.renameat2(CURRENT_DIRECTORY, os.fsencode(old), CURRENT_DIRECTORY, os.fsencode(new), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(old), None, str(new))


def texts(directory: Path) -> dict[str, str]:
    """The files below a directory. One that goes at the same time is none."""
    found = {}
    for path in directory.rglob("*"):
        try:
            found[str(path.relative_to(directory))] = path.read_text()
        except (FileNotFoundError, IsADirectoryError):
            continue
    return found


class Users:
    """Users of both sides."""

    def __init__(self, native: Native, sshd: Sshd, seed: int) -> None:
        self.native, self.sshd, self.random = native, sshd, random.Random(seed)
        self.machine = Machine(sshd.home)
        session = native("POST", "/sessions", 201, json=asked(sshd))["id"]
        self.path = f"/sessions/{session}"
        # The first command connects.
        run(native, session, "true")
        self.numbers = itertools.count(1)
        #: The session's files as they were last seen.
        self.seen: dict[str, str | None] = {}
        #: Contents that have to be somewhere.
        self.kept: set[str] = set()

    def contents(self) -> str:
        number = next(self.numbers)
        # With many lengths, so that mixtures differ.
        return f"{number}:{'x' * (number % 7)}"

    def look(self) -> dict[str, str | None]:
        """Reads the session's files. The server looks at the machine first, unless it has just lost its connection: a
        file that it lists may go before it is read."""

        def listed() -> bool:
            self.seen = {one["path"]: self.read(one["path"]) for one in self.native("GET", f"{self.path}/files")}
            return None not in self.seen.values()

        wait_until(listed, CALM_SECONDS, "files that stay")
        return self.seen

    def read(self, name: str) -> str | None:
        answer = self.native.http.get(f"{NATIVE}{self.path}/files/content", params={"path": name})
        assert answer.status_code in (200, 404), answer.text
        return answer.text if answer.status_code == 200 else None

    def session_writes(self) -> None:
        """Writes over the file that was read last, if it exists."""
        name, text = self.random.choice(PATHS), self.contents()
        old = self.seen.get(name)
        only = {"If-None-Match": "*"} if old is None else {"If-Match": f'"{hashlib.sha256(old.encode()).hexdigest()}"'}
        answer = self.native.http.put(
            f"{NATIVE}{self.path}/files/content", params={"path": name}, content=text, headers=only,
        )
        assert answer.status_code in (200, 409, 412), answer.text
        if answer.status_code == 200:
            self.kept.discard(old)
            self.kept.add(text)
            self.seen[name] = text

    def session_removes(self) -> None:
        name = self.random.choice(PATHS)
        # What arrives between the look and the removal would be removed unseen.
        self.calm()
        below = {one: text for one, text in self.look().items() if one == name or one.startswith(name + "/")}
        if below:
            self.native("DELETE", f"{self.path}/files?path={name}")
            self.kept -= set(below.values())
            self.calm()

    def session_moves(self) -> None:
        name, to = self.random.sample(PATHS, 2)
        self.calm()
        answer = self.native.http.post(f"{NATIVE}{self.path}/files/move", json={"from": name, "to": to})
        assert answer.status_code in (200, 400, 404, 409), answer.text
        self.calm()

    def machine_writes(self) -> None:
        text = self.contents()
        if self.machine.write(self.random.choice(PATHS), text):
            self.kept.add(text)

    def machine_removes(self) -> None:
        self.machine.remove(self.random.choice(PATHS))

    def machine_moves(self) -> None:
        self.machine.move(*self.random.sample(PATHS, 2))

    def cut(self) -> None:
        self.sshd.cut()

    def work(self) -> None:
        chances = {
            self.session_writes: 6, self.session_removes: 1, self.session_moves: 1, self.machine_writes: 6,
            self.machine_removes: 2, self.machine_moves: 2, self.look: 3, self.cut: 1,
        }
        for act in self.random.choices(list(chances), list(chances.values()), k=STEPS):
            act()

    def calm(self) -> None:
        """Waits until both sides are equal."""

        def equal() -> bool:
            if self.look() == self.machine.files():
                return True
            self.machine.tidy()
            return False

        try:
            wait_until(equal, CALM_SECONDS, "equal sides")
        except AssertionError as error:
            state = self.native("GET", f"{self.path}/sync")
            raise AssertionError(f"{self.seen} is not {self.machine.files()}: {state}") from error

    def end(self) -> None:
        """Compares."""
        self.calm()
        state = self.native("GET", f"{self.path}/sync")
        assert state["behind"] == 0 and state["notes"] == [], state
        lost = self.kept - set(self.seen.values()) - set(texts(self.machine.given_up).values())
        assert not lost, (lost, self.seen)
        self.native("DELETE", self.path)


@pytest.mark.parametrize("seed", range(4))
def test_r2_059_random_work_on_both_sides_leaves_them_equal_and_loses_nothing(native, sshd, seed):  # noqa: F811
    users = Users(native, sshd, seed)
    users.work()
    users.end()
    assert users.kept, "nothing was written"
