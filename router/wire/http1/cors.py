"""Builds the CORS header fields of responses, and recognises preflight requests.

The router is the authority for CORS if `cors.origins` is set: it adds the fields to every response,
removes those of engines, and does not forward Origin, because an engine may refuse a request with a
foreign origin (Ollama: 403). The rules are in https://fetch.spec.whatwg.org/#http-cors-protocol.

Must never: allow credentials such as cookies. API keys are ordinary header fields.
"""

from __future__ import annotations

from typing import Final

from router.config.model import Cors as CorsConfig
from router.wire.http1.headers import value_of
from router.wire.http1.heads import RequestHead

_METHOD: Final = b"access-control-request-method:"
_HEADERS: Final = b"access-control-request-headers:"
ENGINES: Final = b"access-control-"  # how the fields of engines begin that are removed
_ANY: Final = "*"
# If a response has other fields for another origin, caches must know it.
_VARY: Final = b"vary: origin\r\n"


class Cors:
    """The fields for all origins. Lines of fields end with a CRLF each."""

    __slots__ = ("_any_header", "_by_origin", "_others", "_preflight", "_unread")

    def __init__(self, config: CorsConfig) -> None:
        exposed = b"access-control-expose-headers: %b\r\n" % _list(config.exposed)
        allow = b"access-control-allow-origin: %b\r\n"
        is_any = _ANY in config.origins
        self._others = allow % b"*" + exposed if is_any else _VARY
        self._by_origin: dict[bytes, bytes] = {}
        if not is_any:
            for text in config.origins:
                origin = text.lower().encode("ascii")
                self._by_origin[origin] = allow % origin + exposed + _VARY
        # The Origin of a refused head may be unread. A browser ignores the answer if it names
        # another origin.
        self._unread = next(iter(self._by_origin.values()), self._others)
        self._any_header = _ANY in config.headers
        self._preflight = (
            b"access-control-allow-methods: %b\r\naccess-control-max-age: %d\r\n"
            b"access-control-allow-headers: "
        ) % (_list(config.methods), int(config.max_age_s))
        if not self._any_header:
            self._preflight += _list(config.headers)

    def lines(self, origin: bytes | None) -> bytes:
        """Return the fields of a response to a request with this Origin."""
        if origin is None:
            return self._unread
        return self._by_origin.get(origin.lower(), self._others)

    def preflight(self, head: RequestHead) -> bytes:
        """Return the fields that the response to a preflight has besides `lines`.

        "*" would not allow Authorization, so the requested names are repeated.
        """
        if not self._any_header:
            return self._preflight + b"\r\n"
        asked = value_of(head.lines, _HEADERS)
        return self._preflight + (b"*" if asked is None else asked) + b"\r\n"


def cors_of(config: CorsConfig) -> Cors | None:
    """Return `None` if CORS is off."""
    return Cors(config) if config.origins else None


def is_preflight(head: RequestHead) -> bool:
    """Return whether a request with an Origin asks whether another request is allowed."""
    return head.method == b"OPTIONS" and value_of(head.lines, _METHOD) is not None


def _list(names: tuple[str, ...]) -> bytes:
    return ", ".join(names).encode("ascii")
