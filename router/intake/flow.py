"""Whose turn is it? Requests of one user of one key are a flow; flows take turns, requests do not.

A flow is (key's name, user). Users stand inside their key: whoever invents names shares what his
own key has, and nothing else. Only a key that is trusted to names users; all else of a key is one
flow, and what comes without a key and without a user is none.

A flow's k-th pending request is k-1 steps less urgent within its class (`core.urgency.stepped`),
frozen when it comes: a burst spreads, while another's first request stays on top.

A user is kept as a keyed hash of 64 bits, however long its name is. Counts are kept of flows that
have something pending, and of no others: what is under way bounds them.

Must never: keep a user's name.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from router.core.urgency import Urgency, stepped
from router.intake.fields import value_of
from router.intake.keys import Key

Flow = tuple[str, int]  # the key's name, "" for none; the user's hash, 0 for none
NOBODY: Final[Flow] = ("", 0)
_LONGEST: Final = 1024  # bytes of a name; a longer one is none
_SEED: Final = int.from_bytes(os.urandom(8), "little")  # nobody can look for two of one hash


def flow_of(
    key: Key | None, names_users: bool, header: bytes | None, field: msgspec.Raw | None
) -> Flow:
    """The flow of a request. `header` and the body's `field` name its user, the header first;
    `names_users`: whether a request without a key may."""
    name = ""
    if key is not None:
        name = key.name
        names_users = key.names_users
    if not names_users:
        return (name, 0) if name else NOBODY
    user = b""
    if header:
        user = header
    elif field is not None and len(field) <= _LONGEST:
        value = value_of(field)
        if isinstance(value, str):
            user = value.encode("utf-8", "replace")
    if not user or len(user) > _LONGEST:
        return (name, 0) if name else NOBODY
    return name, xxh3_64_intdigest(user, _SEED) or 1


def header_of(lines: bytes, begins: bytes) -> bytes | None:
    """The value of a field among a head's lines, each behind its CRLF. `begins`: how its line does,
    in lower case: CRLF, name and colon."""
    at = lines.lower().find(begins)
    if at < 0:
        return None
    start = at + len(begins)
    end = lines.find(b"\r", start)
    return (lines[start:end] if end >= 0 else lines[start:]).strip(b" \t")


class Pending:
    """How many requests each flow has in the house."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Flow, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, flow: Flow) -> int:
        return self._counts.get(flow, 0)

    def come(self, flow: Flow) -> int:
        """A request of it is here; how many were before it. Exactly one `go` follows."""
        before = self._counts.get(flow, 0)
        self._counts[flow] = before + 1
        return before

    def go(self, flow: Flow) -> None:
        """One of its requests is over."""
        left = self._counts[flow] - 1
        if left:
            self._counts[flow] = left
        else:
            del self._counts[flow]


def with_steps(urgency: Urgency, steps: int) -> Urgency:
    """The urgency of a request that so many of its own flow are pending before."""
    if steps <= 0:
        return urgency
    return Urgency(stepped(urgency.number, steps), urgency.source)
