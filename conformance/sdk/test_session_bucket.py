"""The contents of session files in a bucket."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ..installation import Installation, wait_until
from ..s3 import Bucket
from .test_native import NATIVE, Native
from .test_sessions import machine, run

#: How long anything may take on a busy machine, in seconds.
PATIENCE = 120


@pytest.fixture(scope="module")
def bucket():
    """A bucket, which the environment of servers names."""
    made = Bucket("files")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment().items():
            patch.setenv(name, value)
        yield made
    made.close()


@pytest.fixture(scope="module")
def server(bucket, another):
    return another("session-bucket", ["sessions.contents=s3://files/of/sessions"])


@pytest.fixture
def own(server):
    native = Native(server)
    made = native("POST", "/sessions", 201, json={})["id"]
    yield made
    native("DELETE", f"/sessions/{made}")


def name(contents: bytes) -> str:
    digest = hashlib.sha256(contents).hexdigest()
    return f"of/sessions/{digest[:2]}/{digest}"


def content(server, session: str, path: str, method: str = "GET", **more):
    native = Native(server)
    return native.http.request(method, f"{NATIVE}/sessions/{session}/files/content", params={"path": path}, **more)


def test_files_are_in_the_bucket_while_a_session_has_them(server, bucket):
    native = Native(server)
    session = native("POST", "/sessions", 201, json={})["id"]
    assert content(server, session, "outside", "PUT", content=b"from outside").status_code == 200
    assert run(native, session, "cat outside; echo from inside > inside")[0] == "from outside"
    assert content(server, session, "inside").text == "from inside\n"
    assert bucket.names() >= {"of/sessions/owner", name(b"from outside"), name(b"from inside\n")}
    assert not list((server.data / "sessions").glob("*/*"))
    native("DELETE", f"/sessions/{session}")
    wait_until(lambda: bucket.names() == {"of/sessions/owner"}, PATIENCE, "the end of the contents")


def test_a_bucket_that_does_not_answer_is_told_and_loses_nothing(server, bucket, own):
    native = Native(server)
    assert content(server, own, "kept", "PUT", content=b"kept").status_code == 200
    run(native, own, "true")
    sandbox = machine(native, own)
    bucket.silent = True
    try:
        for answer in (content(server, own, "kept"), content(server, own, "new", "PUT", content=b"new")):
            assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0, answer.text
            assert "the storage does not answer" in answer.text
        # The machine continues to run, and does not end with unsaved files.
        assert run(native, own, "cat kept; echo late > late")[0] == "kept"
        question = native("POST", f"/sessions/{own}/reset", 202, json={})
        native("POST", f"/sessions/{own}/reset", 503, json={"token": question["token"]})
        assert machine(native, own) == sandbox
        # Nor does it with the server, which starts without its bucket.
        server.stop()
        server.start()
        assert "cannot be reached" in server.log_tail(20_000)
        assert content(server, own, "kept").status_code == 503
    finally:
        bucket.silent = False
    native = Native(server)
    question = native("POST", f"/sessions/{own}/reset", 202, json={})
    native("POST", f"/sessions/{own}/reset", json={"token": question["token"]})
    assert machine(native, own) is None
    assert content(server, own, "late").text == "late\n"
    assert run(native, own, "cat kept late")[0] == "keptlate\n"


def refused(data: Path, *settings: str) -> str:
    """The output of a server that does not start."""
    installation = Installation(data, settings=["disk.size=1GiB", "network.warm_slots=2", *settings])
    installation.launch()
    try:
        assert installation.process.wait(PATIENCE) not in (0, None)
    finally:
        installation.process.kill()
    assert installation.all_gone() == []
    return installation.log_tail()


def test_nobody_else_uses_the_bucket_and_nothing_is_left_behind_in_it(server, bucket, own, tmp_path):
    assert content(server, own, "kept", "PUT", content=b"kept").status_code == 200
    before = bucket.names()
    said = refused(tmp_path / "data", "sessions.contents=s3://files/of/sessions")
    assert "another installation" in said and "sessions.contents" in said, said
    assert bucket.names() == before
    missing = refused(tmp_path / "data2", "sessions.contents=s3://no-such-bucket")
    assert "sessions.contents cannot be used" in missing, missing
    server.stop()
    try:
        said = refused(server.data)
        assert "are in s3://files/of/sessions" in said, said
    finally:
        server.start()
    assert content(server, own, "kept").text == "kept"
