"""Decides which admin requests are answered: the token, and the name in the field `Host`. Pure.

With a token, only probes and the list of paths need none. Everything else tells about the traffic,
or changes the router. A port for scrapers and probes alone (`admin.probes_listen`) needs no token.

If no token is configured, no request needs a token. The configuration allows this only for a port
that other machines cannot reach, or that checks the certificates of clients
(`config/admin_checks.py`). A web page can reach such a port through a browser on the machine: its
own name resolves to the address of the port (DNS rebinding), so the browser lets it read the
answers. The browser sends this name in `Host`. A page of another machine has a name in the public
DNS, so only addresses, names without a dot, names of private DNS and configured names are answered.

Must never: keep the token itself, or take a time that depends on the number of correct characters.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from router.config.address import host_of, is_address

_READS: Final = frozenset({"GET", "HEAD"})
_OPEN: Final = frozenset({"/", "/livez", "/healthz", "/readyz", "/health"})  # They tell nothing.
_SCHEME: Final = "bearer"
# Names that the public DNS does not have, and that other machines cannot claim by mDNS (.local).
_PRIVATE: Final = (".localhost", ".internal", ".svc", ".svc.cluster.local")


class Authority:
    """The token and the names of one router's admin listeners."""

    __slots__ = ("_digest", "_names")

    def __init__(self, token: str | None, names: Iterable[str] = ()) -> None:
        self.adopt(token, names)

    def adopt(self, token: str | None, names: Iterable[str] = ()) -> None:
        """Uses these from now on. `token`: `None`: no request needs a token. `names`: see `knows`.

        A name may begin with `*.`, which stands for any names before the rest.
        """
        self._digest = None if token is None else _digest(token)
        self._names = frozenset(name.lower() for name in names)

    def needs_token(self, method: str, path: str) -> bool:
        """Whether a request needs the token. `path`: the path of its route."""
        return self._digest is not None and not (method in _READS and path in _OPEN)

    def has_token(self, authorization: str) -> bool:
        """Whether the value of the field `Authorization` contains the token. "": no field."""
        scheme, _, token = authorization.partition(" ")
        return (
            self._digest is not None
            and scheme.lower() == _SCHEME
            and hmac.compare_digest(self._digest, _digest(token.strip()))
        )

    def knows(self, path: str, host: str) -> bool:
        """Whether a request without the token may be answered under the name that it uses.

        `host`: the value of the field `Host`; "": there is none. Browsers always send it.
        """
        name = host_of(host)
        return (
            path in _OPEN
            or "." not in name
            or is_address(name)
            or name.endswith(_PRIVATE)
            or name in self._names
            or any(name.endswith(one[1:]) for one in self._names if one.startswith("*."))
        )


def _digest(token: str) -> bytes:
    # All digests have the same length, so the comparison does not show the length of the token.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
