"""Templates that are built by the released SDKs."""

from __future__ import annotations

import time
import traceback
from urllib.parse import urlencode

import pytest
from e2b import wait_for_file, wait_for_port
from e2b.api.client.models import Template as Listed
from e2b.api.client.models import TemplateTagAssignmentsResponse, TemplateTagGroupsResponse
from e2b.exceptions import BuildException, NotFoundException, SandboxException

from .builder import Builder, out
from .conftest import done


@pytest.fixture(scope="module")
def builder(sdk):
    made = Builder(sdk)
    yield made
    made.end()


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Files to copy."""
    root = tmp_path_factory.mktemp("context")
    (root / "tree/below").mkdir(parents=True)
    (root / "a.txt").write_text("a\n")
    (root / "tree/b.txt").write_text("b\n")
    (root / "tree/below/c.py").write_text("c\n")
    (root / "tree/link").symlink_to("b.txt")
    return root


async def sleeps_once(sandbox) -> None:
    """Waits until the start command has become its last program, which runs once."""
    end = time.monotonic() + 60
    while (count := await out(sandbox, "pgrep -c sleep || true")) != "1\n":
        assert time.monotonic() < end, count


async def test_a_template_starts_with_what_was_built_and_started(sdk, builder, context):
    template = (
        builder.Template(file_context_path=str(context))
        .from_template("base")
        .copy("a.txt", "/opt/a.txt")
        .copy("tree", "tree")
        .run_cmd("echo built > ~/built")
        .set_envs({"COLOUR": "blue"})
        .set_envs({"MORE": "dark-$COLOUR"})
        .run_cmd("echo $MORE > /home/user/more")
        .set_workdir("/srv/app")
        .set_start_cmd("echo $COLOUR > /tmp/colour; python3 -m http.server 8080", wait_for_port(8080))
    )
    built = await builder.build(template, "served")
    sandbox = await sdk.create(builder.name("served"), timeout=120)
    assert await out(sandbox, "pwd; id -un; cat /opt/a.txt ~/tree/below/c.py ~/built ~/more /tmp/colour") == (
        "/srv/app\nuser\na\nc\nbuilt\ndark-blue\nblue\n"
    )
    # The start command runs, and has run since the build.
    assert await out(sandbox, "curl -s -o /dev/null -w '%{http_code}' localhost:8080/") == "200"
    # Variables of build steps are only for the build.
    assert await out(sandbox, "echo -$COLOUR-") == "--\n"
    info = await done(sandbox.get_info())
    assert (info.template_id, info.cpu_count, info.memory_mb) == (built.template_id, 1, 256)
    # The same build again runs no step.
    began = time.monotonic()
    again = await builder.build(template, "served")
    assert time.monotonic() - began < 120
    assert again.template_id == built.template_id and again.build_id != built.build_id
    assert not builder.did("[builder") or not builder.did("RUN"), builder.logs
    assert "CACHED [finalize]" in builder.logs


async def test_what_is_forced_is_done_again_and_all_behind_it(builder):
    def template(force: bool):
        made = builder.Template().from_template("base").run_cmd("echo one")
        made = made.skip_cache() if force else made
        return made.run_cmd("echo two")

    await builder.build(template(False), "forced")
    await builder.build(template(True), "forced")
    assert "CACHED [builder 1/2] RUN echo one" in builder.logs
    assert builder.did("RUN echo two"), builder.logs
    await builder.build(template(False), "forced", skip_cache=True)
    assert builder.did("RUN echo one"), builder.logs


async def test_files_are_copied_as_it_is_said(sdk, builder, context):
    template = (
        builder.Template(file_context_path=str(context))
        .from_template("base")
        .run_cmd("mkdir -p /opt/there/below && echo old > /opt/there/b.txt && echo kept > /opt/there/kept", user="root")
        .run_cmd("ln -s /opt/there /opt/seen", user="root")
        .set_user("root")
        .copy("tree", "/opt/seen")
        .copy("a.txt", "/opt/into/")
        .copy("a.txt", "/opt/deep/er/name.txt", user="user", mode=0o640)
        .copy("tree/*.txt", "/opt/matched/")
        .copy("tree/*", "/tmp/")
        .copy("tree", "/opt/shut", mode=0o700)
        .set_user("user")
        .copy("a.txt", ".")
        .copy("tree", "mine/tree")
        # Only the owner of the files is new.
        .run_cmd("touch mine/beside mine/tree/more")
    )
    await builder.build(template, "copied")
    sandbox = await sdk.create(builder.name("copied"), timeout=120)
    assert await out(sandbox, "cat /opt/there/b.txt /opt/there/kept /opt/there/below/c.py; readlink /opt/there/link") == (
        "b\nkept\nc\nb.txt\n"
    )
    assert await out(sandbox, "test -L /opt/seen && cat /opt/into/a.txt") == "a\n"
    assert await out(sandbox, "stat -c '%U:%G %a' /opt/deep/er/name.txt") == "user:user 640\n"
    assert await out(sandbox, "stat -c '%a %U' /tmp; ls /tmp/b.txt") == "1777 root\n/tmp/b.txt\n"
    assert await out(sandbox, "stat -c '%a %U' /opt/shut; cat mine/tree/below/c.py") == "700 root\nc\n"
    assert await out(sandbox, "ls /opt/matched; stat -c %U /opt/there/b.txt ~/a.txt") == "b.txt\nroot\nuser\n"


async def test_a_step_that_fails_is_the_line_that_it_stands_in(builder):
    template = builder.Template().from_template("base")
    template = template.run_cmd("echo fine")
    template = template.run_cmd("echo this is why >&2; exit 7")  # the line
    with pytest.raises(BuildException) as failed:
        await builder.build(template, "failed")
    assert "exit status 7" in str(failed.value)
    frames = traceback.extract_tb(failed.value.__traceback__)
    assert any("# the line" in (frame.line or "") for frame in frames), frames
    assert "this is why" in builder.logs
    # The template has no finished build to start from.
    with pytest.raises((NotFoundException, SandboxException)):
        await builder.sdk.create(builder.name("failed"))
    listed = builder.api("GET", "/templates").json()
    mine = next(one for one in listed if one["aliases"] == [builder.name("failed")])
    assert mine["buildStatus"] == "error"


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda t: t.from_template("no-such-template"), "not found"),
        (lambda t: t.from_image("127.0.0.1:1/nothing"), "cannot be reached"),
        (lambda t: t.from_template("base").set_start_cmd("exit 3", wait_for_file("/never")), "status 3"),
        (lambda t: t.from_template("base").set_user("root").run_cmd("id", user="nobody-here"), "nobody-here"),
    ],
    ids=["no-template", "no-registry", "start-fails", "no-user"],
)
async def test_what_cannot_be_built_says_why(builder, make, said):
    with pytest.raises(BuildException) as failed:
        await builder.build(make(builder.Template()), "hopeless")
    assert said in str(failed.value)


async def test_tags_are_shown_with_what_they_were_given_to(builder):
    """As the SDK's generated client parses them; no method of the SDK requests them yet."""
    template = builder.Template().from_template("base").run_cmd("echo shown")
    built = await builder.build(template, "shown", tags=["default", "v1", "v2"])
    await builder.call("assign_tags", f"{builder.name('shown')}:v1", ["latest"])
    path = f"/templates/{built.template_id}/tags"

    def groups(**query):
        answer = builder.api("GET", f"{path}/groups?{urlencode(query)}")
        assert answer.status_code == 200, answer.text
        return TemplateTagGroupsResponse.from_dict(answer.json())

    shown = groups()
    assert [group.tag for group in shown.tags] == ["latest", "default", "v1", "v2"] and shown.next_cursor is None
    (given,) = shown.tags[0].assignments
    assert str(given.build_id) == built.build_id and not shown.tags[0].has_more
    assert given.build_created_at <= given.build_finished_at <= given.assigned_at
    assert len({group.assignments[0].assignment_id for group in shown.tags}) == 4
    assert [group.tag for group in groups(search="V", sort="name_desc").tags] == ["v2", "v1"]
    first = groups(tagsLimit=3, sort="name_asc")
    rest = groups(tagsLimit=3, sort="name_asc", tagsCursor=first.next_cursor)
    assert [group.tag for page in (first, rest) for group in page.tags] == ["default", "latest", "v1", "v2"]
    assert rest.next_cursor is None
    answer = builder.api("GET", f"{path}/latest/assignments")
    page = TemplateTagAssignmentsResponse.from_dict(answer.json())
    assert [one.assignment_id for one in page.data] == [given.assignment_id] and page.next_cursor is None
    for wrong in ("groups?sort=odd", "groups?tagsLimit=0", "groups?tagsCursor=never", "a%20b/assignments"):
        assert builder.api("GET", f"{path}/{wrong}").status_code == 400, wrong
    assert builder.api("GET", "/templates/never/tags/groups").status_code == 404
    defaults = [Listed.from_dict(one) for one in builder.api("GET", "/default-templates").json()]
    assert "base" in {alias for one in defaults for alias in one.aliases}
    assert built.template_id not in {one.template_id for one in defaults}


async def test_tags_mean_builds(sdk, builder):
    def template(word: str):
        return builder.Template().from_template("base").run_cmd(f"echo {word} > /tmp/word")

    name = builder.name("tagged")
    one = await builder.build(template("one"), "tagged:v1")
    assert one.tags == ["v1"]
    # It has only that tag.
    with pytest.raises((NotFoundException, SandboxException)):
        await sdk.create(name)
    two = await builder.build(template("two"), "tagged", tags=["v2", "default"])
    assert one.template_id == two.template_id
    for tag, word in (("v1", "one"), ("v2", "two"), ("default", "two")):
        sandbox = await sdk.create(f"{name}:{tag}", timeout=60)
        assert await out(sandbox, "cat /tmp/word") == f"{word}\n"
    assigned = await builder.call("assign_tags", f"{name}:v1", ["stable", "old"])
    assert assigned.build_id == one.build_id
    tags = {tag.tag: tag.build_id for tag in await builder.call("get_tags", name)}
    assert tags == {"v1": one.build_id, "stable": one.build_id, "old": one.build_id,
                    "v2": two.build_id, "default": two.build_id}
    await builder.call("remove_tags", name, ["old", "v1"])
    with pytest.raises((NotFoundException, SandboxException)):
        await sdk.create(f"{name}:v1")
    stable = await sdk.create(f"{name}:stable", timeout=60)
    assert await out(stable, "cat /tmp/word") == "one\n"
    await builder.call("assign_tags", f"{name}:stable", ["default"])
    sandbox = await sdk.create(name, timeout=60)
    assert await out(sandbox, "cat /tmp/word") == "one\n"
    with pytest.raises(Exception, match="default"):
        await builder.call("remove_tags", name, ["default"])
    with pytest.raises(Exception, match="not found|does not exist"):
        await builder.call("assign_tags", f"{name}:never", ["x"])


async def test_a_name_is_taken_when_it_is(builder):
    template = builder.Template().from_template("base")
    assert await builder.call("exists", builder.name("named")) is False
    await builder.build(template, "named")
    assert await builder.call("exists", builder.name("named")) is True
    assert await builder.call("exists", "base") is True
    with pytest.raises(BuildException, match="taken"):
        await done(builder.Template.build(template, "base", **builder.options))


async def test_a_build_goes_on_by_itself(builder):
    template = builder.Template().from_template("base").run_cmd("sleep 1")
    name = builder.name("behind")
    builder.made.add(name)
    begun = await done(builder.Template.build_in_background(template, name, **builder.options))
    seen = set()
    end = time.monotonic() + 240
    while (status := await builder.call("get_build_status", begun)).status.value != "ready":
        seen.add(status.status.value)
        assert time.monotonic() < end and status.status.value != "error", status
    assert seen <= {"waiting", "building"}
    logs = builder.api("GET", f"/templates/{begun.template_id}/builds/{begun.build_id}/logs").json()["logs"]
    assert logs[0]["message"].startswith("[base] FROM TEMPLATE base")
    latest = builder.api(
        "GET", f"/templates/{begun.template_id}/builds/{begun.build_id}/logs?direction=backward&limit=1"
    ).json()["logs"]
    assert latest == logs[-1:]


async def test_a_build_is_ended_by_the_team_that_began_it(builder):
    template = builder.Template().from_template("base").run_cmd("sleep 600")
    name = builder.name("ended")
    builder.made.add(name)
    begun = await done(builder.Template.build_in_background(template, name, **builder.options))
    path = f"/templates/{begun.template_id}/builds/{begun.build_id}"
    assert builder.api("DELETE", path).status_code == 204
    end = time.monotonic() + 60
    while builder.api("GET", f"{path}/status").json()["status"] != "error":
        assert time.monotonic() < end
    assert builder.api("GET", f"{path}/status").json()["reason"]["message"] == "the build was cancelled"
    assert builder.api("DELETE", path).status_code == 400


async def test_a_template_stands_on_another(sdk, builder):
    lower = (
        builder.Template().from_template("base").set_envs({"WORD": "inherited"}).set_workdir("/srv")
        .set_start_cmd("echo $WORD > /tmp/said; sleep infinity", wait_for_file("/tmp/said"))
    )
    await builder.build(lower, "lower")
    upper = builder.Template().from_template(builder.name("lower")).run_cmd("sudo touch /srv/$WORD")
    await builder.build(upper, "upper")
    sandbox = await sdk.create(builder.name("upper"), timeout=60)
    assert await out(sandbox, "pwd; ls; cat /tmp/said") == "/srv\ninherited\ninherited\n"
    await sleeps_once(sandbox)
    # It goes its own way.
    assert builder.api("DELETE", f"/templates/{builder.name('lower')}").status_code == 204
    again = await sdk.create(builder.name("upper"), timeout=60)
    assert await out(again, "ls") == "inherited\n"


async def test_others_use_what_is_published(sdk, builder):
    if "other" not in sdk.server.keys:
        sdk.server.keys["other"] = sdk.server.add_team("other")
    await builder.build(builder.Template().from_template("base").run_cmd("touch /tmp/x"), "shown")
    name = builder.name("shown")
    theirs = {"team": "other", "timeout": 60}
    ours = f"default/{name}"
    for called in (name, ours):
        with pytest.raises(Exception, match="not found"):
            await sdk.create(called, **theirs)
        alias = called.replace("/", "%2F")
        assert builder.api("GET", f"/templates/aliases/{alias}", team="other").status_code == 404
    assert builder.api("PATCH", f"/v2/templates/{name}", {"public": True}, team="other").status_code == 404
    assert builder.api("PATCH", f"/v2/templates/{name}", {"public": True}).json() == {"names": [f"default/{name}"]}
    sandbox = await sdk.create(ours, **theirs)
    assert await out(sandbox, "ls /tmp/x") == "/tmp/x\n"
    # Another team cannot take the plain name.
    with pytest.raises(Exception, match="not found"):
        await sdk.create(name, **theirs)
    for method, path in (("DELETE", f"/templates/{name}"), ("PATCH", f"/templates/{name}")):
        assert builder.api(method, path, {"public": False}, team="other").status_code == 404
    assert builder.api("PATCH", f"/templates/{name}", {"public": False}).json() == {}
    with pytest.raises(Exception, match="not found"):
        await sdk.create(ours, **theirs)


async def test_without_saved_memory_the_files_are_there(sdk, builder):
    template = builder.Template().from_template("base").run_cmd("echo kept > /tmp/kept").set_envs({"WORD": "built"})
    template = template.set_start_cmd("echo $WORD > /tmp/word; sleep infinity", wait_for_file("/tmp/word"))
    await builder.build(template, "files")
    sandbox = await sdk.create(builder.name("files"), "runc", timeout=60)
    # The start command runs again. The file for which the create waits is that of the build.
    await sleeps_once(sandbox)
    assert await out(sandbox, "cat /tmp/kept /tmp/word") == "kept\nbuilt\n"


async def test_the_wire_says_what_is_wrong(builder):
    for body, said in [
        ({}, "name"), ({"name": "A B"}, "invalid template reference"),
        ({"name": "x", "cpuCount": 3}, "cpuCount"), ({"name": "x", "cpuCount": 64}, "cpuCount"),
        ({"name": "x", "memoryMB": 127}, "memoryMB"), ({"name": "x", "tags": ["a b"]}, "tag"),
    ]:
        answer = builder.api("POST", "/v3/templates", body)
        assert answer.status_code == 400 and said in answer.json()["message"], answer.text
    assert builder.api("POST", "/v3/templates", {"name": "other/x"}).status_code == 403
    builder.made.add(builder.name("wire"))
    begun = builder.api("POST", "/v3/templates", {"name": builder.name("wire")}).json()
    path = f"/v2/templates/{begun['templateID']}/builds/{begun['buildID']}"
    for body, said in [
        ({}, "exactly one of"),
        ({"fromTemplate": "base", "steps": [{"type": "EXPOSE", "args": ["80"]}]}, "EXPOSE"),
        ({"fromTemplate": "base", "steps": [{"type": "COPY", "args": ["a", "b"]}]}, "filesHash"),
    ]:
        answer = builder.api("POST", path, body)
        assert answer.status_code == 400 and said in answer.json()["message"], answer.text
    never = {"fromTemplate": "base", "steps": [{"type": "COPY", "args": ["a", "/b"], "filesHash": "0" * 64}]}
    assert builder.api("POST", path, never).status_code == 202
    assert builder.api("POST", path, never).status_code == 400
    end = time.monotonic() + 60
    while (status := builder.api("GET", f"/templates/{begun['templateID']}/builds/{begun['buildID']}/status").json())["status"] != "error":
        assert time.monotonic() < end
    assert "were not uploaded" in status["reason"]["message"] and status["reason"]["step"] == "1"
