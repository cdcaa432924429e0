"""The released `@e2b/cli`."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass

import pytest
from e2b import Sandbox

from ..installation import wait_until
from ..registry import Registry, small_debian
from .packages import PACKAGES, install, node, pointing_at
from .terminal import Terminal

UNKNOWN = "i0000000000000000000z"
#: The timeout of the CLI, which takes a second to start.
SECONDS = 180


@dataclass
class Cli:
    """The CLI, pointed at a server."""

    environment: dict[str, str]
    options: dict

    def command(self, *words: str) -> list[str]:
        return [node(), str(PACKAGES / "node_modules/@e2b/cli/dist/index.js"), *words]

    def __call__(self, *words: str, stdin: str | bytes = "", code: int | None = 0, **variables: str):
        """Runs it to its end; the exit code must be `code` unless that is None."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.command(*words), env=self.environment | variables, input=given,
            capture_output=True, timeout=SECONDS, check=False,
        )
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert code is None or done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str):
        return json.loads(self(*words, "--format", "json").stdout)

    def terminal(self, *words: str, **size: int) -> Terminal:
        return Terminal(self.command(*words), self.environment, **size)

    def ids(self, *words: str) -> list[str]:
        return [sandbox["sandboxId"] for sandbox in self.json("sandbox", "list", *words)]


@pytest.fixture(scope="module")
def cli(shared, tmp_path_factory):
    install()
    # A home directory without a login: the key is its only credential.
    home = str(tmp_path_factory.mktemp("home"))
    return Cli(pointing_at(shared) | {"HOME": home, "NO_COLOR": "1"}, shared.options())


@pytest.fixture(scope="module")
def sandbox(cli):
    """A sandbox that the tests share. Tests must not harm it."""
    made = Sandbox.create(timeout=900, metadata={"of": "cli"}, **cli.options)
    yield made
    made.kill()


@pytest.fixture
def fresh(cli):
    made = Sandbox.create(timeout=120, metadata={"of": "one case"}, **cli.options)
    yield made
    made.kill()


def said(done) -> str:
    return done.stdout + done.stderr


class TestList:
    def test_as_json(self, cli, sandbox):
        found = next(s for s in cli.json("sandbox", "list") if s["sandboxId"] == sandbox.sandbox_id)
        assert found["state"] == "running"
        assert found["metadata"] == {"of": "cli"}
        assert found["name"] == "base"

    def test_as_a_table(self, cli, sandbox):
        assert sandbox.sandbox_id in cli("sandbox", "list").stdout

    def test_by_metadata(self, cli, sandbox, fresh):
        assert cli.ids("--metadata", "of=cli") == [sandbox.sandbox_id]
        assert cli.ids("--metadata", "of=nobody") == []

    def test_by_state(self, cli, sandbox):
        assert sandbox.sandbox_id in cli.ids("--state", "running")
        assert cli.ids("--state", "paused") == []

    def test_by_template(self, cli, sandbox):
        assert sandbox.sandbox_id in cli.ids("--template", "base")

    def test_limit_and_order(self, cli, sandbox, fresh):
        assert cli.ids("--limit", "1", "--order", "desc") == [fresh.sandbox_id]
        newest = cli.ids("--order", "desc")
        assert cli.ids("--order", "asc") == newest[::-1]

    def test_by_start(self, cli, sandbox):
        assert sandbox.sandbox_id in cli.ids("--started-after", "2020-01-01T00:00:00Z")
        assert cli.ids("--started-after", "2100-01-01T00:00:00Z") == []


class TestExec:
    def test_output(self, cli, sandbox):
        done = cli("sandbox", "exec", sandbox.sandbox_id, "echo out; echo err >&2")
        assert (done.stdout, done.stderr) == ("out\n", "err\n")

    def test_words_are_passed_as_they_are(self, cli, sandbox):
        done = cli("sandbox", "exec", sandbox.sandbox_id, "printf", "%s,", "a b", "$HOME", "--help")
        assert done.stdout == "a b,$HOME,--help,"

    @pytest.mark.parametrize("code", [1, 7, 127, 255])
    def test_exit_code(self, cli, sandbox, code):
        cli("sandbox", "exec", sandbox.sandbox_id, f"exit {code}", code=code)

    def test_user_directory_and_environment(self, cli, sandbox):
        words = ["-u", "root", "-c", "/tmp", "-e", "COLOUR=blue", sandbox.sandbox_id]
        assert cli("sandbox", "exec", *words, "whoami; pwd; echo $COLOUR").stdout == "root\n/tmp\nblue\n"

    def test_stdin(self, cli, sandbox):
        assert cli("sandbox", "exec", sandbox.sandbox_id, "cat", stdin="žluť\nend").stdout == "žluť\nend"

    def test_much_stdin(self, cli, sandbox):
        done = cli("sandbox", "exec", sandbox.sandbox_id, "sha256sum; echo", stdin=bytes(3_000_000))
        expected = hashlib.sha256(bytes(3_000_000)).hexdigest()
        assert done.stdout.startswith(expected)

    def test_in_the_background(self, cli, sandbox):
        path = "/home/user/background.txt"
        cli("sandbox", "exec", "-b", sandbox.sandbox_id, f"echo done > {path}")
        wait_until(lambda: sandbox.files.exists(path), 60, "the file")

    def test_of_an_unknown_sandbox(self, cli):
        assert "not found" in said(cli("sandbox", "exec", UNKNOWN, "true", code=1)).lower()


class TestCreate:
    def test_detached(self, cli):
        done = cli("sandbox", "create", "-d", "base", "--timeout", "60")
        made = re.search(r"\bi[a-z0-9]{20}\b", done.stdout).group()
        assert made in cli.ids()
        assert Sandbox.kill(made, **cli.options)

    def test_an_unknown_template(self, cli):
        assert "no-such-template" in said(cli("sandbox", "create", "-d", "no-such-template", code=1))

    def test_a_terminal(self, cli):
        before = set(cli.ids())
        terminal = cli.terminal("sandbox", "create", "base", rows=33, columns=91)
        try:
            terminal.shows(r"\$ ")
            terminal.type("echo si''ze $(stty size)\r")
            terminal.shows("size 33 91")
            (made,) = set(cli.ids()) - before
            terminal.type("exit\r")
            assert terminal.ends() == 0
            # A client that created a sandbox for a terminal kills it afterwards.
            wait_until(lambda: made not in cli.ids(), 60, "the end of the sandbox")
        finally:
            terminal.close()


class TestConnect:
    def test_a_terminal(self, cli, sandbox):
        terminal = cli.terminal("sandbox", "connect", "-u", "root", "-c", "/tmp", sandbox.sandbox_id)
        try:
            terminal.shows("# ")
            terminal.type("echo \"<$(whoami):$PWD>\"\r")
            terminal.shows("<root:/tmp>")
            terminal.resize(40, 100)
            # The CLI fails if the terminal has ended when it passes on a new size.
            terminal.type("until [ \"$(stty size)\" = '40 100' ]; do sleep 0.1; done; echo res''ized\r")
            terminal.shows("resized")
            terminal.type("exit\r")
            assert terminal.ends() == 0
        finally:
            terminal.close()
        assert sandbox.is_running()

    def test_an_unknown_sandbox(self, cli):
        assert "not found" in said(cli("sandbox", "connect", UNKNOWN, code=None)).lower()


class TestInfo:
    def test_as_json(self, cli, sandbox):
        info = cli.json("sandbox", "info", sandbox.sandbox_id)
        assert info["sandboxId"] == sandbox.sandbox_id
        assert info["metadata"] == {"of": "cli"}

    def test_for_people(self, cli, sandbox):
        assert sandbox.sandbox_id in cli("sandbox", "info", sandbox.sandbox_id).stdout

    def test_of_an_unknown_sandbox(self, cli):
        assert "wasn't found" in said(cli("sandbox", "info", UNKNOWN, code=1))


class TestMetrics:
    def test_as_json(self, cli, sandbox):
        def lines():
            out = cli("sandbox", "metrics", "--format", "json", sandbox.sandbox_id).stdout
            return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

        first = wait_until(lines, 60, "the first sample")[0]
        assert {"cpuUsedPct", "memUsed", "memTotal"} <= set(first)

    def test_for_people(self, cli, sandbox):
        assert "CPU" in cli("sandbox", "metrics", sandbox.sandbox_id).stdout


class TestLogs:
    def test_as_json(self, cli, sandbox):
        sandbox.commands.run("echo logged")
        done = cli("sandbox", "logs", "--level", "DEBUG", "--format", "json", sandbox.sandbox_id)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines
        assert all("level" in line for line in lines)

    def test_for_people(self, cli, sandbox):
        assert "INFO" in cli("sandbox", "logs", sandbox.sandbox_id).stdout

    def test_followed_to_the_end_of_the_sandbox(self, cli, fresh):
        command = cli.command("sandbox", "logs", "--follow", "--level", "DEBUG", fresh.sandbox_id)
        with subprocess.Popen(
            command, env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as follower:
            try:
                assert follower.stdout.readline()
                fresh.kill()
                follower.communicate(timeout=SECONDS)
            finally:
                follower.kill()
            assert follower.returncode == 0


class TestKill:
    def test_one(self, cli, fresh):
        cli("sandbox", "kill", fresh.sandbox_id)
        assert not fresh.is_running()

    def test_some(self, cli):
        made = [Sandbox.create(**cli.options).sandbox_id for _ in range(2)]
        cli("sandbox", "kill", *made)
        assert not set(made) & set(cli.ids())

    def test_an_unknown_one(self, cli):
        assert "found" in said(cli("sandbox", "kill", UNKNOWN, code=None)).lower()

    def test_all_of_some_metadata(self, cli, sandbox, fresh):
        cli("sandbox", "kill", "--all", "--metadata", "of=one case")
        assert not fresh.is_running()
        assert sandbox.is_running()


class TestTemplates:
    """Templates from a Dockerfile, over an image of a registry on the loopback."""

    NAME = "of-the-cli"

    @pytest.fixture
    def directory(self, cli, tmp_path):
        registry = Registry(tmp_path / "registry")
        registry.start()
        image = registry.push("small/debian", "12", [small_debian().read_bytes()], Env=["PATH=/usr/bin:/bin"])
        (tmp_path / "data.txt").write_text("from the directory")
        (tmp_path / "Dockerfile").write_text(f"FROM {image}\nCOPY data.txt /srv/\nRUN cp /srv/data.txt /srv/copied\n")
        yield tmp_path
        registry.stop()
        cli("template", "delete", self.NAME, "-y", code=None)

    def ours(self, cli) -> list[dict]:
        return [one for one in cli.json("template", "list") if self.NAME in one["aliases"]]

    def test_one_is_created_used_published_and_deleted(self, cli, directory):
        made = cli("template", "create", self.NAME, "-d", "Dockerfile", "--path", str(directory))
        assert "RUN cp /srv/data.txt" in said(made) and "finished" in said(made)
        (listed,) = self.ours(cli)
        assert (listed["buildStatus"], listed["public"]) == ("ready", False)
        with Sandbox.create(self.NAME, timeout=120, **cli.options) as sandbox:
            assert sandbox.files.read("/srv/copied") == "from the directory"
        cli("template", "publish", self.NAME, "-y")
        assert self.ours(cli)[0]["public"] is True
        cli("template", "unpublish", self.NAME, "-y")
        assert self.ours(cli)[0]["public"] is False
        cli("template", "delete", self.NAME, "-y")
        assert self.ours(cli) == []

    def test_what_fails_is_told_with_its_line(self, cli, directory):
        with (directory / "Dockerfile").open("a") as dockerfile:
            dockerfile.write("RUN echo why >&2; exit 3\n")
        failed = cli("template", "create", self.NAME, "-d", "Dockerfile", "--path", str(directory), code=1)
        assert "why" in said(failed) and "exit status 3" in said(failed)


class TestTheRest:
    def test_templates(self, cli):
        (base,) = [one for one in cli.json("template", "list") if "base" in one["aliases"]]
        assert base["cpuCount"] >= 1 and base["memoryMB"] >= 128
        assert base["buildStatus"] in ("ready", "uploaded")
        assert "base" in cli("template", "list").stdout

    def test_a_sandbox_is_paused_and_resumed(self, cli, sandbox):
        cli("sandbox", "exec", sandbox.sandbox_id, "--", "sh", "-c", "echo kept > /tmp/kept")
        cli("sandbox", "pause", sandbox.sandbox_id)
        (paused,) = cli.json("sandbox", "list", "--state", "paused")
        assert paused["sandboxId"] == sandbox.sandbox_id
        cli("sandbox", "resume", sandbox.sandbox_id)
        assert sandbox.is_running()
        kept = cli("sandbox", "exec", sandbox.sandbox_id, "--", "cat", "/tmp/kept")
        assert kept.stdout == "kept\n"

    def test_a_wrong_key(self, cli):
        for words in (["sandbox", "list"], ["sandbox", "create", "-d"], ["template", "list"]):
            done = cli(*words, code=1, E2B_API_KEY=f"e2b_{'0' * 40}")
            assert re.search("401|[Uu]nauthorized|API key", said(done))

    def test_no_key(self, cli):
        assert "auth login" in said(cli("sandbox", "list", code=1, E2B_API_KEY=""))

    def test_who_is_logged_in(self, cli):
        assert "not logged in" in said(cli("auth", "info", code=None)).lower()

    def test_its_version(self, cli):
        assert cli("--version").stdout.strip() == "2.19.0"
