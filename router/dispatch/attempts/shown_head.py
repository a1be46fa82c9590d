"""Makes the head of a replica's response fit for a client: it shows neither the replica's address
nor its credential.

A redirect to the replica itself becomes a redirect without an authority, which a client resolves
against the address that it used (RFC 9110 section 10.2.2). So the scheme is right behind a proxy
that ends TLS, too. A redirect to another server is not changed.

Must never: change a head in place, because other responses share it.
"""

from __future__ import annotations

import re
from typing import Final

from router.fleet.replica import Replica
from router.fleet.secret import Secret
from router.wire.http1.headers import name_of
from router.wire.http1.heads import ResponseHead

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
        if not replica.address.has_authority(absolute.group(1).decode("latin-1")):
            return None
        # More than one slash at the beginning would make the path an authority.
        path = _SLASH + absolute.group(2).lstrip(b"/\\")
    base = replica.base_path
    if base and path.startswith(base + _SLASH):
        path = path[len(base) :]
    return path
