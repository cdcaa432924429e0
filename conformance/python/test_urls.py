"""URLs that carry their own permission, fetched by clients that know nothing else."""

from __future__ import annotations

import gzip
import urllib.parse

import httpx
import pytest


@pytest.fixture
def path(sandbox, directory):
    sandbox.files.write(f"{directory}/a b.txt", "hello")
    return f"{directory}/a b.txt"


def put(url: str, text: str, **more) -> httpx.Response:
    return httpx.post(url, files={"file": ("name.txt", text)}, **more)


async def test_download(box, path):
    answer = httpx.get(box.download_url(path))
    assert (answer.status_code, answer.text) == (200, "hello")
    assert "a b.txt" in urllib.parse.unquote(answer.headers["content-disposition"])


async def test_upload(box, directory):
    answer = put(box.upload_url(f"{directory}/up.txt"), "up")
    assert answer.status_code == 200 and answer.json()[0]["path"] == f"{directory}/up.txt"
    assert (httpx.get(box.download_url(f"{directory}/up.txt"))).text == "up"


async def test_upload_of_bytes(box, directory):
    url = box.upload_url(f"{directory}/raw")
    answer = httpx.post(url, content=b"\0raw", headers={"Content-Type": "application/octet-stream"})
    assert answer.status_code == 200
    assert httpx.get(box.download_url(f"{directory}/raw")).content == b"\0raw"


async def test_another_user(box):
    assert put(box.upload_url("as-root.txt", user="root"), "x").status_code == 200
    assert httpx.get(box.download_url("as-root.txt", user="root")).text == "x"


async def test_in_time(box, path, directory):
    assert httpx.get(box.download_url(path, use_signature_expiration=60)).text == "hello"
    url = box.upload_url(f"{directory}/t", use_signature_expiration=60)
    assert put(url, "x").status_code == 200


async def test_too_late(box, path, directory):
    answer = httpx.get(box.download_url(path, use_signature_expiration=-60))
    assert answer.status_code == 401
    assert answer.json() == {"code": 401, "message": "signature is already expired"}
    late = put(box.upload_url(f"{directory}/t", use_signature_expiration=-60), "x")
    assert late.json() == {"code": 401, "message": "signature is already expired"}


def changed(url: str, **query) -> str:
    parts = urllib.parse.urlsplit(url)
    asked = dict(urllib.parse.parse_qsl(parts.query)) | query
    return parts._replace(query=urllib.parse.urlencode({k: v for k, v in asked.items() if v is not None})).geturl()


@pytest.mark.parametrize(
    "query",
    [{"signature": "v1_wrong"}, {"path": "/etc/passwd"}, {"username": "root"}, {"signature_expiration": "9999999999"}],
)
async def test_a_url_that_was_changed(box, path, query):
    """A signature is for one path, user and time. Such a URL names no sandbox, so none is found."""
    answer = httpx.get(changed(box.download_url(path), **query))
    assert answer.status_code in (401, 404, 502), answer.text
    assert answer.json()["code"] == answer.status_code and "hello" not in answer.text


@pytest.mark.parametrize(
    "query, text",
    [
        ({"signature": "v1_wrong"}, "invalid signature"),
        ({"signature": None}, "missing signature query parameter"),
        ({"path": "/etc/passwd"}, "invalid signature"),
    ],
)
def test_a_url_that_was_changed_and_names_its_sandbox(sandbox, path, query, text):
    named = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    answer = httpx.get(changed(sandbox.download_url(path), **query), headers=named)
    assert answer.json() == {"code": 401, "message": text}


async def test_a_download_url_is_not_for_uploads(box, path):
    assert put(box.download_url(path), "changed").status_code in (401, 404, 502)
    assert httpx.get(box.download_url(path)).text == "hello"


def test_a_part_of_a_file(sandbox, path):
    answer = httpx.get(sandbox.download_url(path), headers={"Range": "bytes=1-3"})
    assert (answer.status_code, answer.text) == (206, "ell")
    assert answer.headers["content-range"] == "bytes 1-3/5"


def test_gzip_when_asked_for(sandbox, directory):
    sandbox.files.write(f"{directory}/z", "z" * 100_000)
    with httpx.stream("GET", sandbox.download_url(f"{directory}/z"), headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip" and len(raw) < 10_000
    assert gzip.decompress(raw) == b"z" * 100_000


def test_a_file_that_is_not_there(sandbox, directory):
    answer = httpx.get(sandbox.download_url(f"{directory}/none"))
    assert answer.status_code == 404 and answer.json()["code"] == 404
