"""`shoal template build`: from a Dockerfile to a sandbox."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from e2b import Sandbox

from ..hostile.machine import Call
from ..registry import Registry, small_debian


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = Registry(tmp_path_factory.mktemp("registry"))
    registry.start()
    yield registry
    registry.stop()


@pytest.fixture(scope="module")
def image(registry):
    """A small Debian."""
    return registry.push("small/debian", "12", [small_debian().read_bytes()], Env=["PATH=/usr/bin:/bin", "OF=image"])


@pytest.fixture
def built(client):
    names = set()
    yield names
    for name in names:
        client.run("template", "rm", name)


def test_a_multi_stage_dockerfile_becomes_a_template(client, image, built, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app/main.sh").write_text("#!/bin/sh\necho running\n")
    (tmp_path / "app/secret.env").write_text("KEY=1\n")
    (tmp_path / ".dockerignore").write_text("**/*.env\n")
    (tmp_path / "Dockerfile").write_text(f"""\
# A comment
ARG BASE={image}
FROM $BASE AS build
ARG WORD=default
RUN mkdir -p /out/deep && \\
    echo "$WORD of $OF" > /out/deep/made
COPY <<hello.txt /out/
hello, heredoc
hello.txt

FROM ${{BASE}}
LABEL is=passed-over
ENV HOME_OF=/srv/app
WORKDIR $HOME_OF
COPY --chown=root:root --chmod=755 app ./
COPY --from=build /out /srv/out
RUN <<EOT
set -e
touch made-by-heredoc
ls > listed
EOT
USER root
RUN id -un > /srv/who
CMD ["sh", "-c", "echo started > /tmp/started; sleep infinity"]
""")
    built.add("cli-built")
    words = ["template", "build", "-f", str(tmp_path / "Dockerfile"), "-t", "cli-built:v1", "--build-arg", "WORD=said",
             "--ready-cmd", "test -f /tmp/started", "--memory", "256", "--cpu", "1"]
    first = client.run(*words)
    assert first.code == 0, first
    assert "LABEL" in first.err and "RUN id -un" in first.err + first.out, first
    sandbox = client.ok("sandbox", "create", "--template", "cli-built:v1")
    try:
        script = "cat /srv/out/deep/made /srv/out/hello.txt /srv/who /tmp/started; ls -a; stat -c '%U %a' main.sh"
        said = client.ok("sandbox", "exec", sandbox, "--", "sh", "-c", f"cd /srv/app; {script}")
        assert said == (
            "said of image\nhello, heredoc\nroot\nstarted\n.\n..\nlisted\nmade-by-heredoc\nmain.sh\nroot 755"
        )
    finally:
        client.ok("sandbox", "kill", sandbox)
    again = client.run(*words)
    assert again.code == 0 and "CACHED" in again.err + again.out, again
    missing = client.run("sandbox", "create", "--template", "cli-built")
    assert missing.code == 66 and "template 'cli-built': it has v1" in missing.err
    assert "Did you mean" not in missing.err


def test_files_are_copied_from_a_bare_image_and_from_a_whole_stage(client, registry, image, built, tmp_path):
    tool = registry.add("only/tool:1", {"tool": "#!/bin/sh\necho tooled\n", "share/deep/a": "a", "share/b": "b"})
    (tmp_path / "Dockerfile").write_text(f"""\
FROM {image} AS whole
USER root
RUN echo made > /made
FROM {image}
USER root
COPY --from={tool} --chmod=755 /tool /usr/local/bin/
COPY --from={tool} /share /srv/share
COPY --from=whole / /srv/whole/
""")
    built.add("cli-tool")
    words = ["template", "build", "-f", str(tmp_path / "Dockerfile"), "-t", "cli-tool", "--memory", "256", "--cpu", "1"]
    first = client.run(*words)
    assert first.code == 0, first
    sandbox = client.ok("sandbox", "create", "--template", "cli-tool")
    try:
        not_its_own = "/srv/whole/proc /srv/whole/.shoal /srv/whole/etc/hosts /srv/whole/etc/machine-id"
        script = (
            "/usr/local/bin/tool; cat /srv/share/deep/a /srv/share/b /srv/whole/made;"
            f" ls -d {not_its_own} /srv/whole/usr/bin/env"
        )
        said = client.run("sandbox", "exec", sandbox, "--", "sh", "-c", script)
        assert said.out.split() == ["tooled", "abmade", "/srv/whole/usr/bin/env"], said
    finally:
        client.ok("sandbox", "kill", sandbox)
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nCOPY --from={tool} /sha* /srv/\n")
    refused = client.run(*words)
    assert refused.code != 0 and "no /bin/sh" in refused.err + refused.out, refused


def test_a_failed_step_points_at_its_line(client, image, built, tmp_path):
    built.add("cli-failed")
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\n\nRUN echo before\nRUN echo why >&2; \\\n    exit 3\n")
    failed = client.run("template", "build", "-f", str(tmp_path / "Dockerfile"), "-t", "cli-failed")
    assert failed.code != 0
    assert "Dockerfile:4" in failed.err and "exit status 3" in failed.err and "why" in failed.err, failed.err


@pytest.mark.parametrize(
    "text, said",
    [
        ("RUN true\n", "no FROM"),
        ("FROM x\nONBUILD RUN true\n", "Dockerfile:2"),
        ("FROM x\nCOPY nothing-here /\n", "nothing-here"),
        ("FROM x\nADD http://127.0.0.1:1/x /\n", "Dockerfile:2"),
        ("FROM --platform=linux/s390x x\n", "Dockerfile:1"),
        ("", "no FROM"),
    ],
    ids=["no-from", "onbuild", "no-file", "add-url", "platform", "empty"],
)
def test_an_invalid_dockerfile_is_refused_before_the_build(client, tmp_path, text, said):
    (tmp_path / "Dockerfile").write_text(text)
    refused = client.run("template", "build", "-f", str(tmp_path / "Dockerfile"), "-t", "cli-refused")
    assert refused.code != 0 and said in refused.err, refused.err
    assert "cli-refused" not in client.ok("template", "ls")


def test_a_built_in_template_is_built_by_its_name(client):
    # Building one takes minutes: `conformance/interpreter` does it.
    unknown = client.run("template", "build", "code-interpreter-v9")
    assert unknown.code == 66 and "it can build code-interpreter-v1" in unknown.err
    directory = client.run("template", "build", ".")
    assert directory.code == 64 and "--context" in directory.err
    both = client.run("template", "build", "code-interpreter-v1", "-t", "x")
    assert both.code == 64 and "cannot be used with" in both.err


def build(client, tmp_path, text: str, *words: str):
    (tmp_path / "Dockerfile").write_text(text)
    size = ("--memory", "256", "--cpu", "1")
    return client.run("template", "build", "-f", str(tmp_path / "Dockerfile"), *size, *words)


@contextmanager
def started(client, template: str):
    sandbox = client.ok("sandbox", "create", "--template", template)
    try:
        yield sandbox
    finally:
        client.ok("sandbox", "kill", sandbox)


def row(client, name: str) -> list[str]:
    """The cells of a template in `template ls`."""
    lines = client.ok("template", "ls").splitlines()
    (line,) = [line for line in lines if line.split()[0] == name]
    return line.split()


def test_env_reaches_every_command_of_a_sandbox_and_arg_none(client, shared, image, built, tmp_path):
    built.add("cli-env")
    made = build(client, tmp_path, f"""\
FROM {image}
ARG ONLY_IN_THE_BUILD=1
ENV GREETING="hello there" PATH=/srv/tools:$PATH
RUN mkdir -p /srv/tools && printf '#!/bin/sh\\necho tool\\n' > /srv/tools/of-path && chmod +x /srv/tools/of-path
RUN of-path > /srv/of-path-ran
""", "-t", "cli-env")
    assert made.code == 0, made
    with started(client, "cli-env") as sandbox:
        script = 'echo "$GREETING/$ONLY_IN_THE_BUILD"; cat /srv/of-path-ran'
        said = client.ok("sandbox", "exec", sandbox, "--", "sh", "-c", script)
        assert said == "hello there/\ntool"
        assert client.ok("sandbox", "exec", sandbox, "--", "of-path") == "tool"
        # The SDK's commands run in a login shell.
        connected = Sandbox.connect(sandbox, **shared.options())
        assert connected.commands.run("of-path; echo $GREETING").stdout == "tool\nhello there\n"
        assert connected.commands.run("of-path", user="root").stdout == "tool\n"


def test_a_tag_is_printed_listed_and_removed_alone(client, image, built, tmp_path):
    built.add("cli-tags")
    for tag in ("v1", "v2"):
        made = build(client, tmp_path, f"FROM {image}\nRUN echo {tag} > /tag\n", "-t", f"cli-tags:{tag}")
        assert made.code == 0 and made.out == f"cli-tags:{tag}\n", made
    assert row(client, "cli-tags")[1:4] == ["v1", "v2", "ready"]
    shown = client.ok("template", "get", "cli-tags").splitlines()
    assert ["tags", "v1", "v2"] in [line.split() for line in shown]
    for name in ("cli-tags", "cli-tags:v3"):
        unknown = client.run("sandbox", "create", "--template", name)
        assert unknown.code == 66 and "it has v1, v2" in unknown.err, unknown
    assert client.ok("template", "rm", "cli-tags:v1") == "cli-tags:v1"
    with started(client, "cli-tags:v2") as sandbox:
        assert client.ok("sandbox", "exec", sandbox, "cat", "/tag") == "v2"
        used = client.run("template", "rm", "cli-tags")
        assert used.code == 64 and f"1 sandbox ({sandbox})" in used.err, used
    assert client.run("template", "rm", "cli-tags:v1").code == 66
    last = client.run("template", "rm", "cli-tags:v2")
    assert last.code == 64 and "by its name, 'cli-tags'" in last.err, last
    assert client.ok("template", "rm", "cli-tags") == "cli-tags"
    assert client.run("template", "get", "cli-tags").code == 66


def test_e2bs_route_with_a_tag_removes_that_tag_alone(client, shared, image, built, tmp_path):
    built.add("cli-wire")
    for tag in ("v1", "v2"):
        assert build(client, tmp_path, f"FROM {image}\n", "-t", f"cli-wire:{tag}").code == 0
    call = Call(shared)
    assert call("DELETE", "/templates/cli-wire%3Av1")[0] == 204
    assert row(client, "cli-wire")[1:3] == ["v2", "ready"]
    assert call("DELETE", "/templates/cli-wire%3Av2")[0] == 400
    assert call("DELETE", "/templates/cli-wire")[0] == 204


def test_a_build_that_failed_is_listed_with_its_reason_and_removed(client, image, built, tmp_path):
    built.add("cli-broken")
    failed = build(client, tmp_path, f"FROM {image}\nRUN echo why >&2; exit 3\n", "-t", "cli-broken")
    assert failed.code == 1 and failed.out == "", failed
    # The log contains the step's output, and the failure is reported once.
    assert failed.err.count("why\n") == 1 and failed.err.count("exit status 3") == 1, failed
    assert "failed" in row(client, "cli-broken")
    assert "exit status 3" in client.ok("template", "get", "cli-broken")
    assert client.ok("template", "rm", "cli-broken") == "cli-broken"
    assert client.run("template", "get", "cli-broken").code == 66


def test_from_prefers_a_template_over_an_image(client, image, built, tmp_path):
    built.update({"cli-below", "cli-above"})
    below = f"FROM {image}\nENV OF=below\nRUN echo below > /srv/below\n"
    assert build(client, tmp_path, below, "-t", "cli-below:v1").code == 0
    above = build(client, tmp_path, "FROM cli-below:v1\nRUN id -un > /srv/above\n", "-t", "cli-above")
    assert above.code == 0 and "FROM TEMPLATE cli-below:v1" in above.err, above
    with started(client, "cli-above") as sandbox:
        script = "cat /srv/below /srv/above; echo $OF; id -un; pwd"
        said = client.ok("sandbox", "exec", sandbox, "--", "sh", "-c", script)
        assert said.splitlines() == ["below", "root", "below", "user", "/home/user"]
