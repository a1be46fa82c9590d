"""The heads of requests and responses, after they were validated and their fields were sorted.

A head is the start line and the header fields of a message. A head may be copied for each message,
so `copy` must be fast. Remembered heads (`wire/http1/plans.py`) are shared by many messages: code
that changes an attribute must copy the head first.
"""

from __future__ import annotations

from typing import Any, Final

from router.wire.http1.body_decoder import BodyDecoder
from router.wire.http1.headers import without
from router.wire.http1.routing_headers import RoutingHeaders

_NOTHING_SAID: Final = RoutingHeaders()


class Proxies:
    """What the proxies before the router have added to a head."""

    __slots__ = ("forwarded_for", "forwarded_other", "via")

    def __init__(self) -> None:
        self.via: list[bytes] = []
        self.forwarded_for: bytes | None = None
        self.forwarded_other: list[bytes] | None = None


class BodyReading:
    """How the body of a request is read. Requests with neither a decoder nor a `watch` share it."""

    __slots__ = ("decoder", "is_json", "watch")

    def __init__(
        self, *, is_json: bool, decoder: BodyDecoder | None = None, watch: Any = None
    ) -> None:
        self.is_json = is_json  # the body must be JSON
        self.decoder = decoder
        self.watch = watch  # an object whose `feed` is called with each piece of the body


PLAIN: Final = BodyReading(is_json=False)
JSON_BODY: Final = BodyReading(is_json=True)
NO_PROXIES: Final = Proxies()


class RequestHead:
    """The head of a request. `lines`: the header lines that are forwarded unchanged."""

    __slots__ = (
        "accept_encoding",
        "api_key",
        "authorization",
        "chunked",
        "content_encoding",
        "content_length",
        "content_type",
        "expect_continue",
        "has_body",
        "host",
        "http_1_0",
        "joined",
        "keep_alive",
        "lines",
        "method",
        "origin",
        "owner",
        "passes",
        "path_class",
        "proxies",
        "reading",
        "request_id",
        "route",
        "routing",
        "target",
    )

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.http_1_0 = False
        self.keep_alive = True
        self.lines: list[bytes] = []
        self.joined = b""  # all `lines` as one text, each with a CRLF before it
        self.content_length: int | None = None
        # The host that the request addresses: the host of an absolute target, else the Host field.
        self.host: bytes | None = None
        self.chunked = False
        self.has_body = False
        self.expect_continue = False
        self.proxies = NO_PROXIES
        self.request_id: bytes | None = None
        self.authorization: bytes | None = None  # the whole Authorization header line
        self.accept_encoding = b""  # the whole lines of Accept-Encoding, each after a CRLF
        # The whole header line of a field with only a key, such as x-api-key.
        self.api_key: bytes | None = None
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.origin: bytes | None = None  # of the web page that sends the request
        self.routing = _NOTHING_SAID
        # x-router-owner: the owner ID of a batch, in a request that the batch server sends.
        self.owner: bytes | None = None
        self.path_class = -1  # the index of the priority class in the request's path; -1: none
        self.route: Any = None  # the `Route` of the request's path, set by `check_head`
        self.passes = False  # set by `check_head` if a `Tunnel` is to carry the body
        # Set by `check_head`, and by the reader for text that is not UTF-8.
        self.reading = PLAIN

    def drop(self, name: bytes) -> None:
        """Removes the lines of a field from those that are forwarded. `name`: in lower case."""
        self.lines = without(self.lines, {name})
        self.joined = b"".join([b"\r\n" + line for line in self.lines])

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
        made.proxies = self.proxies
        made.request_id = self.request_id
        made.authorization = self.authorization
        made.accept_encoding = self.accept_encoding
        made.api_key = self.api_key
        made.content_type = self.content_type
        made.content_encoding = self.content_encoding
        made.origin = self.origin
        made.routing = self.routing
        made.owner = self.owner
        made.path_class = self.path_class
        made.route = self.route
        made.passes = self.passes
        made.reading = self.reading
        return made


class ResponseHead:
    """The head of a response. `lines`: the header lines that are forwarded unchanged."""

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
        self.is_json = False  # the content type says that the body is one JSON value
        self.has_date = False
        self.load: bytes | None = (
            None  # endpoint-load-metrics: the load that the engine reports in this response
        )
        self.retry_after: bytes | None = None  # the unparsed value of the Retry-After field
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
