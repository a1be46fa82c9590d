"""Checks the request line and the header fields of a head, and sorts them into a `RequestHead`.

The parser llhttp has validated the syntax of each line before. It does not check the following:

- the number of fields, and duplicates of fields that may have only one value;
- blanks in the request line, and the form of the target;
- the Host field, and which fields `Connection` names;
- transfer codings, and HTTP/1.0 with chunks;
- proxy loops (`Via`).

The functions are pure. Must never: accept a field that another server may read differently.
"""

from __future__ import annotations

import re
from typing import Final

from router.config.model import Limits
from router.core.errors import Reason, RouterError
from router.wire.http1 import headers as h
from router.wire.http1.heads import NO_PROXIES, Proxies, RequestHead
from router.wire.http1.routing_headers import DECLARED, RoutingHeaders

_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_NOT_ALLOWED: Final = frozenset({b"CONNECT", b"TRACE"})

_HOST = re.compile(
    rb"(?:[A-Za-z0-9\-._~%!$&'()*+;=]{1,255}|\[[0-9A-Fa-f:.]{2,45}(?:%25[A-Za-z0-9._~\-]+)?\])(?::[0-9]{1,5})?"
)
# The largest value of Max-Forwards that the router sends.
_MAX_FORWARDS: Final = 999_999_999
# A target in origin form (path and query): without blanks, control characters and `#`.
_TARGET = re.compile(rb"/[\x21\x22\x24-\x7e]*")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#\x00-\x20\x7f-\xff]+)([/?][\x21\x22\x24-\x7e]*)?")


class _Checked:
    """The fields of one head that are only checked."""

    __slots__ = ("connection", "expect", "host", "upgrade")

    def __init__(self) -> None:
        self.host: bytes | None = None
        self.connection: list[bytes] | None = None
        self.upgrade: bytes | None = None
        self.expect: bytes | None = None


def sort_fields(head: RequestHead, raw: bytes, limits: Limits, via: bytes) -> None:
    """Fills in an empty `head` from the bytes of a head that llhttp accepted.

    `via`: the router's own name in lower case. Raises RouterError if a check fails. Then the
    attributes of `head` are set only for the fields before the error.
    """
    head.routing = routing = RoutingHeaders()
    lines = raw[:-4].split(b"\r\n")
    if len(lines) - 1 > limits.header_count:
        raise RouterError(Reason.HEAD_TOO_LARGE, f"more than {limits.header_count} header fields")
    first = lines[0]
    head.method, head.target, head.http_1_0, named_host = _request_line(first, limits)
    keep = head.lines
    checked = _Checked()
    known = h.REQUEST.memo.get
    fields = iter(lines)
    next(fields)
    for line in fields:
        entry = known(line) or h.REQUEST.sort(line)
        action, value = entry
        if action == h.PASS:
            keep.append(line)
        elif action >= h.ROUTING:
            declared = DECLARED[action - h.ROUTING]
            declared.read(value, routing)
            if declared.passes:
                keep.append(line)
        elif action >= h.ACCEPT_ENCODING:
            _read_sender(head, action, line, value, via)
        elif action >= h.CONTENT_TYPE:
            _read_content(head, action, line, value)
        elif action != h.DROP:
            _read_framing(head, checked, action, value)
    _finish(head, checked)
    if named_host is not None:
        head.host = named_host


def _read_framing(head: RequestHead, checked: _Checked, action: int, value: bytes) -> None:
    """Reads a field of the connection, or of where the body ends."""
    if action == h.HOST:
        if checked.host is not None:
            raise RouterError(Reason.BAD_HOST, "more than one Host field")
        checked.host = value
    elif action == h.CONNECTION:
        tokens = h.connection_tokens(value)
        before = checked.connection
        checked.connection = tokens if before is None else before + tokens
    elif action == h.CONTENT_LENGTH:
        if head.content_length is not None or not value.isdigit() or len(value) > 20:
            raise RouterError(Reason.BAD_REQUEST, "unusable Content-Length")
        head.content_length = int(value)
    elif action == h.TRANSFER_ENCODING:
        if value.lower() != b"chunked" or head.chunked:
            raise RouterError(
                Reason.BAD_TRANSFER_ENCODING, "only chunked transfer coding is supported"
            )
        head.chunked = True
    elif action == h.EXPECT:
        checked.expect = value.lower()
    else:
        checked.upgrade = value.lower()


def _read_content(head: RequestHead, action: int, line: bytes, value: bytes) -> None:
    """Reads a field that is also forwarded."""
    if action == h.CONTENT_TYPE:
        if head.content_type is not None:
            if head.content_type != value:
                # Of two different Content-Type fields, engines read the first and other servers
                # the last, so the request is refused.
                raise RouterError(Reason.BAD_HEADER, "more than one Content-Type")
            return
        head.content_type = value
    elif action == h.CONTENT_ENCODING:
        seen = head.content_encoding
        coding = value.lower()
        head.content_encoding = coding if seen is None else seen + b", " + coding
    elif action == h.ORIGIN:
        head.origin = value
    else:
        line = _count_forward(head, line, value)
    head.lines.append(line)


def _read_sender(head: RequestHead, action: int, line: bytes, value: bytes, via: bytes) -> None:
    """Reads a field of who sends the request, or of the proxies before the router."""
    if action == h.AUTHORIZATION:
        head.authorization = line
    elif action == h.ACCEPT_ENCODING:
        head.accept_encoding += b"\r\n" + line
    elif action == h.API_KEY:
        head.api_key = line
    elif action == h.REQUEST_ID:
        head.request_id = value
    elif action == h.OWNER:
        head.owner = value
    else:
        if head.proxies is NO_PROXIES:
            head.proxies = Proxies()
        proxies = head.proxies
        if action == h.FORWARDED_FOR:
            seen = proxies.forwarded_for
            proxies.forwarded_for = value if seen is None else seen + b", " + value
        elif action == h.FORWARDED_OTHER:
            if proxies.forwarded_other is None:
                proxies.forwarded_other = []
            proxies.forwarded_other.append(line)
        elif _has_passed(value, via):
            raise RouterError(Reason.LOOP, "this request has been here before (`Via`)")
        else:
            proxies.via.append(value)


def _finish(head: RequestHead, checked: _Checked) -> None:
    """Checks what depends on several fields, and sets the values that result from them."""
    connection, expect = checked.connection, checked.expect
    if head.http_1_0:
        head.keep_alive = connection is not None and b"keep-alive" in connection
        if head.chunked:
            raise RouterError(Reason.BAD_REQUEST, "HTTP/1.0 must not have Transfer-Encoding")
    if checked.host is not None or not head.http_1_0:
        _check_host(checked.host)
    head.host = checked.host
    if connection is not None:
        _apply_connection(head, connection, checked.upgrade)
    if head.chunked and head.content_length is not None:
        raise RouterError(Reason.BAD_REQUEST, "both Content-Length and Transfer-Encoding")
    if head.lines:
        head.joined = b"\r\n" + b"\r\n".join(head.lines)
    if expect is not None and not head.http_1_0:
        if expect != b"100-continue":
            raise RouterError(Reason.EXPECTATION_FAILED, "unknown expectation")
        head.expect_continue = True


def _request_line(line: bytes, limits: Limits) -> tuple[bytes, bytes, bool, bytes | None]:
    """Parses the request line.

    Returns the method, the target (path and query, or `*`), whether the version is HTTP/1.0, and
    the host of an absolute target.
    """
    if len(line) > limits.request_line:
        raise RouterError(Reason.TARGET_TOO_LONG, "the request line is too long")
    parts = line.split(b" ")
    if len(parts) != 3:
        raise RouterError(Reason.BAD_REQUEST, "the request line must have three parts")
    method, target, version = parts
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        if line == b"PRI * HTTP/2.0":
            raise RouterError(Reason.HTTP2_NOT_SERVED, "HTTP/2 is not served; use HTTP/1.1")
        raise RouterError(Reason.VERSION_NOT_SUPPORTED, "only HTTP/1.0 and HTTP/1.1 are served")
    if method not in _METHODS:
        if method in _NOT_ALLOWED:
            raise RouterError(Reason.METHOD_NOT_ALLOWED, f"{method.decode('ascii')} is not served")
        raise RouterError(Reason.METHOD_UNKNOWN, "unknown method")
    if target == b"*" and method == b"OPTIONS":
        return method, target, version == b"HTTP/1.0", None
    path, host = _origin_form(target)
    return method, path, version == b"HTTP/1.0", host


def _count_forward(head: RequestHead, line: bytes, value: bytes) -> bytes:
    """Return the Max-Forwards line for the replica (RFC 9110 section 7.6.2).

    The field counts only for OPTIONS. If no more forwards are allowed, the request becomes
    `OPTIONS *`, to which the router itself responds.
    """
    if head.method != b"OPTIONS" or not value.isdigit():
        return line
    digits = value.lstrip(b"0")
    if not digits:
        head.target = b"*"
        return line
    left = _MAX_FORWARDS if len(digits) > 9 else int(digits) - 1
    return b"max-forwards: %d" % left


def _apply_connection(head: RequestHead, tokens: list[bytes], upgrade: bytes | None) -> None:
    for token in tokens:
        if token == b"close":
            head.keep_alive = False
        elif token in h.PROTECTED:
            raise RouterError(Reason.BAD_HEADER, "Connection names a field that it must not name")
    named = {t for t in tokens if t not in (b"keep-alive", b"close", b"upgrade", b"te")}
    if named:
        head.lines = h.without(head.lines, named)
    if upgrade is not None and b"upgrade" in tokens and b"websocket" in upgrade:
        raise RouterError(Reason.UPGRADE_NOT_SERVED, "no protocol upgrade is served here")


def _check_host(host: bytes | None) -> None:
    """Raises RouterError if the Host field is missing or invalid (RFC 9112 section 3.2)."""
    if host is None:
        raise RouterError(Reason.BAD_HOST, "the Host field is missing")
    if not _HOST.fullmatch(host):
        raise RouterError(Reason.BAD_HOST, "the Host field is not host[:port]")


def _has_passed(via: bytes, name: bytes) -> bool:
    """Return whether `via` shows that the proxy `name` has already forwarded this request."""
    for entry in via.split(b","):
        words = entry.split()
        if len(words) > 1 and words[1].lower() == name:
            return True
    return False


def _origin_form(target: bytes) -> tuple[bytes, bytes | None]:
    """Return the path and query of a target, and the host of an absolute target."""
    if _TARGET.fullmatch(target):
        return target, None
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise RouterError(Reason.BAD_TARGET, "the request target is not a path")
    if not _HOST.fullmatch(absolute.group(1)):
        raise RouterError(Reason.BAD_TARGET, "the request target has no usable host")
    rest: bytes = absolute.group(2) or b"/"
    return (rest if rest[:1] == b"/" else b"/" + rest), absolute.group(1)
