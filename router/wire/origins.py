"""Counts client connections by source address, and chooses which to close when there are too many.

When connections are scarce, a connection of the address with the most connections is closed. Only
a connection that waits for a request is closed, including a new one that has sent no request. So
an address that holds thousands of idle connections, or sends heads byte by byte, cannot lock out
other addresses. A connection that has just served a request stays open for a second, because its
client may be about to use it.

The search for a connection to close begins where the last search ended, and examines at most
`_LOOKS` connections. So its cost does not depend on the number of connections.

Must never: close a connection with a request in progress.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, cast

from mypy_extensions import mypyc_attr

from router.core.client_address import counted_peer
from router.core.ranking import Ranked, Ranking

# The peer name of a connection inside the router's process, or of a connection that was already
# reset when it was accepted.
INSIDE: Final = "-"
_LOOKS: Final = 64  # maximum number of connections that one search examines


@mypyc_attr(allow_interpreted_subclasses=True)
class Counted(ABC):
    """A connection that is counted under its source address."""

    __slots__ = ("origin", "peer", "place")

    def __init__(self) -> None:
        self.peer = INSIDE
        self.origin: Origin | None = None  # the group of connections with the same address
        self.place = 0  # the index of this connection in its group

    @abstractmethod
    def is_quiet(self, now: float, *, is_own: bool) -> bool:
        """Return whether this connection may be closed so that a new connection can stay open.

        `is_own`: the new connection has the same source address.
        """

    @abstractmethod
    def shed(self) -> None:
        """Closes this connection, which waits for a request, so that another may stay open."""


class Origin(Ranked):
    """The client connections from one source address."""

    __slots__ = ("connections", "hand", "name")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.connections: list[Counted] = []
        self.hand = 0  # the index where the next search begins

    def quiet(self, now: float, *, is_own: bool) -> Counted | None:
        """Return a connection of this address that may be closed so that a new one can stay open.

        Returns None if the search finds none. `is_own`: the new connection has the same address.
        """
        connections = self.connections
        for _ in range(min(_LOOKS, len(connections))):
            if self.hand >= len(connections):
                self.hand = 0
            found = connections[self.hand]
            self.hand += 1
            if found.is_quiet(now, is_own=is_own):
                return found
        return None


class Origins:
    """All source addresses that have client connections."""

    __slots__ = ("_by_name", "_ranking")

    def __init__(self) -> None:
        self._by_name: dict[str, Origin] = {}
        self._ranking = Ranking()

    def __len__(self) -> int:
        return len(self._by_name)

    def join(self, client: Counted) -> None:
        peer = client.peer
        # Only an IPv6 address can be written in several ways, so only it is normalized.
        name = counted_peer(peer) if ":" in peer else peer
        origin = self._by_name.get(name)
        if origin is None:
            origin = self._by_name[name] = Origin(name)
        client.origin = origin
        client.place = len(origin.connections)
        origin.connections.append(client)
        if peer != INSIDE:
            self._ranking.move(origin, len(origin.connections))

    def leave(self, client: Counted) -> None:
        origin = client.origin
        if origin is None:
            return
        client.origin = None
        connections = origin.connections
        last = connections.pop()
        if last is not client:
            connections[client.place] = last
            last.place = client.place
        if origin.name != INSIDE:
            self._ranking.move(origin, len(connections))
        if not connections:
            del self._by_name[origin.name]

    def is_largest(self, client: Counted) -> bool:
        """Return whether no other address has more connections than the client's address."""
        largest, own = self._ranking.largest(), client.origin
        return largest is None or own is None or largest.level <= len(own.connections)

    def quiet(self, client: Counted, now: float) -> Counted | None:
        """Return a connection to close so that the new connection `client` can stay open.

        Returns None if no connection may be closed.
        """
        largest, own = self._ranking.largest(), client.origin
        if largest is None or own is None:
            return None
        if largest.level <= len(own.connections):
            return own.quiet(now, is_own=True)
        return cast(Origin, largest).quiet(now, is_own=False)
