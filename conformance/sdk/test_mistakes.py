"""Invalid requests on the wire: each has its status and E2B's error body."""

import httpx
import pytest
from e2b import NotEnoughSpaceException, Sandbox

from ..installation import wait_until
from .conftest import RUNTIMES


@pytest.fixture(scope="module")
def api(shared):
    with httpx.Client(base_url=shared.url, headers={"X-API-Key": shared.key}, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def one(shared):
    made = Sandbox.create(timeout=600, **shared.options())
    yield made.sandbox_id
    made.kill()


def refused(answer: httpx.Response, status: int) -> str:
    """The message of an error; its body must contain the status."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["code"] == status and body["message"]
    return body["message"]


@pytest.mark.parametrize("path", ["/sandboxes", "/v2/sandboxes"])
@pytest.mark.parametrize(
    "body, status",
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"image": "a b"}', 400),
        (b'{"templateID": 7}', 400),
        (b'{"templateID": "base", "timeout": "soon"}', 400),
        (b'{"templateID": "base", "timeout": -5}', 400),
        (b'{"templateID": "base", "timeout": 0}', 400),
        (b'{"templateID": "base", "timeout": 999999999}', 400),
        (b'{"templateID": "base", "metadata": {"a": 1}}', 400),
        (b'{"templateID": "base", "envVars": "A=1"}', 400),
        (b'{"templateID": "base", "network": {"denyOut": ["1.2.3.4/99"]}}', 400),
        (b'{"templateID": "base", "network": {"allowOut": ["example.com"]}}', 400),
        (b'{"templateID": "base", "metadata": {"shoal/runtime": "vmware"}}', 400),
        (b'{"templateID": "none-of-that-name"}', 404),
        (b'{"templateID": "../../etc/passwd"}', None),
        (b'{"templateID": ""}', None),
    ],
)
def test_a_body_that_is_wrong_makes_no_sandbox(api, path, body, status):
    answer = api.post(path, content=body, headers={"Content-Type": "application/json"})
    if status is None:
        assert answer.status_code in (400, 404)
    refused(answer, status or answer.status_code)


def test_a_body_too_large_is_refused(api):
    answer = api.post("/v2/sandboxes", content=b'{"templateID": "' + b"x" * (17 << 20) + b'"}')
    assert answer.status_code in (400, 413)


@pytest.mark.parametrize("query", ["metadata=novalue", "metadata=a%3Db%3Dc", "limit=0", "limit=101", "limit=x",
                                   "nextToken=%21%21", "state=flying", "order=sideways", "startedAfter=yesterday"])
def test_a_filter_that_is_wrong_is_refused(api, query):
    refused(api.get(f"/v2/sandboxes?{query}"), 400)


@pytest.mark.parametrize("method, path", [
    ("GET", ""), ("DELETE", ""), ("POST", "/timeout"), ("POST", "/refreshes"), ("POST", "/connect"),
    ("POST", "/pause"), ("POST", "/resume"), ("POST", "/snapshots"), ("POST", "/fork"),
    ("PUT", "/network"), ("GET", "/metrics"), ("GET", "/logs"),
])
def test_an_unknown_sandbox_is_not_found(api, method, path):
    body = {"timeout": 10, "duration": 10} if method in ("POST", "PUT") else None
    refused(api.request(method, f"/sandboxes/inothingofthatname000{path}", json=body), 404)


def test_an_id_may_have_its_old_ending(api, one):
    assert api.get(f"/sandboxes/{one}-6532622b").json()["sandboxID"] == one


@pytest.mark.parametrize("key", [None, "", "e2b_", "e2b_zz", "Bearer x", "e2b_" + "1" * 40])
@pytest.mark.parametrize("path", ["/sandboxes", "/v2/sandboxes", "/templates", "/sandboxes/iabc/metrics"])
def test_without_a_key_nothing_is_told(shared, key, path):
    headers = {} if key is None else {"X-API-Key": key}
    refused(httpx.get(shared.url + path, headers=headers, timeout=60), 401)


def test_health_is_told_to_everybody(shared):
    assert httpx.get(f"{shared.url}/health", timeout=60).status_code == 204


def test_what_does_not_exist_is_not_found(api):
    refused(api.get("/nothing/of/that/name"), 404)


def test_templates_are_listed_and_found(api):
    for path in ("/templates", "/v2/templates"):
        base = next(t for t in api.get(path).json() if "base" in t["aliases"])
        assert base["templateID"] and base["buildID"] and base["cpuCount"] >= 1 and base["memoryMB"] >= 128
        assert base["buildStatus"] == "ready"
    assert api.get("/templates/aliases/base").json()["templateID"] == base["templateID"]
    refused(api.get("/templates/aliases/none-of-that-name"), 404)
    detail = api.get(f"/templates/{base['templateID']}").json()
    assert detail["templateID"] == base["templateID"] and len(detail["builds"]) >= 1
    refused(api.get("/templates/none0of0that0name000"), 404)


def test_times_are_prolonged_only_by_refreshes(api, one):
    before = api.get(f"/sandboxes/{one}").json()["endAt"]
    assert api.post(f"/sandboxes/{one}/refreshes", json={"duration": 20}).status_code == 204
    assert api.get(f"/sandboxes/{one}").json()["endAt"] == before
    refused(api.post(f"/sandboxes/{one}/refreshes", json={"duration": 999_999}), 400)
    refused(api.post(f"/sandboxes/{one}/timeout", json={"timeout": -1}), 400)


def test_traffic_is_measured(api, shared, one):
    """That of requests to the sandbox counts, too: they use its network interface."""
    sandbox = Sandbox.connect(one, **shared.options())

    def told():
        sandbox.files.write("/tmp/sent", "x" * 200_000)
        samples = api.get(f"/sandboxes/{one}/metrics").json()
        return samples and samples[-1]["shoal"]["receivedRate"] > 10_000 and samples[-1]

    sample = wait_until(told, 60, "a sample after some traffic")
    assert sample["shoal"]["sentRate"] > 0


def test_metrics_of_many_are_asked_at_once(api, one):
    def told():
        answer = api.get(f"/sandboxes/metrics?sandbox_ids={one},inothingofthatname000")
        assert answer.status_code == 200
        return answer.json()["sandboxes"]

    sandboxes = wait_until(told, 60, "a first sample, which is taken every few seconds")
    assert set(sandboxes) == {one}
    sample = sandboxes[one]
    assert 0 < sample["memUsed"] <= sample["memTotal"] and sample["cpuCount"] >= 1
    many = ",".join(f"i{n:020}" for n in range(101))
    refused(api.get(f"/sandboxes/metrics?sandbox_ids={many}"), 400)


def test_a_browser_may_ask(shared):
    answer = httpx.options(
        f"{shared.url}/v2/sandboxes",
        headers={"Origin": "https://x.example", "Access-Control-Request-Method": "POST",
                 "Access-Control-Request-Headers": "x-api-key"}, timeout=60,
    )
    assert answer.status_code in (200, 204)
    assert answer.headers["access-control-allow-origin"] in ("*", "https://x.example")
    assert "x-api-key" in answer.headers["access-control-allow-headers"].lower()


@pytest.fixture(scope="module")
def small(another):
    """A server whose sandboxes have hardly any disk."""
    server = another("small")
    server.add_template("small", diskSizeMB=64)
    return server


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_upload_to_a_full_disk_is_told(small, runtime):
    made = Sandbox.create("small", metadata={"shoal/runtime": runtime}, **small.options())

    def endless():
        for _ in range(10 * 1024):
            yield bytes(1 << 20)

    with pytest.raises(NotEnoughSpaceException):
        made.files.write("huge", endless(), request_timeout=120)
    made.files.remove("huge")
    made.files.write("tiny", "fits again")
    assert made.files.read("tiny") == "fits again"
    made.kill()


@pytest.mark.parametrize("memory", [True, False])
def test_what_was_written_before_a_pause_counts_after_it(small, memory):
    made = Sandbox.create("small", metadata={"shoal/runtime": "runsc"}, **small.options())
    made.files.write("before", bytes(40 << 20))
    made.pause(keep_memory=memory)
    made = Sandbox.connect(made.sandbox_id, **small.options())
    with pytest.raises(NotEnoughSpaceException):
        made.files.write("after", bytes(40 << 20), request_timeout=120)
    assert made.files.get_info("before").size == 40 << 20
    made.kill()


@pytest.mark.parametrize(
    "path",
    ["/sandboxes/{}/metrics?start=soon", "/sandboxes/{}/metrics?start=20&end=10", "/sandboxes/{}/logs?limit=many",
     "/v2/sandboxes/{}/logs?cursor=x", "/v2/templates?limit=x", "/v2/sandboxes?limit=x", "/v2/sandboxes?nextToken=x"],
)
def test_a_query_that_makes_no_sense_is_refused_in_the_same_form(api, one, path):
    refused(api.get(path.format(one)), 400)


def test_nothing_follows_a_body_that_was_not_read(api):
    """The connection is closed, and the client knows before it sends the next call on it."""
    body = {"templateID": "base", "metadata": {"a": "x" * (17 << 20)}}
    for _ in range(5):
        answer = api.post("/v2/sandboxes", json=body)
        refused(answer, 413)
        assert answer.headers["connection"] == "close"
        assert api.get("/v2/sandboxes").status_code == 200


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n\t", b"null", b"[]"])
def test_a_body_of_blanks_clears_no_rules(api, shared, body):
    rules = {"network": {"allow_out": ["1.1.1.1"], "deny_out": ["0.0.0.0/0"]}}
    sandbox = Sandbox.create(timeout=60, **rules, **shared.options())
    path = f"/sandboxes/{sandbox.sandbox_id}"
    before = api.get(path).json()["network"]
    refused(api.put(f"{path}/network", content=body), 400)
    assert api.get(path).json()["network"] == before
    sandbox.kill()


def test_a_timeout_that_is_too_long_is_refused_by_every_call(api, one):
    week = 7 * 24 * 3600
    for call in ("timeout", "connect", "fork"):
        message = refused(api.post(f"/sandboxes/{one}/{call}", json={"timeout": week}), 400)
        assert message == "Timeout cannot be greater than 24 hours", call
    refused(api.post(f"/v2/sandboxes/{one}/connect", json={"timeout": week}), 400)
