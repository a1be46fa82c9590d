"""The heads of a request and of a response after the readers sorted and validated them. Plain
values.

A head is copied for each message, so the classes are compiled and have their own `copy`. Remembered
heads (`wire/http1/plans.py`) are shared: code that changes a field must copy the head first.
"""

from __future__ import annotations

from typing import Any, Final

from router.wire.http1.routing_headers import RoutingHeaders

_NOTHING_SAID: Final = RoutingHeaders()


class RequestHead:
    """A request's head, sorted. `lines` are the fields that pass on unchanged."""

    __slots__ = (
        "api_key",
        "authorization",
        "chunked",
        "content_encoding",
        "content_length",
        "content_type",
        "expect_continue",
        "forwarded_for",
        "forwarded_other",
        "has_body",
        "host",
        "http_1_0",
        "joined",
        "keep_alive",
        "lines",
        "method",
        "owner",
        "passes",
        "path_class",
        "request_id",
        "route",
        "routing",
        "target",
        "via",
        "watch",
    )

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.http_1_0 = False
        self.keep_alive = True
        self.lines: list[bytes] = []
        self.joined = b""  # all `lines` as one text, each with a CRLF before it
        self.content_length: int | None = None
        # the request's host; the host of an absolute target overrides the Host field
        self.host: bytes | None = None
        self.chunked = False
        self.has_body = False
        self.expect_continue = False
        self.via: list[bytes] | None = None
        self.forwarded_for: bytes | None = None
        self.forwarded_other: list[bytes] | None = None
        self.request_id: bytes | None = None
        self.authorization: bytes | None = None  # the whole Authorization header line
        self.api_key: bytes | None = None  # x-api-key, the whole line: Anthropic's SDKs send it
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.routing = _NOTHING_SAID
        self.owner: bytes | None = None  # x-router-owner: the owner of a batch server's request
        self.path_class = -1  # the priority class named in the request's path; -1 if none
        self.route: Any = None  # the route that `check_head` stored
        self.passes = False  # set by `check_head` if a `Tunnel` is to carry the body
        # set by `check_head`: an object whose `feed` gets each piece of the body
        self.watch: Any = None

    def copy(self) -> RequestHead:
        """A head with the same values; `lines` is the same list."""
        made = RequestHead()
        made.method = self.method
        made.target = self.target
        made.http_1_0 = self.http_1_0
        made.keep_alive = self.keep_alive
        made.lines = self.lines
        made.joined = self.joined
        made.content_length = self.content_length
        made.host = self.host
        made.chunked = self.chunked
        made.has_body = self.has_body
        made.expect_continue = self.expect_continue
        made.via = self.via
        made.forwarded_for = self.forwarded_for
        made.forwarded_other = self.forwarded_other
        made.request_id = self.request_id
        made.authorization = self.authorization
        made.api_key = self.api_key
        made.content_type = self.content_type
        made.content_encoding = self.content_encoding
        made.routing = self.routing
        made.owner = self.owner
        made.path_class = self.path_class
        made.route = self.route
        made.passes = self.passes
        made.watch = self.watch
        return made


class ResponseHead:
    """A response's head, sorted. `lines` are the fields that pass on unchanged."""

    __slots__ = (
        "chunked",
        "content_length",
        "has_date",
        "is_json",
        "is_sse",
        "joined",
        "keep_alive",
        "lines",
        "load",
        "retry_after",
        "status",
        "status_line",
    )

    def __init__(self) -> None:
        self.status = 0
        self.status_line = b""  # the status line without the HTTP version: b"200 OK"
        self.lines: list[bytes] = []
        self.joined = b""  # all `lines` as one text, each with a CRLF before it
        self.content_length: int | None = None
        self.chunked = False
        self.is_sse = False
        self.is_json = False  # the body is one JSON value, not lines of JSON
        self.has_date = False
        self.load: bytes | None = (
            None  # endpoint-load-metrics: the load that the engine reports in this response
        )
        self.retry_after: bytes | None = None  # Retry-After, the unparsed value
        self.keep_alive = True

    def copy(self) -> ResponseHead:
        """A head with the same values; `lines` is the same list."""
        made = ResponseHead()
        made.status = self.status
        made.status_line = self.status_line
        made.lines = self.lines
        made.joined = self.joined
        made.content_length = self.content_length
        made.chunked = self.chunked
        made.is_sse = self.is_sse
        made.is_json = self.is_json
        made.has_date = self.has_date
        made.load = self.load
        made.retry_after = self.retry_after
        made.keep_alive = self.keep_alive
        return made
