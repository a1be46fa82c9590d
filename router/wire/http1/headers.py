"""Sorts header fields: fields that the router sets, fields that never pass on, fields that it
reads.

RFC 9110 section 7.6.1 names the fields that belong to one connection. They are removed in both
directions, together with the fields that `Connection` lists. Framing is never copied: each side
gets its own Content-Length or Transfer-Encoding. The readers split a head that the C parser has
already validated, so this module only sorts and does not validate.

Must never: see a body, decide a status, keep state that grows with traffic.
"""

from __future__ import annotations

from typing import Final

from router.fleet.engines.common.registry import PRIVATE_HEADERS
from router.wire.http1.routing_headers import DECLARED

# The action for a field of a request. Zero passes the field on unchanged.
PASS: Final = 0
DROP: Final = 1
HOST: Final = 2
CONNECTION: Final = 3
CONTENT_LENGTH: Final = 4
TRANSFER_ENCODING: Final = 5
EXPECT: Final = 7
VIA: Final = 8
FORWARDED_FOR: Final = 9
FORWARDED_OTHER: Final = 10
REQUEST_ID: Final = 11
AUTHORIZATION: Final = 12
CONTENT_TYPE: Final = 13
CONTENT_ENCODING: Final = 14
UPGRADE: Final = 15
DATE: Final = 17
LOAD: Final = 19
API_KEY: Final = 22
RETRY_AFTER: Final = 23
OWNER: Final = 28
# the action is this number plus the index of the header in `routing_headers.DECLARED`
ROUTING: Final = 32

_REQUEST: Final[dict[bytes, int]] = {
    b"host": HOST,
    b"connection": CONNECTION,
    b"content-length": CONTENT_LENGTH,
    b"transfer-encoding": TRANSFER_ENCODING,
    b"te": DROP,  # trailers are dropped here, so none are requested
    b"expect": EXPECT,
    b"via": VIA,
    b"x-forwarded-for": FORWARDED_FOR,
    b"x-forwarded-proto": FORWARDED_OTHER,
    b"x-forwarded-host": FORWARDED_OTHER,
    b"forwarded": FORWARDED_OTHER,
    b"x-request-id": REQUEST_ID,
    b"authorization": AUTHORIZATION,
    b"content-type": CONTENT_TYPE,
    b"content-encoding": CONTENT_ENCODING,
    b"upgrade": UPGRADE,
    b"x-api-key": API_KEY,
    b"x-router-owner": OWNER,
    **{header.name: ROUTING + place for place, header in enumerate(DECLARED)},
    # An engine would obey these fields. Only the router may set them.
    **dict.fromkeys(PRIVATE_HEADERS, DROP),
    b"keep-alive": DROP,
    b"proxy-connection": DROP,
    b"proxy-authenticate": DROP,
    b"proxy-authorization": DROP,
    b"trailer": DROP,
    b"http2-settings": DROP,
}

_RESPONSE: Final[dict[bytes, int]] = {
    b"connection": CONNECTION,
    b"content-length": CONTENT_LENGTH,
    b"transfer-encoding": TRANSFER_ENCODING,
    b"content-type": CONTENT_TYPE,
    b"date": DATE,
    b"endpoint-load-metrics": LOAD,
    b"retry-after": RETRY_AFTER,
    b"keep-alive": DROP,
    b"proxy-connection": DROP,
    b"proxy-authenticate": DROP,
    b"trailer": DROP,
    b"upgrade": DROP,
    b"te": DROP,
    # The router sends its own field: the client's id, without the suffix of the attempt.
    b"x-request-id": DROP,
}

# Actions for fields that belong to one connection, which `Connection` may name.
_OF_ONE_CONNECTION: Final = frozenset({DROP, CONNECTION, UPGRADE})


def _protected(known: dict[bytes, int]) -> frozenset[bytes]:
    return frozenset([name for name in known if known[name] not in _OF_ONE_CONNECTION])


# Fields that a peer must not be able to remove by naming them in Connection: every field that the
# router reads. Otherwise the forwarded request would differ from the checked one. A sender must not
# name a field there that is for all recipients (RFC 9110 section 7.6.1).
PROTECTED: Final = _protected(_REQUEST)
PROTECTED_IN_RESPONSES: Final = _protected(_RESPONSE)

# Fields that change with every request, or are secrets, are not remembered.
_NOT_REMEMBERED: Final = frozenset(
    {
        CONTENT_LENGTH,
        REQUEST_ID,
        AUTHORIZATION,
        API_KEY,
        FORWARDED_FOR,
        FORWARDED_OTHER,
        VIA,
        LOAD,
        OWNER,
        *[ROUTING + place for place, header in enumerate(DECLARED) if not header.is_memoized],
    }
)
_MEMO_LINES: Final = 4096
_MEMO_LINE: Final = 256  # bytes; a longer line is not remembered


class Sorter:
    """Maps a field's line to an action and the field's value, and remembers each line.

    Peers send the same few lines again and again, so the usual cost of a field is one dict lookup.
    When the memory of lines is full, it is emptied: a client that sends new lines all the time
    costs other clients only a few misses.
    """

    __slots__ = ("_known", "_prefix", "memo")

    def __init__(self, known: dict[bytes, int], dropped_prefix: bytes) -> None:
        self._known = known
        self._prefix = dropped_prefix
        # line -> action and value; callers look here first, then call `sort`
        self.memo: dict[bytes, tuple[int, bytes]] = {}

    def sort(self, line: bytes) -> tuple[int, bytes]:
        """Returns the action for the field on `line`, and its value unless it only passes on."""
        name, _, value = line.partition(b":")
        lower = name.lower()
        action = self._known.get(lower, PASS)
        # For CGI-like servers behind the router, a name with an underscore equals one with a hyphen
        # (Content_Length), so it never passes.
        if action == PASS and (b"_" in lower or lower.startswith(self._prefix)):
            action = DROP
        entry = (action, b"" if action == PASS else value.strip(b" \t"))
        if action not in _NOT_REMEMBERED and len(line) <= _MEMO_LINE:
            if len(self.memo) >= _MEMO_LINES:
                self.memo.clear()
            self.memo[line] = entry
        return entry


REQUEST: Final = Sorter(_REQUEST, b"x-router-")
RESPONSE: Final = Sorter(_RESPONSE, b"x-router-")


def connection_tokens(value: bytes) -> list[bytes]:
    """Returns the lower-case members of a Connection field."""
    return [t for t in (part.strip().lower() for part in value.split(b",")) if t]


def without(lines: list[bytes], names: frozenset[bytes] | set[bytes]) -> list[bytes]:
    """Returns `lines` (name: value) without those whose lower-case name is in `names`."""
    return [line for line in lines if line[: line.find(b":")].lower() not in names]
