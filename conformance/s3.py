"""A server of S3 on loopback, with the requests that Shoal sends: objects, whole and in parts, conditional writes, lists, also of
what is directly below a prefix, and batch deletions.

It checks no credentials. It can stop answering.

    python3 conformance/s3.py BUCKET    # prints its URL, and serves until it is killed
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

#: Headers that object stores send with every object; nothing depends on them.
MODIFIED = "2026-01-02T03:04:05.000Z"


class Bucket:
    """The one bucket of a server, and its objects."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.objects: dict[str, bytes] = {}
        #: Uploads in parts that are not complete: the parts by number.
        self.uploads: dict[str, dict[int, bytes]] = {}
        #: Whether requests get no answer.
        self.silent = False
        #: How many did not.
        self.unanswered = 0
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"bucket": self}))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
        }

    def names(self) -> set[str]:
        with self.lock:
            return set(self.objects)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    """A connection."""

    protocol_version = "HTTP/1.1"
    bucket: Bucket

    def log_message(self, *_words) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def xml(self, kind: str, body: str) -> None:
        text = f'<?xml version="1.0" encoding="UTF-8"?><{kind}>{body}</{kind}>'
        self.answer(200, text.encode(), Content_Type="application/xml")

    def asked(self) -> tuple[str, dict[str, list[str]], bytes] | None:
        """The object's name, the query and the body; none when there is no answer."""
        split = urlsplit(self.path)
        bucket, _, name = unquote(split.path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.bucket.silent:
            self.bucket.unanswered += 1
            self.close_connection = True
            return None
        if bucket != self.bucket.name:
            self.answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
            return None
        return name, parse_qs(split.query, keep_blank_values=True), body

    def do_PUT(self) -> None:
        if (asked := self.asked()) is None:
            return
        name, query, body = asked
        if "uploadId" in query:
            (upload,), (number,) = query["uploadId"], query["partNumber"]
            with self.bucket.lock:
                self.bucket.uploads[upload][int(number)] = body
            self.answer(200, ETag=etag(body))
            return
        with self.bucket.lock:
            is_new = name not in self.bucket.objects
            written = is_new or self.headers.get("If-None-Match") != "*"
            if written:
                self.bucket.objects[name] = body
        self.answer(200 if written else 412, ETag=etag(body))

    def do_GET(self) -> None:
        if (asked := self.asked()) is None:
            return
        name, query, _ = asked
        with self.bucket.lock:
            objects = dict(self.bucket.objects)
        if not name:
            self.list(query, objects)
        elif (body := objects.get(name)) is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self.answer(200, body, ETag=etag(body), Last_Modified="Fri, 02 Jan 2026 03:04:05 GMT")

    def list(self, query: dict[str, list[str]], objects: dict[str, bytes]) -> None:
        (prefix,), (delimiter,) = query.get("prefix", [""]), query.get("delimiter", [""])
        listed, below = [], set()
        for key, body in sorted(objects.items()):
            if not key.startswith(prefix):
                continue
            directory, found, _ = key[len(prefix):].partition(delimiter) if delimiter else ("", "", "")
            if found:
                below.add(prefix + directory + delimiter)
                continue
            listed.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{MODIFIED}</LastModified>"
                f"<ETag>{escape(etag(body))}</ETag><Size>{len(body)}</Size></Contents>"
            )
        prefixes = [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(below)]
        self.xml("ListBucketResult", "".join(["<IsTruncated>false</IsTruncated>", *listed, *prefixes]))

    def do_POST(self) -> None:
        if (asked := self.asked()) is None:
            return
        name, query, body = asked
        if "uploads" in query:
            with self.bucket.lock:
                upload = f"upload-{len(self.bucket.uploads)}"
                self.bucket.uploads[upload] = {}
            self.xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
            return
        if "uploadId" in query:
            (upload,) = query["uploadId"]
            with self.bucket.lock:
                parts = self.bucket.uploads[upload]
                whole = self.bucket.objects[name] = b"".join(parts[number] for number in sorted(parts))
                parts.clear()
            self.xml("CompleteMultipartUploadResult", f"<ETag>{escape(etag(whole))}</ETag>")
            return
        assert "delete" in query, self.path
        names = [unescape(name) for name in re.findall("<Key>(.*?)</Key>", body.decode())]
        with self.bucket.lock:
            for name in names:
                self.bucket.objects.pop(name, None)
        self.xml("DeleteResult", "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names))


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


if __name__ == "__main__":
    print(Bucket(sys.argv[1]).url, flush=True)
    threading.Event().wait()
