"""The router's own answers: status lines made once, errors in OpenAI's shape.

An error body is `{"error": {"message", "type", "param", "code"}}` with the closed reason as its
`code`, so that SDKs raise their own error classes and scripts can tell reasons apart.
"""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import msgspec

from router.core.errors import Reason, RouterError

_encode = msgspec.json.Encoder().encode

STATUS_LINE: Final[dict[int, bytes]] = {
    s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus
}
STATUS_LINE[499] = b"HTTP/1.1 499 Client Closed Request\r\n"

ALLOW: Final = b"allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"

_TYPES: Final[dict[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
# OpenAI calls a wrong model an invalid request.
_INVALID: Final = frozenset({Reason.MODEL_NOT_FOUND})


def date() -> bytes:
    """The time for a Date field."""
    return formatdate(usegmt=True).encode("ascii")


def error_type(reason: Reason, status: int) -> str:
    """OpenAI's `type` for an error with this status."""
    if status in _TYPES and reason not in _INVALID:
        return _TYPES[status]
    return "invalid_request_error" if status < 500 else "server_error"


def error_body(err: RouterError) -> bytes:
    """The JSON body of an error."""
    return _encode(
        {
            "error": {
                "message": err.message,
                "type": error_type(err.reason, err.status),
                "param": err.param,
                "code": err.reason.value,
            }
        }
    )


def error_event(err: RouterError) -> bytes:
    """The same as one server-sent event, for a stream whose 200 is already with the client."""
    return b"data: " + error_body(err) + b"\n\n"


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
) -> bytes:
    """A whole response of the router's own. `extra` are finished header lines."""
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
    parts.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    if not head_only:
        parts.append(body)
    return b"".join(parts)


def error_response(
    err: RouterError, *, keep_alive: bool, request_id: str = "", head_only: bool = False
) -> bytes:
    """A whole error response."""
    extra = b""
    if err.reason is Reason.METHOD_NOT_ALLOWED:
        extra = ALLOW
    elif err.status == 401:
        extra = b"www-authenticate: Bearer\r\n"  # RFC 9110 section 15.5.2: it must say how
    elif err.reason is Reason.UPGRADE_NOT_SERVED:
        extra = b"upgrade: HTTP/1.1\r\n"
        keep_alive = False
    return response(
        err.status,
        error_body(err),
        keep_alive=keep_alive,
        request_id=request_id,
        retry_after_s=err.retry_after_s,
        extra=extra,
        head_only=head_only,
    )
