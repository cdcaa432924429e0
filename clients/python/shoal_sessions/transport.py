"""Requests and answers: the basis of the generated client."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Generic, TypeVar

T = TypeVar("T")

#: How long a call may take, in seconds. The server's own limit is shorter.
CALL_SECONDS = 90.0

#: The longest silence of a stream of events, in seconds. The server writes a comment every 15 seconds.
SILENCE_SECONDS = 60.0


class ShoalError(Exception):
    """The server refused a call."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        #: The HTTP status.
        self.status = status
        #: The error and its remedy.
        self.message = message


@dataclass(frozen=True)
class Event(Generic[T]):
    """A server-sent event."""

    #: `ready`, `lagged`, or the name of the stream's events.
    name: str
    #: The contents; none with `ready` and `lagged`.
    data: T | None


class Stream(Generic[T]):
    """An answer that is read while it comes. Close it, or read it to its end."""

    def __init__(self, answer: IO[bytes], items: Callable[[IO[bytes]], Iterator[T]]) -> None:
        self._answer = answer
        self._items = items(answer)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._items)

    def close(self) -> None:
        """Stops reading. The server continues its work."""
        self._answer.close()

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def fill(template: str, **parts: str) -> str:
    """A path with its parts filled in."""
    quoted = {name: urllib.parse.quote(part, safe="") for name, part in parts.items()}
    return template.format(**quoted)


class Transport:
    """A server, and the key for it."""

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        """By default those of the environment: `E2B_API_URL` and `E2B_API_KEY`."""
        self._url = (url or os.environ["E2B_API_URL"]).rstrip("/")
        self._api_key = api_key or os.environ["E2B_API_KEY"]

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | bool | None] | None = None,
        headers: Mapping[str, str | None] | None = None,
        body: object = None,
        content: bytes | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> IO[bytes]:
        words = {name: _word(value) for name, value in (query or {}).items() if value is not None}
        url = self._url + path + ("?" + urllib.parse.urlencode(words) if words else "")
        data = content if content is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method)
        request.add_header("X-API-Key", self._api_key)
        kind = "application/json" if content is None else "application/octet-stream"
        request.add_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            if value is not None:
                request.add_header(name, value)
        try:
            answer: IO[bytes] = urllib.request.urlopen(request, timeout=seconds)
        except urllib.error.HTTPError as refused:
            with refused:
                raise ShoalError(refused.code, _message(refused.read())) from None
        return answer

    def _data(self, method: str, path: str, **asked: Any) -> Any:
        """The data of an answer in the envelope."""
        with self._open(method, path, **asked) as answer:
            return json.loads(answer.read())["data"]

    def _bytes(self, method: str, path: str, **asked: Any) -> bytes:
        with self._open(method, path, **asked) as answer:
            return answer.read()

    def _lines(self, method: str, path: str, **asked: Any) -> Stream[Any]:
        """An answer with a line of JSON for each item. It may be silent for any time."""
        return Stream(self._open(method, path, seconds=None, **asked), _items)

    def _events(self, method: str, path: str, **asked: Any) -> Stream[Event[Any]]:
        """Server-sent events."""
        return Stream(self._open(method, path, seconds=SILENCE_SECONDS, **asked), _sent)


def _word(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")


def _items(answer: IO[bytes]) -> Iterator[Any]:
    for line in answer:
        yield json.loads(line)


def _sent(answer: IO[bytes]) -> Iterator[Event[Any]]:
    fields: dict[str, str] = {}
    for line in answer:
        text = line.decode().rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            data = json.loads(fields.get("data", "null"))
            yield Event(fields["event"], data or None)
            fields = {}
        else:
            # A comment.
            fields = {}
