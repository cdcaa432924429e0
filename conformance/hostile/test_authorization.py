"""Every route without a key, with a wrong one, and with another tenant's."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import time
from urllib.parse import quote

import pytest

from ..installation import ROOT, wait_until
from .conftest import SMALL, create
from .machine import Call, run

#: Every route of the control API with an id, as `(method, path, body)`.
BY_ID = [
    ("GET", "/sandboxes/{id}", None),
    ("DELETE", "/sandboxes/{id}", None),
    ("POST", "/sandboxes/{id}/connect", {"timeout": 60}),
    ("POST", "/v2/sandboxes/{id}/connect", {"timeout": 60}),
    ("POST", "/sandboxes/{id}/timeout", {"timeout": 60}),
    ("POST", "/sandboxes/{id}/refreshes", {"duration": 60}),
    ("PUT", "/sandboxes/{id}/network", {"denyOut": ["0.0.0.0/0"]}),
    ("GET", "/sandboxes/{id}/metrics", None),
    ("GET", "/sandboxes/{id}/logs", None),
    ("GET", "/v2/sandboxes/{id}/logs", None),
    ("POST", "/sandboxes/{id}/pause", {}),
    ("POST", "/sandboxes/{id}/resume", {"timeout": 60}),
    ("POST", "/sandboxes/{id}/fork", {}),
    ("POST", "/sandboxes/{id}/snapshots", {}),
]
#: Routes without an id.
OTHER = [
    ("GET", "/sandboxes", None),
    ("GET", "/v2/sandboxes", None),
    ("POST", "/sandboxes", {"templateID": SMALL}),
    ("POST", "/v2/sandboxes", {"templateID": SMALL}),
    ("GET", "/sandboxes/metrics?sandbox_ids={id}", None),
    ("GET", "/snapshots", None),
    ("GET", "/templates", None),
    ("GET", "/v2/templates", None),
    ("GET", "/templates/base", None),
    ("DELETE", "/templates/base", None),
    ("GET", "/templates/aliases/base", None),
    ("PATCH", "/templates/base", {"public": False}),
    ("PATCH", "/v2/templates/base", {"public": False}),
    ("POST", "/v3/templates", {"name": "theirs"}),
    ("POST", "/v2/templates", {"alias": "theirs"}),
    ("POST", "/templates", {"alias": "theirs"}),
    ("POST", "/templates/base", {}),
    ("POST", "/templates/tags", {"target": "base:default", "tags": ["x"]}),
    ("DELETE", "/templates/tags", {"name": "base", "tags": ["x"]}),
    ("GET", "/templates/base/tags", None),
    ("GET", "/templates/base/tags/exists?tag=x", None),
    ("GET", "/templates/base/tags/count", None),
    ("GET", "/templates/base/tags/groups", None),
    ("GET", "/templates/base/tags/default/assignments", None),
    ("GET", "/default-templates", None),
    ("GET", "/teams/{id}/metrics", None),
    ("GET", "/teams/{id}/metrics/max?metric=concurrent_sandboxes", None),
    ("GET", "/api-keys", None),
    ("POST", "/api-keys", {"name": "x"}),
    ("PATCH", "/api-keys/{id}", {"name": "x"}),
    ("DELETE", "/api-keys/{id}", None),
]
#: Routes of a template and its builds, as `(method, path, body)`.
OF_A_BUILD = [
    ("GET", "/templates/{template}/files/" + "0" * 64, None),
    ("POST", "/v2/templates/{template}/builds/{build}", {"fromTemplate": "base"}),
    ("DELETE", "/templates/{template}/builds/{build}", None),
    ("GET", "/templates/{template}/builds/{build}/status", None),
    ("GET", "/templates/{template}/builds/{build}/logs", None),
]
PREFIXES = ("", "/e2b/v1")

#: Shoal's own API, and whether a route requires an admin key.
NATIVE_PREFIX = "/api/v1"
NATIVE = [
    ("GET", "/keys", None, True), ("POST", "/keys", {"name": "x"}, True),
    ("POST", "/keys", {"name": "x", "admin": True, "team": "default"}, True),
    ("DELETE", "/keys/{id}", None, True),
    ("GET", "/images", None, True), ("DELETE", "/images?name=x", None, True),
    ("POST", "/images/pull", {"name": "127.0.0.1:1/x"}, True),
    ("POST", "/images/import", {"name": "x", "path": "/etc/shadow"}, True),
    ("POST", "/templates", {"name": "x", "image": "x"}, True), ("DELETE", "/templates/{id}", None, True),
    ("POST", "/snapshots/export", {"snapshot": "x", "path": "/etc/shadow"}, True),
    ("POST", "/snapshots/import", {"path": "/etc/shadow"}, True),
    ("GET", "/teams", None, False), ("PUT", "/teams/{name}/limits", {"sandboxes": 1}, True),
    ("GET", "/sandboxes/events?all=true", None, True),
    ("GET", "/doctor", None, True),
    ("GET", "/pool", None, True), ("GET", "/pool/sandbox/{id}", None, True), ("GET", "/pool/history/{id}", None, True), ("DELETE", "/pool/{id}", None, True),
    ("POST", "/config/templates", [], True), ("GET", "/config/templates", None, False),
    ("GET", "/config/templates/resolve?templateID=base", None, False),
    ("GET", "/config/blueprint", None, True), ("POST", "/config/blueprint", {"blueprint": ""}, True),
    ("GET", "/templates", None, False), ("GET", "/templates/base", None, False), ("GET", "/status", None, False),
]
#: Routes of a sandbox, which belongs to its team.
NATIVE_BY_ID = [
    ("GET", "/sandbox/{id}/objects", None),
    ("PATCH", "/sandbox/{id}/resources", {"cpu": 1}), ("POST", "/sandbox/{id}/rotate-token", None),
    ("GET", "/sandbox/{id}", None), ("DELETE", "/sandbox/{id}", None),
    ("POST", "/sandbox/pause/{id}", {}), ("POST", "/sandbox/resume/{id}", {}),
    ("GET", "/sandbox/files/{id}?path=/", None), ("DELETE", "/sandbox/files/{id}?path=/home/user/mine.txt", None),
    ("GET", "/sandbox/files/{id}/download?path=/etc/passwd", None),
    ("POST", "/sandbox/files/{id}/upload?path=/home/user/mine.txt", b"x"),
    ("POST", "/terminal/sandbox/{id}", {"command": "id"}), ("GET", "/terminal/sandbox/{id}/ws", None),
    ("GET", "/logs/sandbox/{id}", None),
]
#: Routes that answer every team with its own data.
NATIVE_OWN = [
    ("POST", "/sandbox/metrics", {"names": ["{id}"]}), ("GET", "/events", None), ("GET", "/sandbox", None),
    ("GET", "/ratelimit", None), ("GET", "/status", None), ("GET", "/sessions", None),
]
#: Routes of a session, which belongs to its team.
NATIVE_BY_SESSION = [
    ("GET", "/sessions/{id}", None), ("PATCH", "/sessions/{id}", {"persist": True}), ("DELETE", "/sessions/{id}", None),
    ("POST", "/sessions/{id}/exec", {"command": "id"}), ("POST", "/sessions/{id}/reset", {}),
    ("GET", "/sessions/{id}/files", None), ("DELETE", "/sessions/{id}/files?path=a", None),
    ("GET", "/sessions/{id}/files/content?path=a", None), ("PUT", "/sessions/{id}/files/content?path=a", {}),
    ("POST", "/sessions/{id}/files/move", {"from": "a", "to": "b"}), ("GET", "/sessions/{id}/sync", None),
    ("POST", "/sessions/{id}/windows/{window}/cancel", None), ("GET", "/sessions/{id}/windows/{window}/ws", None),
    ("GET", "/sessions/{id}/secrets", None), ("PUT", "/sessions/{id}/secrets/{secret}", {"value": "x"}),
    ("DELETE", "/sessions/{id}/secrets/{secret}", None), ("POST", "/sessions/{id}/secrets/{secret}/activate", None),
    ("POST", "/sessions/{id}/secrets/{secret}/deactivate", None),
    ("GET", "/sessions/{id}/memories", None), ("GET", "/sessions/{id}/memories/{memory}", None),
    ("GET", "/sessions/{id}/events", None), ("GET", "/sessions/{id}/files/watch", None),
    ("PUT", "/sessions/{id}/memories/{memory}", {"text": "x"}), ("DELETE", "/sessions/{id}/memories/{memory}", None),
]
#: Routes that create something for any team.
NATIVE_MAKES = [
    ("POST", "/sandbox", {"template": SMALL}), ("POST", "/templates/base/build", {"force": False}),
    ("POST", "/builds", {"name": "made", "dockerfile": "FROM base\n"}), ("POST", "/sessions", {}),
]
#: Routes to ports, each with a request for something that does not exist.
PORTS = ["/sandbox/{id}/", "/sandbox/{id}/?port=49983", "/sandboxes/router/{id}/8080/", "/sandboxes/router/{id}/49983/envs"]

UNKNOWN = "i" + "z" * 20
UNKNOWN_SESSION = "s" + "z" * 20
NO_BUILD = "00000000-0000-4000-8000-000000000000"


def all_routes():
    native = [(method, NATIVE_PREFIX + path, body) for method, path, body, *_ in NATIVE + NATIVE_OWN + NATIVE_MAKES]
    return native + of_a_sandbox() + of_a_session() + [
        (method, prefix + path, body)
        for prefix in PREFIXES for method, path, body in OTHER + of_a_build("base", NO_BUILD)
    ]


def of_a_build(template: str, build: str):
    return [
        (method, path.replace("{template}", template).replace("{build}", build), body)
        for method, path, body in OF_A_BUILD
    ]


def of_a_sandbox():
    return [(method, NATIVE_PREFIX + path, body) for method, path, body in NATIVE_BY_ID] + [
        (method, prefix + path, body) for prefix in PREFIXES for method, path, body in BY_ID
    ]


def of_a_session():
    def filled(path: str) -> str:
        return path.replace("{window}", "main").replace("{secret}", "TOKEN").replace("{memory}", "plan")

    return [(method, NATIVE_PREFIX + filled(path), body) for method, path, body in NATIVE_BY_SESSION]


@pytest.fixture(scope="module")
def ours(server):
    made = create(server, "runc", timeout=900)
    made.files.write("mine.txt", "mine")
    yield made
    made.kill()


@pytest.fixture(scope="module")
def theirs(server, ours):
    return Call(server, "other")


def envd(sandbox, port: int = 49983, **more) -> dict:
    """The headers that address a request to a port of the sandbox."""
    return {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)} | more


def token_of(server, sandbox) -> str:
    return Call(server).get(f"/sandboxes/{sandbox.sandbox_id}")[1]["envdAccessToken"]


def test_every_route_of_the_program_is_in_the_lists():
    """A new route without a line here would not be tested."""
    routes = set()
    for source in sorted((ROOT / "crates/api/src").glob("**/*.rs")):
        text = source.read_text()
        # The document at `/openapi.json` has no path here: it is public.
        for path in re.findall(r'\.route\(\s*"(/[^"]*)"', text):
            routes.add(path.replace("{alias}", "base").replace("{template}", "{id}").replace("{tag}", "default"))
    listed = {path.split("?")[0] for _, path, _ in BY_ID + OTHER}
    listed |= {path.split("?")[0] for _, path, *_ in NATIVE + NATIVE_BY_ID + NATIVE_BY_SESSION + NATIVE_OWN + NATIVE_MAKES}
    listed |= {path.replace("/templates/base", "/templates/{id}") for path in listed}
    listed |= {
        path.replace("{template}", "{id}").replace("0" * 64, "{hash}") for _, path, _ in OF_A_BUILD
    }
    # The signed URL is the right to upload files.
    assert routes - listed <= {"/health", "/uploads/{team}/{hash}"}, routes - listed


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"X-API-Key": ""}, {"X-API-Key": "e2b_" + "0" * 40}, {"X-API-Key": "e2b_"},
        {"X-API-Key": "' OR 1=1 --"}, {"X-API-Key": "e2b_" + "g" * 40},
        {"X-API-Key": "e2b_" + "0" * 100_00}, {"Authorization": "Bearer e2b_" + "0" * 40},
        {"Cookie": "key=e2b_" + "0" * 40}, {"X-API-Key": "\xff\xfe"},
    ],
    ids=lambda headers: str(headers)[:40],
)
def test_every_route_requires_a_valid_key(server, ours, headers):
    stranger = Call(server, None)
    for method, path, body in all_routes():
        status, answer = stranger(method, path.format(id=ours.sandbox_id, name="other"), body, headers=headers)
        assert status == 401, (method, path, status, answer)
    assert ours.is_running()


def test_a_key_in_the_wrong_case_or_place_is_invalid(server, ours):
    key = server.key
    stranger = Call(server, None)
    for headers in ({"X-API-Key": key.upper()}, {"X-API-Key": f" {key} x"}, {"X-API-Key": key[:-1]},
                    {"X-API-Key": key + "0"}, {"Cookie": f"X-API-Key={key}"}):
        assert stranger.get(f"/sandboxes/{ours.sandbox_id}", headers=headers)[0] == 401, headers
    assert stranger.get(f"/sandboxes/{ours.sandbox_id}?X-API-Key={key}")[0] == 401
    # Of two keys, the valid one must not vouch for the other's team.
    other = server.keys["other"]
    assert Call(server, "other").get(f"/sandboxes/{ours.sandbox_id}", headers={"X-Team-Id": "default"})[0] == 401
    assert other != key


def test_another_teams_sandbox_is_not_found(server, ours, theirs):
    for method, path, body in of_a_sandbox():
        foreign = theirs(method, path.format(id=ours.sandbox_id), body)
        missing = theirs(method, path.format(id=UNKNOWN), body)
        assert foreign[0] == missing[0] == 404, (method, path, foreign)
        same = [str(one[1]).replace(ours.sandbox_id, "X").replace(UNKNOWN, "X") for one in (foreign, missing)]
        assert same[0] == same[1], "an answer must not tell whether it exists"
    assert theirs.get(f"/sandboxes/metrics?sandbox_ids={ours.sandbox_id}")[1] == {"sandboxes": {}}
    for listing in ("/sandboxes", "/v2/sandboxes"):
        assert ours.sandbox_id not in str(theirs.get(listing)[1])
    assert ours.is_running() and ours.files.read("mine.txt") == "mine"
    assert ours.get_info().lifecycle is not None


def test_another_teams_session_is_not_found(server, theirs):
    mine = Call(server).post(NATIVE_PREFIX + "/sessions", {"metadata": {"purpose": "secret"}})[1]["data"]["id"]
    for method, path, body in of_a_session():
        foreign = theirs(method, path.format(id=mine), body)
        missing = theirs(method, path.format(id=UNKNOWN_SESSION), body)
        assert foreign[0] == missing[0] == 404, (method, path, foreign)
        same = [str(one[1]).replace(mine, "X").replace(UNKNOWN_SESSION, "X") for one in (foreign, missing)]
        assert same[0] == same[1], "an answer must not tell whether it exists"
    assert mine not in str(theirs.get(NATIVE_PREFIX + "/sessions")[1])
    status, seen = Call(server).get(f"{NATIVE_PREFIX}/sessions/{mine}")
    assert status == 200 and seen["data"]["persist"] is False and "sandboxId" not in seen["data"], seen
    assert Call(server).delete(f"{NATIVE_PREFIX}/sessions/{mine}")[0] == 200


def test_admin_routes_require_an_admin_key(server, theirs):
    keys = Call(server).get(NATIVE_PREFIX + "/keys")[1]["data"]
    known = next(key["id"] for key in keys if key["admin"])
    for method, path, body, admin in NATIVE:
        for name in (known, "base", UNKNOWN):
            status, answer = theirs(method, NATIVE_PREFIX + path.format(id=name, name="other"), body)
            assert status == (403 if admin else 200), (method, path, status, answer)
            assert server.key not in str(answer) and known not in str(answer)
    assert Call(server).get(NATIVE_PREFIX + "/keys")[1]["data"] == keys


def test_keys_and_metrics_of_a_team_are_private(server, theirs):
    admin = Call(server)
    keys = admin.get(NATIVE_PREFIX + "/keys")[1]["data"]
    of_others = next(key["id"] for key in keys if key["team"] == "other")
    for prefix in PREFIXES:
        for method, path, body in (("GET", "/api-keys", None), ("POST", "/api-keys", {"name": "x"})):
            assert theirs(method, prefix + path, body)[0] == 403
        for name in (of_others, keys[0]["id"], NO_BUILD, UNKNOWN):
            for method, body in (("PATCH", {"name": "x"}), ("DELETE", None)):
                assert theirs(method, f"{prefix}/api-keys/{name}", body)[0] == 403
        # Here, an admin sees only the own team's keys.
        listed = admin.get(f"{prefix}/api-keys")[1]
        assert of_others not in str(listed) and server.keys["other"] not in str(listed)
        for method, body in (("PATCH", {"name": "x"}), ("DELETE", None)):
            foreign = admin(method, f"{prefix}/api-keys/{of_others}", body)
            missing = admin(method, f"{prefix}/api-keys/{NO_BUILD}", body)
            assert foreign[0] == missing[0] == 404
            assert str(foreign[1]).replace(of_others, "X") == str(missing[1]).replace(NO_BUILD, "X")
        for path in ("/metrics", "/metrics/max?metric=concurrent_sandboxes"):
            answers = [theirs.get(f"{prefix}/teams/{team}{path}") for team in (NO_BUILD, "default", UNKNOWN)]
            assert [one[0] for one in answers] == [403] * 3 and len({str(one[1]) for one in answers}) == 1
    assert admin.get(NATIVE_PREFIX + "/keys")[1]["data"] == keys


def test_another_teams_build_is_not_found(server, theirs):
    mine = Call(server)
    begun = mine.post("/v3/templates", {"name": "mine-alone"})[1]
    for prefix in PREFIXES:
        for method, path, body in of_a_build(begun["templateID"], begun["buildID"]):
            assert theirs(method, prefix + path, body)[0] == 404, (method, path)
        for method, path, body in of_a_build("base", begun["buildID"])[1:]:
            assert theirs(method, prefix + path, body)[0] == mine(method, prefix + path, body)[0] == 404
    free = theirs.get("/templates/aliases/free-for-all")
    for alias in ("mine-alone", "default%2Fmine-alone", "default%2Ffree-for-all"):
        status, answer = theirs.get(f"/templates/aliases/{alias}")
        named = alias.replace("%2F", "/")
        assert (status, str(answer).replace(named, "X")) == (404, str(free[1]).replace("free-for-all", "X"))
    assert "mine-alone" not in str(theirs.get("/templates")[1])
    # Names are scoped to a team.
    assert theirs.post("/v3/templates", {"name": "mine-alone"})[1]["templateID"] != begun["templateID"]


def test_a_build_contacts_no_forbidden_registry(server, theirs):
    """An image's name is an address on this machine's network."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        image = f"127.0.0.1:{listener.getsockname()[1]}/x"
        begun = theirs.post("/v3/templates", {"name": "asks"})[1]
        path = f"/templates/{begun['templateID']}/builds/{begun['buildID']}"
        assert theirs.post(f"/v2{path}", {"fromImage": image})[0] == 202
        wait_until(lambda: theirs.get(f"{path}/status")[1]["status"] == "error", 60, "the build's end")
        reason = theirs.get(f"{path}/status")[1]["reason"]
        assert "image" in reason["message"] and reason["step"] == "base", reason
        with pytest.raises(TimeoutError):
            listener.accept()


def test_an_upload_url_works_for_its_team_only(server, theirs):
    mine = Call(server)
    begun = mine.post("/v3/templates", {"name": "files-alone"})[1]
    files = "ab" * 32
    status, link = mine.get(f"/templates/{begun['templateID']}/files/{files}")
    assert (status, link["present"]) == (201, False)
    place = link["url"].removeprefix(f"http://127.0.0.1:{server.port}")
    stranger = Call(server, None)
    path, query = place.split("?")
    team = path.split("/")[2]
    said = dict(part.split("=") for part in query.split("&"))
    for wrong in (
        path,
        f"{path}?expires={said['expires']}&signature={'0' * 64}",
        f"{path}?expires={int(said['expires']) + 1}&signature={said['signature']}",
        f"{path}?expires=1&signature={said['signature']}",
        f"{path[:-1]}a?{query}",
        f"{path.replace(team, NO_BUILD)}?{query}",
        f"/uploads/{team}/..%2f..%2fshoal.db?{query}",
        f"/uploads/..%2f..%2fetc/{files}?{query}",
    ):
        assert stranger.put(wrong, b"x")[0] == 403, wrong
    assert mine.get(f"/templates/{begun['templateID']}/files/{files}")[1]["present"] is False
    huge = {"Content-Length": str(5 << 30)}
    assert stranger.put(place, b"x", headers=huge)[0] == 413
    assert stranger.put(place, b"x")[0] == 200
    assert mine.get(f"/templates/{begun['templateID']}/files/{files}")[1]["present"] is True
    # Files that one team uploaded do not exist for another.
    theirs_begun = theirs.post("/v3/templates", {"name": "files-theirs"})[1]
    assert theirs.get(f"/templates/{theirs_begun['templateID']}/files/{files}")[1]["present"] is False


def test_lists_contain_only_the_teams_own(server, ours, theirs):
    for method, path, body in NATIVE_OWN:
        body = body and {name: [one.format(id=ours.sandbox_id) for one in value] for name, value in body.items()}
        status, answer = theirs(method, NATIVE_PREFIX + path, body)
        assert status == 200 and ours.sandbox_id not in str(answer), (path, answer)
    for asked in (ours.sandbox_id, UNKNOWN):
        assert theirs.get(f"{NATIVE_PREFIX}/events?sandbox={asked}")[0] == 404
    # Names are looked up in the own team, and may equal another team's.
    for caller in (Call(server), theirs):
        status, made = caller.post(NATIVE_PREFIX + "/sandbox", {"template": SMALL, "name": "mine", "timeout": 600})
        assert status == 201, made
        assert caller.get(NATIVE_PREFIX + "/sandbox/mine")[1]["data"]["id"] == made["data"]["id"]
    for caller in (Call(server), theirs):
        assert caller.delete(NATIVE_PREFIX + "/sandbox/mine")[0] == 200
        assert caller.get(NATIVE_PREFIX + "/sandbox/mine")[0] == 404


def test_path_urls_are_closed_to_strangers_and_reveal_nothing(server, ours, theirs, private):
    key, token = server.key, private.traffic_access_token
    for route in PORTS:
        for name in (ours.sandbox_id, private.sandbox_id, UNKNOWN, "mine", "..", "%2e%2e", "%00", "x" * 5000):
            path = route.format(id=name)
            for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": "e2b_" + "0" * 40}, {"X-API-Key": key[:-1]},
                            {"e2b-traffic-access-token": ""}, {"e2b-traffic-access-token": "x"},
                            {"Cookie": f"X-API-Key={key}"}, {"Authorization": f"Bearer {key}"}):
                assert Call(server, None).get(path, headers=headers)[0] == 401, (path, headers)
            foreign = theirs.get(path)
            assert foreign[0] == 502 and foreign[1] == {"code": 502, "message": "The sandbox was not found"}, foreign
    # A token is valid for one sandbox's ports: not for its daemon, and not for another sandbox.
    stranger, good = Call(server, None), {"e2b-traffic-access-token": token}
    assert stranger.get(f"/sandboxes/router/{private.sandbox_id}/8000/", headers=good)[0] == 200
    assert stranger.get(f"/sandboxes/router/{ours.sandbox_id}/8000/", headers=good)[0] == 401
    assert stranger.get(f"/sandboxes/router/{private.sandbox_id}/49983/envs", headers=good)[0] == 401
    assert Call(server).get(f"/sandbox/{private.sandbox_id}/?port=8000")[0] == 200
    # The key admits the request, but the daemon still requires its own token.
    assert Call(server).get(f"/sandbox/{ours.sandbox_id}/envs?port=49983")[0] == 401


def test_cursors_do_not_reveal_another_teams_list(server, ours, theirs):
    status, _ = Call(server).get("/v2/sandboxes?limit=1")
    assert status == 200
    for cursor in ("../..", "\x00", "A" * 5000, base64.b64encode(b"0:" + ours.sandbox_id.encode()).decode()):
        status, answer = theirs.get(f"/v2/sandboxes?limit=1&nextToken={quote(cursor)}")
        assert status in (200, 400) and ours.sandbox_id not in str(answer)


@pytest.mark.parametrize(
    "bad",
    ["..", ".", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e", "%00", "a%00b", "i%0d%0aX-Evil:1",
     "*", "%25", "i" * 5000, "i\u00e9".encode().hex(), "-", "--", "%F0%9F%92%A3", "shoal.db", "I" * 21,
     "%2e%2e%2fshoal.db", "..;/health", "~", "$(id)", "%60id%60", "'%20OR%201=1--"],
)
def test_ids_are_not_paths(server, bad):
    call = Call(server)
    for method, path, body in of_a_sandbox():
        status, answer = call(method, path.replace("{id}", bad), body)
        assert status in (400, 401, 404, 405, 414), (path, status, answer)
        assert "root:" not in str(answer)
    for path in (f"/templates/{bad}", f"/templates/aliases/{bad}"):
        assert call.get(path)[0] in (400, 404, 405, 414)
    status, answer = call.post("/v2/sandboxes", {"templateID": bad})
    assert status in (400, 404), answer
    for headers in ({"E2b-Sandbox-Id": bad, "E2b-Sandbox-Port": "49983"}, {"Host": f"49983-{bad}.x"}):
        status, _ = Call(server, None).get("/health", headers=headers)
        assert status in (400, 502), (headers, status)
    assert call.get("/health")[0] == 204


def test_metadata_and_filters_are_data(server):
    call = Call(server)
    hostile = {"a' OR 1=1 --": "\"; DROP TABLE sandboxes; --", "../../x": "$(touch /tmp/x)", "k\u0000": "v\n"}
    status, made = call.post("/v2/sandboxes", {"templateID": SMALL, "metadata": hostile, "timeout": 600})
    assert status in (201, 400), made
    if status == 201:
        assert call.get(f"/sandboxes/{made['sandboxID']}")[1]["metadata"].items() >= hostile.items()
        call.delete(f"/sandboxes/{made['sandboxID']}")
    assert call.get("/v2/sandboxes?metadata=a%27%20OR%201%3D1%20--") == (200, [])


@pytest.mark.parametrize("runtime_name", ["../../bin/sh", "runsc --root=/", "sh", "runc\n", ""])
def test_an_unknown_runtime_is_refused(server, runtime_name):
    status, answer = Call(server).post(
        "/v2/sandboxes", {"templateID": SMALL, "metadata": {"shoal/runtime": runtime_name}}
    )
    assert status == 400, answer


# --- the daemon inside ---------------------------------------------------------------------


DAEMON = [
    ("POST", "/process.Process/List", {}),
    ("POST", "/process.Process/Start", {"process": {"cmd": "id"}}),
    ("POST", "/filesystem.Filesystem/ListDir", {"path": "/"}),
    ("POST", "/filesystem.Filesystem/Remove", {"path": "/home/user/mine.txt"}),
    ("GET", "/envs", None), ("GET", "/metrics", None),
    ("GET", "/files?path=mine.txt", None), ("POST", "/files?path=mine.txt", b"x"),
    ("POST", "/files/compose", {"source_paths": ["mine.txt"], "destination": "other.txt"}),
]


def test_the_daemon_requires_its_token(server, ours, bystander):
    good, foreign = token_of(server, ours), bystander._envd_access_token
    assert foreign and foreign != good
    for wrong in (None, "", "x", good[:-1], good + "0", good.upper(), foreign, server.key):
        for method, path, body in DAEMON:
            headers = envd(ours) | ({"X-Access-Token": wrong} if wrong is not None else {})
            status, answer = Call(server)(method, path, body, headers=headers)
            assert status == 401, (path, wrong, status, answer)
    assert ours.files.read("mine.txt") == "mine"
    assert Call(server, None).get("/envs", headers=envd(ours, **{"X-Access-Token": good}))[0] == 200


def sign(path: str, operation: str, user: str, token: str, expires: int | None = None) -> str:
    text = f"{path}:{operation}:{user}:{token}" + (f":{expires}" if expires is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_a_signed_url_is_for_one_path_user_direction_and_time(server, ours):
    token, later, call = token_of(server, ours), int(time.time()) + 60, Call(server, None)

    def get(path, signature, user="", expires=None, method="GET", body=None, headers=None):
        query = f"/files?path={quote(path)}&signature={quote(signature, safe='')}"
        query += f"&username={user}" if user else ""
        query += f"&signature_expiration={expires}" if expires is not None else ""
        return call(method, query, body, headers=envd(ours) if headers is None else headers)

    good = sign("mine.txt", "read", "", token, later)
    assert get("mine.txt", good, expires=later)[0] == 200
    # Also without a user name: the signature is valid for this sandbox only.
    assert get("mine.txt", good, expires=later, headers={})[0] == 200
    past = int(time.time()) - 5
    assert get("mine.txt", sign("mine.txt", "read", "", token, past), expires=past) == (
        401, {"code": 401, "message": "signature is already expired"}
    )
    upload = {"Content-Type": "application/octet-stream"} | envd(ours)
    refused = [
        get("mine.txt", good, expires=later + 1), get("mine.txt", good),
        get("mine.txt", good, expires=-1),
        get("/etc/shadow", good, expires=later), get("./mine.txt", good, expires=later),
        get("mine.txt", good, user="root", expires=later),
        get("mine.txt", good, expires=later, method="POST", body=b"x", headers=upload),
        get("mine.txt", sign("mine.txt", "write", "", token)),
        get("mine.txt", sign("mine.txt", "read", "", "x" + token)),
        get("mine.txt", "v1_"), get("mine.txt", good.removeprefix("v1_"), expires=later),
        get("mine.txt", good + "=", expires=later),
    ]
    assert [status for status, _ in refused] == [401] * len(refused), refused
    assert get("mine.txt", good, expires="9" * 40)[0] in (400, 401)
    # With two paths, the signature of the first must not serve the second.
    twice = f"/files?path=mine.txt&path=/etc/shadow&signature={quote(good, safe='')}&signature_expiration={later}"
    status, answer = call.get(twice, headers=envd(ours))
    assert "root:" not in str(answer), status


def test_a_process_inside_cannot_take_the_daemon_over(server, sandbox):
    """`/init` is for the host: a program inside cannot set a new token or new defaults."""
    token = Call(server).get(f"/sandboxes/{sandbox.sandbox_id}")[1]["envdAccessToken"]
    for body in ('{"accessToken":"mine"}', '{"defaultUser":"root"}', '{"envVars":{"LD_PRELOAD":"/tmp/x"}}', "{}"):
        for headers in ("", "-H 'X-Access-Token: mine'"):
            said = run(sandbox, f"curl -s -o /dev/null -w '%{{http_code}}' {headers} -H 'content-type: application/json' "
                       f"-d '{body}' http://127.0.0.1:49983/init", root=True)
            assert said.out in ("401", "403"), (body, said)
    assert Call(server, None).get("/envs", headers=envd(sandbox, **{"X-Access-Token": token}))[0] == 200
    assert run(sandbox, "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:49983/envs").out == "401"


# --- ports -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def private(server):
    made = create(server, "runc", timeout=900, network={"allow_public_traffic": False})
    made.commands.run("python3 -m http.server 8000", background=True)
    made.commands.run("for n in $(seq 600); do curl -s localhost:8000 >/dev/null && break; sleep .1; done")
    yield made
    made.kill()


def test_a_private_port_requires_the_traffic_token(server, private, ours):
    token, stranger = private.traffic_access_token, Call(server, None)
    assert token
    for host in (False, True):
        where = {"Host": f"8000-{private.sandbox_id}.x"} if host else envd(private, 8000)
        assert stranger.get("/", headers=where | {"e2b-traffic-access-token": token})[0] == 200
        for wrong in (None, "", "x", token[:-1], token + "0", token_of(server, private), server.key):
            more = {} if wrong is None else {"e2b-traffic-access-token": wrong}
            status, answer = stranger.get("/", headers=where | more)
            assert status == 403, (wrong, status, answer)
        assert stranger.get(f"/?e2b-traffic-access-token={token}", headers=where)[0] == 403
    # The token of the ports is not valid for the daemon.
    for token_header in ("X-Access-Token", "e2b-traffic-access-token"):
        assert stranger.get("/envs", headers=envd(private, **{token_header: token}))[0] == 401


def test_the_gateway_forwards_no_credentials(server, private):
    private.files.write("/tmp/show.py", (
        "import http.server\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        " def do_GET(s):\n"
        "  b=str(s.headers).encode(); s.send_response(200); s.send_header('Content-Length',str(len(b))); s.end_headers(); s.wfile.write(b)\n"
        "http.server.HTTPServer(('0.0.0.0',8001),H).serve_forever()\n"
    ))
    private.commands.run("python3 /tmp/show.py", background=True)
    private.commands.run("for n in $(seq 600); do curl -s localhost:8001 >/dev/null && break; sleep .1; done")
    token = private.traffic_access_token
    status, seen = Call(server, None).get("/", headers=envd(private, 8001, **{"e2b-traffic-access-token": token}))
    assert status == 200 and token not in seen and token_of(server, private) not in seen


def test_internal_routes_of_the_daemon_are_not_reached_from_outside(server, ours):
    token = token_of(server, ours)
    for route in ("init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "tunnel/22", "tunnel/49983"):
        first, _, rest = route.partition("/")
        rest = f"/{rest}" if rest else ""
        for disguise in (
            f"/{first}", f"//{first}", f"/./{first}", f"/x/../{first}", f"/%{ord(first[0]):x}{first[1:]}", f"/{first.upper()}",
            f"/{first};a=b", f"/{first}/", f"/{first}?x", f"/%2f{first}", f"/\\{first}", f"/health/../{first}",
            f"/%252f{first}", f"/{first}%00", f"/{first}%20", f"http://127.0.0.1/{first}", f"/.%2f{first}", f"/%2e/{first}",
        ):
            path = disguise + rest if "?" not in disguise else disguise
            for method in ("GET", "POST"):
                for where in (envd(ours), {"Host": f"49983-{ours.sandbox_id}.x"}, {"Host": f"49983-{ours.sandbox_id}-0.x"}):
                    headers = where | {"X-Access-Token": token, "Upgrade": "shoal-tunnel", "Connection": "upgrade"}
                    status, _ = Call(server, None)(method, path, {} if method == "POST" else None, headers=headers)
                    assert status in (400, 404, 405), (method, path, status)


def test_ended_sandboxes_and_closed_ports_do_not_answer(server):
    gone = create(server, "runc")
    token = gone._envd_access_token
    stranger = Call(server, None)
    assert stranger.get("/", headers=envd(gone, 9999))[0] == 502
    gone.kill()
    for headers in (envd(gone, **{"X-Access-Token": token}), {"Host": f"49983-{gone.sandbox_id}.x"}):
        for path in ("/health", "/envs", "/files?path=x"):
            status, answer = stranger.get(path, headers=headers)
            assert status == 502 and answer["message"] == "The sandbox was not found"
    for method, path, body in BY_ID:
        told = Call(server)(method, path.format(id=gone.sandbox_id), body)[0]
        # Its logs and metrics are kept for its own team only.
        assert told == (200 if path.endswith(("/logs", "/metrics")) and told == 200 else 404), path
        assert Call(server, "other")(method, path.format(id=gone.sandbox_id), body)[0] == 404
