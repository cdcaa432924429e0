"""The template catalogue, through the SDK, the file, the API and the command line."""

from __future__ import annotations

import json

import pytest
from e2b import Sandbox, Template
from e2b.exceptions import SandboxException

from ..cli.conftest import Client
from ..hostile.machine import Call
from ..installation import wait_until
from ..registry import Registry

TEMPLATES = "/api/v1/config/templates"
PASSWD = "root:x:0:0:root:/root:/bin/sh\n"

#: Exit codes: 64 for a wrong command line, 66 for a missing object.
USAGE, NOT_FOUND = 64, 66


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    made = Registry(tmp_path_factory.mktemp("registry"))
    made.start()
    for name in ("python:3.11", "nodejs:18", "golang:1.21"):
        made.add(f"agent-sandbox/{name}", {"etc/passwd": PASSWD, "root/which": name}, User="root")
    made.add("agent-sandbox/foreign:1", {"etc/passwd": PASSWD}, architecture="s390x")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A registry that requires an account."""
    made = Registry(tmp_path_factory.mktemp("guarded"), guarded=True)
    made.start()
    made.add("agent-sandbox/private:1", {"etc/passwd": PASSWD})
    yield made
    made.stop()


def entries(server, registry, guarded) -> list[dict]:
    base = Call(server).get("/api/v1/templates/base")[1]["data"]["image"]
    return [
        {
            "name": "code", "image": base, "description": "What the image is, and more", "port": 49999,
            "resources": {"cpu": "0.5", "memory": "256Mi", "cpuLimit": "1", "memoryLimit": "512Mi"},
            "metadata": {"tier": "gold", "own": "template"}, "env": {"FROM": "template", "OTHER": "1"},
            "workdir": "/srv", "runtime": "runc",
            "pool": {"size": 0, "probePort": 8888, "warmupCmd": "/warm.sh", "startupCmd": "/start.sh,-p 1",
                     "resources": {"cpu": "0", "memory": "64Mi"}},
        },
        {
            "name": "faas-code", "type": "dynamic", "description": "Any runtime", "runtime": "runc",
            "pattern": "faas-code-(?P<name>.+)\\.(?P<version>.+)$",
            "image": f"{registry.address}/agent-sandbox/<name>:<version>",
        },
        {
            "name": "private", "description": "Of a registry that asks",
            "image": f"{guarded.address}/agent-sandbox/private:1",
        },
    ]


@pytest.fixture(scope="module")
def server(another, registry, guarded):
    made = another("catalogue")
    status, answer = Call(made).post(TEMPLATES, entries(made, registry, guarded))
    assert status == 200, answer
    return made


@pytest.fixture
def client(server):
    return Client(server)


def version(server) -> int:
    return Call(server).get(TEMPLATES)[1]["data"]["version"]


def test_a_sandbox_has_the_settings_of_its_entry(server):
    sandbox = Sandbox.create(
        "code", metadata={"own": "request"}, envs={"FROM": "request"}, **server.options()
    )
    try:
        said = sandbox.commands.run("echo $FROM $OTHER; pwd").stdout.split()
        assert said == ["request", "1", "/srv"]
        info = sandbox.get_info()
        assert info.metadata.items() >= {"tier": "gold", "own": "request"}.items()
        assert (info.cpu_count, info.memory_mb) == (1, 512)
        assert info.name == "code"
    finally:
        sandbox.kill()


def test_a_build_can_be_based_on_an_entry(server):
    options = {name: value for name, value in server.options().items() if name != "sandbox_url"}
    template = Template().from_template("code").run_cmd("pwd > /tmp/said; echo $OTHER >> /tmp/said")
    Template.build(template, "on-an-entry", cpu_count=1, memory_mb=256, **options)
    sandbox = Sandbox.create("on-an-entry", **server.options())
    try:
        assert sandbox.commands.run("cat /tmp/said; pwd").stdout.split() == ["/srv", "1", "/srv"]
    finally:
        sandbox.kill()
        Call(server).delete("/templates/on-an-entry")


def test_a_create_waits_for_the_port_and_passes_arguments(server):
    """An entry that starts a slow server."""
    held = Call(server).get(TEMPLATES)[1]["data"]["templates"]
    line = "exec python3 -c 'import sys, time, http.server as h; time.sleep(2); h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind=\"0.0.0.0\")'"
    serving = {
        "name": "serving", "image": held[0]["image"], "description": "d", "runtime": "runc",
        "port": 8123, "startCmd": line, "args": ["8123"],
    }
    status, answer = Call(server).post(TEMPLATES, held + [serving])
    assert status == 200, answer
    try:
        sandbox = Sandbox.create("serving", **server.options())
        said = sandbox.commands.run("curl -s -o /dev/null -w '%{http_code}' localhost:8123/")
        assert said.stdout == "200"
        sandbox.kill()
    finally:
        Call(server).post(TEMPLATES, held)


@pytest.mark.parametrize("name", ["python.3.11", "nodejs.18", "golang.1.21"])
def test_a_dynamic_template_resolves_as_in_agent_sandboxs_example(server, registry, name):
    image, _, tag = name.partition(".")
    for _ in range(2):
        sandbox = Sandbox.create(f"faas-code-{name}", **server.options())
        assert sandbox.files.read("/root/which") == f"{image}:{tag}"
        sandbox.kill()
    # It was fetched on demand, and once.
    asked = f"GET /v2/agent-sandbox/{image}/manifests/{tag}"
    assert registry.heard().count(asked) == 1


def test_an_unknown_name_is_an_error(server):
    for name, part in (
        ("nothing.1", "template 'nothing.1' not found"),
        ("faas-code", "template 'faas-code' not found"),
        ("faas-code-missing.1", "agent-sandbox/missing:1 was not found"),
        ("private", "refused the credentials, or wants some"),
        ("faas-code-foreign.1", "has no variant for linux/"),
        ("faas-code-a/b.1", "cannot stand in the name"),
    ):
        with pytest.raises(SandboxException) as raised:
            Sandbox.create(name, **server.options())
        assert part in str(raised.value), raised.value
    assert Call(server).ids() == []


def test_an_image_only_is_custom_and_nothing_is_the_default(server, registry):
    call = Call(server)
    image = f"{registry.address}/agent-sandbox/python:3.11"
    status, made = call.post("/e2b/v1/sandboxes", {"image": image, "metadata": {"shoal/runtime": "runc"}})
    assert (status, made["alias"]) == (201, "custom"), made
    call.delete(f"/sandboxes/{made['sandboxID']}")
    status, made = call.post("/e2b/v1/sandboxes", {})
    assert (status, made["alias"]) == (201, "base"), made
    call.delete(f"/sandboxes/{made['sandboxID']}")
    server.add_team("nobody")
    status, refused = Call(server, "nobody").post("/e2b/v1/sandboxes", {"image": image})
    assert status == 403 and "only an admin key may name an image" in refused["message"]


def test_two_editors_do_not_overwrite_each_other(server):
    call, seen = Call(server), version(server)
    held = call.get(TEMPLATES)[1]["data"]["templates"]
    mine = held + [{"name": "mine", "image": "i:1", "description": "d"}]
    theirs = held + [{"name": "theirs", "image": "i:1", "description": "d"}]
    tag = {"If-Match": f'"{seen}"'}
    assert call.post(TEMPLATES, mine, headers=tag)[0] == 200
    status, refused = call.post(TEMPLATES, theirs, headers=tag)
    assert status == 409 and f"has version {seen + 1}" in refused["message"], refused
    assert call.post(TEMPLATES, {"version": seen, "templates": theirs})[0] == 409
    half = held + [{"name": "half"}]
    status, refused = call.post(TEMPLATES, half)
    assert status == 400 and '("half"): missing field `description`' in refused["message"], refused
    assert [e["name"] for e in call.get(TEMPLATES)[1]["data"]["templates"]][-1] == "mine"
    assert call.post(TEMPLATES, {"version": seen + 1, "templates": held})[0] == 200


def test_the_file_is_followed_and_a_bad_edit_changes_nothing(server):
    call, seen = Call(server), version(server)
    held = call.get(TEMPLATES)[1]["data"]["templates"]
    file = server.data / "config" / "templates.json"
    file.parent.mkdir(exist_ok=True)
    edited = held + [{"name": "edited", "image": "i:1", "description": "d"}]
    file.write_text(json.dumps(edited))
    wait_until(lambda: version(server) == seen + 1, 60, "an edit of the file")
    file.write_text('[{"name": "bad", "colour": "red"}]')
    def refusal() -> dict | None:
        # A file that is only half written is refused too.
        told = call.get(TEMPLATES)[1]["data"]["lastError"]
        return told if told and "unknown field `colour`" in told["message"] else None

    told = wait_until(refusal, 60, "a refusal")
    assert told["source"] == str(file)
    logged = lambda: "refused the template catalogue" in server.log_tail(1 << 20)  # noqa: E731
    wait_until(logged, 60, "the refusal in the log")
    assert call.get(TEMPLATES)[1]["data"]["templates"][-1]["name"] == "edited"
    # As an editor writes: a new file replaces the old one.
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(held))
    beside.rename(file)
    wait_until(lambda: version(server) == seen + 2, 60, "an edit that repairs it")
    assert call.get(TEMPLATES)[1]["data"]["lastError"] is None


def test_a_restart_keeps_it_and_takes_what_was_edited_meanwhile(server):
    call, seen = Call(server), version(server)
    held = call.get(TEMPLATES)[1]["data"]["templates"]
    assert call.post(TEMPLATES, held + [{"name": "api", "image": "i:1", "description": "d"}])[0] == 200
    server.stop()
    server.start()
    # The file is older than the edit over the API.
    assert version(server) == seen + 1
    server.stop()
    file = server.data / "config" / "templates.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(held))
    server.start()
    assert version(server) == seen + 2
    assert len(call.get(TEMPLATES)[1]["data"]["templates"]) == len(held)


def test_resolve_shows_entry_image_and_origins(client, registry):
    shown = client.run("template", "resolve", "faas-code-python.3.11", "--json").json
    assert (shown["kind"], shown["name"]) == ("dynamic", "faas-code")
    assert shown["captured"] == {"name": "python", "version": "3.11"}
    values = {row["field"]: (row["value"], row["from"]) for row in shown["values"]}
    assert values["image"] == (f"{registry.address}/agent-sandbox/python:3.11", "template")
    assert values["runtime"] == ("runc", "template") and values["pids"][1] == "default"
    shown = client.ok("template", "resolve", "code")
    lines = [line.split() for line in shown.splitlines()]
    assert ["cpu", "1000m", "template"] in lines and ["disk", "10240Mi", "default"] in lines
    assert ["metadata.tier", "gold", "template"] in lines
    assert "base" in client.ok("template", "resolve")
    near = client.run("template", "resolve", "cod")
    assert near.code == NOT_FOUND and "Did you mean code?" in near.err, near


def test_the_catalogue_from_the_command_line(client, server, tmp_path):
    held = Call(server).get(TEMPLATES)[1]["data"]["templates"]
    file = tmp_path / "templates.json"
    odd = {"name": "Odd_One", "image": "i:1", "description": "d"}
    file.write_text(json.dumps(held + [odd]))
    seen = client.run("template", "ls", "--json").json["catalogue"]["version"]
    assert seen == version(server)
    linted = client.run("template", "lint", str(file))
    assert linted.code == 0 and "Odd_One: `name`" in linted.out, linted
    assert client.run("template", "lint", str(file), "--strict").code == 1
    applied = client.run("template", "apply", str(file), "--if-version", str(seen))
    assert applied.code == 0 and f"version {seen + 1}" in applied.out and "Odd_One" in applied.err, applied
    assert client.run("template", "apply", str(file), "--if-version", str(seen)).code != 0
    rows = [line.split()[:2] for line in client.ok("template", "ls").splitlines()]
    assert ["Odd_One", "catalogue"] in rows and any(row[0] == "base" for row in rows)
    listed = client.run("template", "ls", "--json").json
    assert odd in listed["catalogue"]["templates"] and ["base"] in [one["names"] for one in listed["templates"]]
    assert ["catalogue", "version", str(seen + 1)] in [line.split() for line in client.ok("template", "get", "odd_one").splitlines()]
    assert client.run("template", "get", "odd_one", "--json").json == odd
    assert client.run("template", "get", "base", "--json").json["names"] == ["base"]
    assert client.ok("template", "rm", "Odd_One") == "Odd_One"
    assert client.run("template", "rm", "Odd_One").code == NOT_FOUND
    file.write_text('[{"name": "x"}]')
    for verb in ("lint", "apply"):
        refused = client.run("template", verb, str(file))
        assert refused.code == USAGE and "missing field `description`" in refused.err, refused
    assert client.run("template", "lint", str(tmp_path / "none")).code == NOT_FOUND
