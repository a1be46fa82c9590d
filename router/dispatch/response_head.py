"""Builds the response head for the client: the replica's fields, the router's framing, and the
request id.

The head shows neither the replica's address nor its credential. A redirect to the replica itself
becomes a redirect without an authority, which a client resolves against the address that it used
(RFC 9110 section 10.2.2). So the scheme is right behind a proxy that ends TLS, too. A redirect to
another server is not changed.

Must never: change a head in place, because other responses share it.
"""

from __future__ import annotations

import re
from typing import Final

from router.fleet.replica import Replica
from router.fleet.secret import Secret
from router.wire.http1.answers import date
from router.wire.http1.cors import ENGINES
from router.wire.http1.headers import name_of
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import NO_BUFFERING


def response_head(
    head: ResponseHead,
    request_id: bytes,
    *,
    length: int | None,
    chunked: bool,
    keep_alive: bool,
    http_1_0: bool = False,
    replica: str | None = None,
    region: str = "",
    estimate: bytes = b"",
    limits: bytes = b"",
    cors: bytes = b"",
) -> bytes:
    """Build a response head.

    `length`: bytes of the body; `None` if the body ends with the last chunk or with the connection.
    `region`: the region of the replica; "": no header. `estimate`: the value of the header with the
    estimated time to first token; b"": no header. `limits`: header lines with the limits of the
    client's key, each with a CRLF before it. They replace those of the replica. `cors`: the CORS
    fields, each with its CRLF, which replace those of the replica; b"": CORS is off.
    """
    if chunked:
        framing = b"\r\ntransfer-encoding: chunked"
    elif length is not None and head.status != 204:
        framing = b"\r\ncontent-length: %d" % length
    else:
        framing = b""
    if not keep_alive:
        framing += b"\r\nconnection: close"
    elif http_1_0:
        framing += b"\r\nconnection: keep-alive"
    # RFC 9110 section 6.6.1: a recipient that forwards the message adds a Date.
    if not head.has_date:
        framing += b"\r\ndate: " + date()
    if replica is not None:
        framing += b"\r\nx-router-replica: " + replica.encode("ascii", "replace")
    if region:
        framing += b"\r\nx-served-region: " + region.encode("ascii", "replace")
    if estimate:
        framing += b"\r\n" + _ESTIMATE + estimate
    joined = head.joined
    if limits or cors:
        framing += limits
        replaced = (_LIMITS, ENGINES) if limits and cors else (_LIMITS if limits else ENGINES,)
        kept = [b"\r\n" + line for line in head.lines if not line.lower().startswith(replaced)]
        joined = b"".join(kept)
    return b"HTTP/1.1 %b%b\r\nx-request-id: %b%b\r\n%b\r\n" % (
        head.status_line,
        joined,
        request_id,
        framing,
        cors,
    )


def interim_head(head: ResponseHead) -> bytes:
    """Build the head of a 1xx response."""
    return b"\r\n".join([b"HTTP/1.1 " + head.status_line, *head.lines, b"\r\n"])


def stream_head(
    request_id: bytes,
    *,
    chunked: bool,
    keep_alive: bool,
    estimate: bytes = b"",
    limits: bytes = b"",
    cors: bytes = b"",
) -> bytes:
    """Build the head of an event stream that the router begins before a replica has answered.

    `estimate`, `limits`, `cors`: see `response_head`.
    """
    out = [
        b"HTTP/1.1 200 OK",
        b"content-type: text/event-stream; charset=utf-8",
        b"cache-control: no-cache",
        NO_BUFFERING,
        b"date: " + date(),
        b"x-request-id: " + request_id,
    ]
    if chunked:
        out.append(b"transfer-encoding: chunked")
    if not keep_alive:
        out.append(b"connection: close")
    if estimate:
        out.append(_ESTIMATE + estimate)
    if limits:
        out.append(limits[2:])
    out.append(cors + b"\r\n")
    return b"\r\n".join(out)


_LIMITS = b"x-ratelimit-"
_ESTIMATE = b"x-ttft-estimate-ms: "
_TYPE = b"content-type:"


def is_text(head: ResponseHead) -> bool:
    """Whether a response's body may be text: JSON, events, lines, or a body without a type."""
    if head.is_json or head.is_sse:
        return True
    for line in head.lines:
        if line[: len(_TYPE)].lower() == _TYPE:
            kind = line[len(_TYPE) :].strip().lower()
            return kind.startswith(b"text/") or b"json" in kind
    return True


_REFERENCES: Final = frozenset({b"location", b"content-location"})
_ABSOLUTE: Final = re.compile(rb"(?i:https?:)?//(?:[^/?#@]*@)?([^/?#]*)(.*)")
_SLASH: Final = b"/"


def shown_head(head: ResponseHead, replica: Replica, secret: Secret | None) -> ResponseHead:
    """Return the head for the client: the same object if nothing is to be changed.

    `secret`: the credential that the replica got; `None`: there is none to hide.
    """
    lines = [_shown_line(line, replica) for line in head.lines]
    status_line = head.status_line
    if secret is not None:
        lines = [secret.hidden_in(line) for line in lines]
        status_line = secret.hidden_in(status_line)
    if lines == head.lines and status_line == head.status_line:
        return head
    shown = head.copy()
    shown.status_line = status_line
    shown.lines = lines
    shown.joined = b"".join([b"\r\n" + line for line in lines])
    return shown


def _shown_line(line: bytes, replica: Replica) -> bytes:
    name = name_of(line)
    if name not in _REFERENCES:
        return line
    reference = line[len(name) + 1 :].strip(b" \t")
    path = _path_here(reference, replica)
    return line if path is None else b"%b: %b" % (line[: len(name)], path)


def _path_here(reference: bytes, replica: Replica) -> bytes | None:
    """Return the reference as a path of this router; `None` if it leads to another server."""
    path = reference
    absolute = _ABSOLUTE.fullmatch(reference)
    if absolute is not None:
        if not replica.endpoint.address.has_authority(absolute.group(1).decode("latin-1")):
            return None
        # More than one slash at the beginning would make the path an authority.
        path = _SLASH + absolute.group(2).lstrip(b"/\\")
    base = replica.endpoint.base_path
    if base and path.startswith(base + _SLASH):
        path = path[len(base) :]
    return path
