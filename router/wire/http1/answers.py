"""Builds the responses that the router itself sends, with errors in the format of the client's API.

If the error format of an API has a member `code`, its value is a `Reason`, so that scripts can
distinguish the reasons.
"""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from router.core.clock import time
from router.core.errors import Reason, RouterError
from router.wire.http1 import error_shapes as shapes

STATUS_LINE: Final[dict[int, bytes]] = {
    s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus
}
STATUS_LINE[499] = b"HTTP/1.1 499 Client Closed Request\r\n"

_PATIENCE_S: Final = 60  # The longest Retry-After that SDKs follow, in seconds.
ALLOW: Final = b"allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"


# The response to an HTTP/2 client (RFC 9113): first an empty SETTINGS frame, as HTTP/2 requires,
# then a GOAWAY frame with the error HTTP_1_1_REQUIRED.
_GOAWAY: Final = bytes.fromhex("000000 04 00 00000000 000008 07 00 00000000 00000000 0000000d")


class _Date:
    """The cache of the Date field's value for the present second."""

    def __init__(self) -> None:
        self.second = -1
        self.text = b""


_date: Final = _Date()


def date() -> bytes:
    """Return the present time in the format of a Date field. It is formatted once per second."""
    second = int(time())
    if second != _date.second:
        _date.second = second
        _date.text = formatdate(second, usegmt=True).encode("ascii")
    return _date.text


def response(
    status: int,
    body: bytes,
    *,
    content_type: bytes = b"application/json",
    keep_alive: bool,
    request_id: str = "",
    retry_after_s: int | None = None,
    extra: bytes = b"",
    head_only: bool = False,
    options: bytes = b"close",
) -> bytes:
    """Return a complete response.

    `extra`: more header lines, each with its CRLF. `options`: the value of the Connection field
    without `keep_alive`.
    """
    parts = [
        STATUS_LINE[status],
        b"date: ",
        date(),
        b"\r\ncontent-type: ",
        content_type,
        b"\r\ncontent-length: %d\r\n" % len(body),
        extra,
    ]
    if request_id:
        parts.append(b"x-request-id: %b\r\n" % request_id.encode("ascii"))
    if retry_after_s is not None:
        parts.append(b"retry-after: %d\r\n" % retry_after_s)
    parts.append(b"\r\n" if keep_alive else b"connection: %b\r\n\r\n" % options)
    if not head_only:
        parts.append(body)
    return b"".join(parts)


def error_response(
    err: RouterError,
    *,
    keep_alive: bool,
    request_id: str = "",
    extra: bytes = b"",
    head_only: bool = False,
    family: int = shapes.OPENAI,
    limits: bytes = b"",
) -> bytes:
    """Return a complete error response.

    `extra`: more header lines, each with its CRLF. `family`: the client's API, see `error_shapes`.
    `limits`: header lines, each with a CRLF before it.
    """
    if err.reason is Reason.HTTP2_NOT_SERVED:
        return _GOAWAY
    options = b"close"
    if err.reason is Reason.METHOD_NOT_ALLOWED:
        extra += ALLOW
    elif err.reason is Reason.UNSUPPORTED_ENCODING:
        extra += b"accept-encoding: gzip, deflate, zstd\r\n"  # RFC 9110 section 15.5.16
    elif err.reason is Reason.INSUFFICIENT_QUOTA and (err.retry_after_s or 0) > _PATIENCE_S:
        # The SDKs of OpenAI and Anthropic read it, and would otherwise retry at once: they ignore a
        # Retry-After above a minute.
        extra += b"x-should-retry: false\r\n"
    elif err.status == 401:
        # A 401 must name the authentication scheme (RFC 9110 section 15.5.2).
        extra += b"www-authenticate: Bearer\r\n"
    elif err.reason is Reason.UPGRADE_NOT_SERVED:
        # A message with Upgrade has the connection option `upgrade` (RFC 9110 section 7.8).
        extra += b"upgrade: HTTP/1.1\r\n"
        options = b"close, upgrade"
        keep_alive = False
    if limits:
        extra += limits[2:] + b"\r\n"
    return response(
        err.status,
        shapes.body_of(shapes.of_router(err), family, request_id),
        keep_alive=keep_alive,
        request_id=request_id,
        retry_after_s=err.retry_after_s,
        extra=extra,
        head_only=head_only,
        options=options,
    )
