"""Decides what happens to each header field: forwarded, dropped, or read or set by the router.

RFC 9110 section 7.6.1 names the fields that belong to one connection. The router removes these
fields from requests and responses, together with the fields that `Connection` lists. It never
copies Content-Length and Transfer-Encoding; each connection gets its own. The C parser validates
the syntax of every new head, so this module does not.

Must never: see a body, decide a status, keep state that grows with traffic.
"""

from __future__ import annotations

from typing import Final

from router.fleet.engines.common.registry import PRIVATE_HEADERS
from router.wire.http1.routing_headers import DECLARED

# The actions for a header field of a request or a response. PASS: the field is forwarded unchanged.
PASS: Final = 0
DROP: Final = 1
# Fields of the connection, and of where the body ends.
HOST: Final = 2
CONNECTION: Final = 3
CONTENT_LENGTH: Final = 4
TRANSFER_ENCODING: Final = 5
EXPECT: Final = 6
UPGRADE: Final = 7
# Fields of the content. ACCEPT_ENCODING and the actions above it are of who sends the request.
CONTENT_TYPE: Final = 8
CONTENT_ENCODING: Final = 9
ORIGIN: Final = 10
MAX_FORWARDS: Final = 11
ACCEPT_ENCODING: Final = 12
VIA: Final = 13
FORWARDED_FOR: Final = 14
FORWARDED_OTHER: Final = 15
REQUEST_ID: Final = 16
AUTHORIZATION: Final = 17
API_KEY: Final = 18
OWNER: Final = 19
# Fields of a response.
DATE: Final = 20
LOAD: Final = 21
RETRY_AFTER: Final = 22
# The action for a routing header is this number plus its index in `routing_headers.DECLARED`.
ROUTING: Final = 32

_REQUEST: Final[dict[bytes, int]] = {
    b"host": HOST,
    b"connection": CONNECTION,
    b"content-length": CONTENT_LENGTH,
    b"transfer-encoding": TRANSFER_ENCODING,
    b"te": DROP,  # it requests trailers, but the router drops the trailers of a response
    b"expect": EXPECT,
    b"max-forwards": MAX_FORWARDS,
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
    b"accept-encoding": ACCEPT_ENCODING,
    b"origin": ORIGIN,
    b"x-api-key": API_KEY,  # of Anthropic's SDKs
    b"api-key": API_KEY,  # of Azure's SDKs
    b"x-goog-api-key": API_KEY,  # of Google's SDKs
    b"x-router-owner": OWNER,
    **{header.name: ROUTING + place for place, header in enumerate(DECLARED)},
    # An engine would obey these fields from a client, but only the router may set them.
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
    # The router sends its own X-Request-Id: the request's ID, without the suffix that the router
    # added to it for one attempt at a replica.
    b"x-request-id": DROP,
}

# The actions of the fields that belong to one connection. Only they may be named in `Connection`.
_OF_ONE_CONNECTION: Final = frozenset({DROP, CONNECTION, UPGRADE})


def _protected(known: dict[bytes, int]) -> frozenset[bytes]:
    return frozenset([name for name in known if known[name] not in _OF_ONE_CONNECTION])


# The fields that a peer must not name in `Connection`: every field that the router reads. Otherwise
# the field would be removed, and the forwarded request would differ from the checked request. RFC
# 9110 section 7.6.1 forbids a sender to name a field there that is for all recipients.
PROTECTED: Final = _protected(_REQUEST)
PROTECTED_IN_RESPONSES: Final = _protected(_RESPONSE)

# The actions of the fields whose lines a `Sorter` does not remember, because their values change
# with every request or are secret.
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
_MEMO_LINES: Final = 4096  # maximum number of header lines that a `Sorter` remembers
_MEMO_LINE: Final = 256  # maximum bytes of a header line that is remembered


class Sorter:
    """Maps a header line to an action and the field's value, and remembers the result.

    Peers send the same few lines again and again, so a field usually costs one dict lookup. When
    `memo` is full, it is emptied. So a client that sends new lines all the time costs other clients
    only a few lookups that fail.
    """

    __slots__ = ("_known", "_prefix", "memo")

    def __init__(self, known: dict[bytes, int], dropped_prefix: bytes) -> None:
        self._known = known
        self._prefix = dropped_prefix
        # Maps a line to its action and value. Callers look the line up here before they call
        # `sort`.
        self.memo: dict[bytes, tuple[int, bytes]] = {}

    def sort(self, line: bytes) -> tuple[int, bytes]:
        """Return the action for the field in `line`, and its value (empty for PASS)."""
        name, _, value = line.partition(b":")
        lower = name.lower()
        action = self._known.get(lower, PASS)
        # A field whose name has an underscore, such as Content_Length, is never forwarded. For
        # CGI-like servers, the underscore is equal to a hyphen.
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
    """Return the names in the value of a Connection field, in lower case."""
    return [t for t in (part.strip().lower() for part in value.split(b",")) if t]


def name_of(line: bytes) -> bytes:
    """Return the name of the field in a header line, in lower case."""
    return line[: line.find(b":")].lower()


def value_of(lines: list[bytes], begin: bytes) -> bytes | None:
    """Return the value of a header field; None if `lines` do not contain the field.

    `begin`: the field's name in lower case, and a colon.
    """
    size = len(begin)
    for line in lines:
        if line[:size].lower() == begin:
            return line[size:].strip(b" \t")
    return None


def without(lines: list[bytes], names: frozenset[bytes] | set[bytes]) -> list[bytes]:
    """Return the header lines without those whose lower-case field name is in `names`."""
    return [line for line in lines if name_of(line) not in names]
