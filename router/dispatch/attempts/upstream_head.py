"""Builds the request head for a replica, from the client's header fields and the router's own.

The client's header fields that describe its own connection are removed. The part of the head that
is equal for all attempts is built once per request. Each attempt adds the replica's Host, and adds
its own suffix to the request id, because vLLM fails if two running requests have the same id.
"""

from __future__ import annotations

from typing import Final

from router.wire.http1.heads import RequestHead

_IDENTITY: Final = b"\r\naccept-encoding: identity"


def common_lines(
    head: RequestHead,
    body_bytes: int,
    *,
    peer: bytes,
    peer_is_trusted: bool,
    proto: bytes,
    via: bytes,
    authorization: bytes | None,
    forwards_key: bool = True,
    reads_answer: bool = False,
) -> bytes:
    """Return the fields that are equal for all attempts, each with a CRLF before it.

    `authorization`: a complete header line that replaces the client's `authorization`; `None`
    forwards the client's line. `forwards_key`: the client's own key is forwarded to the replica.
    `reads_answer`: the router reads the answer's events, token counts and errors, so the answer
    must not be compressed on the way.
    """
    joined, proxies = head.joined, head.proxies
    auth = authorization
    if forwards_key:
        if auth is None:
            auth = head.authorization
        if head.api_key is not None:
            joined += b"\r\n" + head.api_key
    host = head.host
    forwarded = peer
    if peer_is_trusted:
        if proxies.forwarded_for is not None:
            forwarded = proxies.forwarded_for + b", " + peer
        if proxies.forwarded_other is not None:
            # A trusted proxy's fields on the client's protocol and host are kept.
            joined += b"\r\n" + b"\r\n".join(proxies.forwarded_other)
            proto = b""
            host = None
    seen = b", ".join(proxies.via) + b", " if proxies.via else b""
    version = b"1.0" if head.http_1_0 else b"1.1"
    return b"%b%b%b\r\nvia: %b%b %b\r\nx-forwarded-for: %b%b%b%b" % (
        joined,
        _IDENTITY if reads_answer else head.accept_encoding,
        b"\r\n" + auth if auth is not None else b"",
        seen,
        version,
        via,
        forwarded,
        b"\r\nx-forwarded-proto: " + proto if proto else b"",
        b"\r\nx-forwarded-host: " + host if host is not None else b"",
        # A body is always sent with a Content-Length, because the router has joined its chunks. A
        # POST without a body has length 0.
        b"\r\ncontent-length: %d" % body_bytes
        if body_bytes or head.has_body or head.method in (b"POST", b"PUT", b"PATCH")
        else b"",
    )


def attempt_head(
    head: RequestHead,
    base_path: bytes,
    host_line: bytes,
    common: bytes,
    name: bytes,
    index: int,
) -> bytes:
    """Return the whole head of one attempt."""
    return b"%b %b%b HTTP/1.1\r\n%b%b\r\nx-request-id: %b-%d\r\n\r\n" % (
        head.method,
        base_path,
        head.target,
        host_line,
        common,
        name,
        index,
    )
