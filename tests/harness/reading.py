"""Parses a stream of bytes with a strict, independent parser (h11).

The parser must never be lenient: bytes that h11 refuses are reported as an error, bytes that end
too early as an incomplete message.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import h11

_BIG = 256 * 1024 * 1024  # h11's own limit on a head: the router's is under test, not h11's

Headers = list[tuple[str, str]]


@dataclass
class Message:
    """A request or a response as far as it was read."""

    headers: Headers = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    trailers: Headers = field(default_factory=list)
    version: str = ""
    complete: bool = False

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    def header(self, name: str) -> str | None:
        """The field's only value, or None; a repeated field is a test failure."""
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(bytes(self.body))


@dataclass
class Request(Message):
    method: str = ""
    target: str = ""


@dataclass
class Response(Message):
    status: int = 0
    informational: list[int] = field(default_factory=list)

    def events(self) -> list[str]:
        """The `data:` of each server-sent event, in order."""
        return [
            line[5:].strip()
            for line in bytes(self.body).decode("utf-8", "replace").split("\n")
            if line.startswith("data:")
        ]

    def error(self) -> dict[str, Any]:
        """The error object of an OpenAI-shaped error body; anything else fails the test."""
        assert (self.header("content-type") or "").startswith("application/json"), self
        return error_of(self.json())


def error_of(value: Any) -> dict[str, Any]:
    """The error object inside `value`, its shape checked."""
    assert isinstance(value, dict), value
    assert set(value) == {"error"}, value
    error = value["error"]
    # In a stream that has begun, the error also has the status, because the head was already sent.
    assert set(error) - {"status"} == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str), error
    assert error["message"], error
    return dict(error)


def _headers(event: Any) -> Headers:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers]


class RequestReader:
    """Reads one connection's requests, piece by piece.

    `skip_empty_line` allows one empty line before each request (RFC 9112 section 2.2). A client may
    send it, but a router must not, so a replica's reader does not allow it.
    """

    def __init__(self, *, skip_empty_line: bool = False) -> None:
        self._parser = _server()
        self._skip = skip_empty_line
        self._fresh = True
        self.current: Request | None = None
        self.done: list[Request] = []
        self.error: str | None = None

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises nothing: a refusal is stored in `error`."""
        try:
            self._receive(data)
            self._advance()
        except h11.RemoteProtocolError as err:
            self.error = str(err)

    def _receive(self, data: bytes) -> None:
        if self._fresh and self._skip:
            data = data.removeprefix(b"\r\n")
        if data:
            self._fresh = False
            self._parser.receive_data(data)

    def _advance(self) -> None:
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                return
            if event is h11.PAUSED:
                rest, closed = self._parser.trailing_data
                if self.current is not None:  # an upgrade was requested: no end was reported
                    return
                self._parser, self._fresh = _server(), True
                self._receive(rest)
                if rest and not closed:
                    continue
                return
            if isinstance(event, h11.Request):
                self.current = Request(
                    headers=_headers(event),
                    version=event.http_version.decode(),
                    method=event.method.decode(),
                    target=event.target.decode("latin-1"),
                )
            elif isinstance(event, h11.Data):
                assert self.current is not None
                self.current.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert self.current is not None
                self.current.trailers = _headers(event)
                self.current.complete = True
                self.done.append(self.current)
                self.current = None


def _server() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=_BIG)


def read_requests(data: bytes) -> RequestReader:
    """Read everything that a client sent on one connection."""
    reader = RequestReader(skip_empty_line=True)
    reader.feed(data)
    return reader


class ResponseReader:
    """Reads one connection's responses, each to a request of the given method."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._closed = False
        self._parser: h11.Connection | None = None
        self._response = Response()
        self._taken = 0

    def start(self, method: str) -> None:
        """Expect a response to a request of this method. Call it only between responses."""
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=_BIG)
        self._parser.send(h11.Request(method=method, target="/", headers=[("Host", "reader")]))
        self._parser.send(h11.EndOfMessage())
        self._response = Response()
        rest = bytes(self._pending)
        self._pending.clear()
        if rest:
            self._parser.receive_data(rest)
        if self._closed:
            self._parser.receive_data(b"")

    def feed(self, data: bytes) -> None:
        """Received bytes; b"" is the end of the connection."""
        if self._parser is None:
            self._pending += data
            self._closed = self._closed or not data
        else:
            self._parser.receive_data(data)

    def advance(self) -> Response | None:
        """The response when it has ended, complete or not (`complete`); None before.

        Raises h11.RemoteProtocolError for bytes that are not a response.
        """
        assert self._parser is not None
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError:
                if self._parser.trailing_data[1] and self._response.status:
                    return self._finish()  # the end came early: visibly truncated
                raise
            if event is h11.NEED_DATA:
                return None
            if isinstance(event, h11.InformationalResponse):
                self._response.informational.append(event.status_code)
            elif isinstance(event, h11.Response):
                self._response.status = event.status_code
                self._response.headers = _headers(event)
                self._response.version = event.http_version.decode()
            elif isinstance(event, h11.Data):
                self._response.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._response.trailers = _headers(event)
                self._response.complete = True
                return self._finish()
            else:
                return self._finish()

    @property
    def so_far(self) -> Response:
        return self._response

    def _finish(self) -> Response:
        assert self._parser is not None
        rest, closed = self._parser.trailing_data
        self._parser = None
        self._pending += rest
        self._closed = self._closed or closed
        return self._response

    @property
    def surplus(self) -> bytes:
        """Bytes that came after the last complete response."""
        return bytes(self._pending)


def read_response(data: bytes, method: str = "GET") -> Response | None:
    """The first final response in bytes after which the connection ended; None if h11 refuses."""
    reader = ResponseReader()
    reader.start(method)
    try:
        reader.feed(data)
        found = reader.advance()
        if found is None:
            reader.feed(b"")
            found = reader.advance()
    except h11.RemoteProtocolError:
        return None
    return found


def read_responses(data: bytes, methods: Sequence[str]) -> list[Response]:
    """Every response in a connection's bytes, the i-th one to a request of `methods[i]`.

    More responses than methods are read as answers to GET. Raises h11.RemoteProtocolError.
    """
    reader = ResponseReader()
    reader.feed(data)
    reader.feed(b"")
    found: list[Response] = []
    while True:
        if not reader.surplus:
            return found
        reader.start(methods[len(found)] if len(found) < len(methods) else "GET")
        answer = reader.advance()
        assert answer is not None
        found.append(answer)
        if not answer.complete:
            return found
