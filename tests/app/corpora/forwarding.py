"""Allowed differences between sent and forwarded requests, and between responses.

Written from RFC 9110 section 7.6 and RFC 9112 section 6, not from the router's code.
"""

import re
from urllib.parse import urlsplit

from tests.harness.reading import Message, Request, Response

HOP_BY_HOP = {
    "connection",
    "proxy-connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authorization",
    "proxy-authenticate",
    "expect",
}
# Hop-by-hop fields that the router may send itself.
_ALLOWED = {("te", "trailers"), ("keep-alive", "timeout=75")}
# Fields that the router writes itself.
OURS = {
    *("host", "content-length", "via", "x-request-id", "date"),
    *("accept-encoding", "x-accel-buffering"),
}


def _ours(name: str) -> bool:
    return name in OURS or name in HOP_BY_HOP or name.startswith(("x-forwarded-", "x-router-"))


def _end_to_end(message: Message) -> list[tuple[str, str]]:
    nominated = {
        token.strip().lower() for value in message.all("connection") for token in value.split(",")
    }
    return sorted(
        (name, value)
        for name, value in message.headers
        if not _ours(name) and name not in nominated and "_" not in name
    )


def problems_of_request(got: Request) -> list[str]:
    """Problems of a forwarded request, for any client input."""
    found = _problems_of_framing(got)
    if len(got.all("host")) != 1:
        found.append(f"Host came {len(got.all('host'))} times")
    if got.version != "1.1":
        found.append(f"forwarded as HTTP/{got.version}")
    if not got.target.startswith("/") and got.target != "*":
        found.append(f"forwarded target {got.target!r} is not in origin-form")
    if got.trailers:
        found.append(f"trailers were forwarded: {got.trailers}")
    return found


def problems_of_forwarding(sent: Request, got: Request) -> list[str]:
    """Forbidden differences between the sent and the forwarded request."""
    found = []
    if got.method != sent.method:
        found.append(f"method {sent.method} became {got.method}")
    target, host = sent.target, sent.header("host") or ""
    if "://" in target:  # RFC 9112 3.2.2: the target's host wins
        parts = urlsplit(target)
        host = parts.netloc
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if got.target != target:
        found.append(f"target {target!r} became {got.target!r}")
    # A proxy may write the replica's own authority into Host, but no third authority.
    ours = re.fullmatch(r"127\.0\.0\.1:\d+", got.header("host") or "")
    if host and got.header("host") != host and not ours:
        found.append(f"host {host!r} became {got.header('host')!r}")
    if got.body != sent.body:
        found.append(f"body {bytes(sent.body)!r} became {bytes(got.body)!r}")
    if _end_to_end(got) != _end_to_end(sent):
        found.append(f"fields {_end_to_end(sent)} became {_end_to_end(got)}")
    return found


def problems_of_relay(reference: Response, got: Response) -> list[str]:
    """Forbidden differences between the replica's response and the relayed one."""
    found = _problems_of_framing(got)
    if got.status != reference.status:
        found.append(f"status {reference.status} became {got.status}")
    if got.body != reference.body:
        found.append(f"body {bytes(reference.body)!r} became {bytes(got.body)!r}")
    if _end_to_end(got) != _end_to_end(reference):
        found.append(f"fields {_end_to_end(reference)} became {_end_to_end(got)}")
    if 100 in got.informational:
        found.append("a 100 was relayed that nobody asked for")
    return found


def _problems_of_framing(message: Message) -> list[str]:
    found = []
    lengths, codings = message.all("content-length"), message.all("transfer-encoding")
    if len(lengths) + len(codings) > 1:
        found.append(f"framed twice: {lengths} {codings}")
    if any(not re.fullmatch(r"0|[1-9]\d*", length) for length in lengths):
        found.append(f"Content-Length is not canonical: {lengths}")
    found.extend(
        f"hop-by-hop field {name} was passed on"
        for name in HOP_BY_HOP - {"connection", "transfer-encoding"}
        if message.all(name) and (name, *message.all(name)) not in _ALLOWED
    )
    return found
