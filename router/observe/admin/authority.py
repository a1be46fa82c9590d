"""Decides which admin requests need the token of the admin port, and compares tokens. Pure.

The token is needed for every request that changes the router's state, and for the pages that name
tenants. The metrics are such a page, because their labels contain the names of tenants. A scraper
can send the token. A port for scrapers and probes alone (`admin.probes_listen`) needs no token.

If no token is configured, no request needs a token. The configuration allows this only for a port
that other machines cannot reach, or that checks the certificates of clients
(`config/admin_checks.py`).

Must never: keep the token itself, or take a time that depends on the number of correct characters.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_READS: Final = frozenset({"GET", "HEAD"})
_TENANTS: Final = frozenset({"/usage", "/queue", "/metrics"})  # Pages that name tenants.
_SCHEME: Final = "bearer"


class Authority:
    """The token of one admin port."""

    __slots__ = ("_digest",)

    def __init__(self, token: str | None) -> None:
        self.adopt(token)

    def adopt(self, token: str | None) -> None:
        """Uses this token from now on. `None`: no request needs a token."""
        self._digest = None if token is None else _digest(token)

    def allows(self, method: str, path: str, authorization: str) -> bool:
        """Whether a request may be served.

        `path`: the path of its route. `authorization`: the value of the header `Authorization`; "":
        the request has no such header.
        """
        if self._digest is None or (method in _READS and path not in _TENANTS):
            return True
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == _SCHEME and hmac.compare_digest(
            self._digest, _digest(token.strip())
        )


def _digest(token: str) -> bytes:
    # All digests have the same length, so the comparison does not show the length of the token.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
