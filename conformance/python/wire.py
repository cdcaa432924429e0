"""Raw calls, for what the SDK has no method for or would hide."""

from __future__ import annotations

import httpx

from ..installation import Installation


class Wire:
    """Calls the API as one team; a path that begins with a slash, an answer as it came."""

    def __init__(self, server: Installation, prefix: str = "", key: str | None = None):
        headers = {"X-API-Key": key or server.key}
        self.http = httpx.Client(base_url=server.url + prefix, headers=headers, timeout=60)

    def __call__(self, method: str, path: str, **more) -> httpx.Response:
        return self.http.request(method, path, **more)

    def get(self, path: str, **more) -> httpx.Response:
        return self("GET", path, **more)

    def post(self, path: str, **more) -> httpx.Response:
        return self("POST", path, **more)

    def put(self, path: str, **more) -> httpx.Response:
        return self("PUT", path, **more)

    def delete(self, path: str, **more) -> httpx.Response:
        return self("DELETE", path, **more)

    def ids(self) -> list[str]:
        """Every sandbox of the team that runs."""
        return [one["sandboxID"] for one in self.get("/v2/sandboxes", params={"limit": 100}).json()]


def fails(answer: httpx.Response, status: int, text: str = "") -> dict:
    """The body of an error, after its form was checked: `code` is the status, and there is a message."""
    assert answer.status_code == status, (answer.status_code, answer.text)
    body = answer.json()
    assert body["code"] == status, body
    assert text.lower() in body["message"].lower(), body
    return body
