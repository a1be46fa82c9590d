"""Notices within a second that a key has expired, so that its waiting requests are refused.

Without requests nothing is compared: the next request of the key is refused when it arrives.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from router.core.clock import monotonic
from router.dispatch.exchange import Exchange
from router.dispatch.tenants import Tenants
from router.wire.sweep import NEVER, Sweeper

_EVERY_S: Final = 1.0


class KeyExpiry:
    """Compares the times at which keys expire with the clock; a party of the sweeper."""

    def __init__(self, exchanges: Collection[Exchange], tenants: Tenants, sweeper: Sweeper) -> None:
        self.deadline = NEVER
        self._exchanges = exchanges
        self._tenants = tenants
        self._sweeper = sweeper

    def watch(self) -> None:
        """Begin to compare, because a request has a key."""
        if self.deadline == NEVER:
            self.deadline = monotonic() + _EVERY_S
            self._sweeper.add(self)

    def on_deadline(self, now: float) -> None:
        if self._exchanges and self._tenants.keys_expire:
            self.deadline = now + _EVERY_S
        else:
            self.deadline = NEVER
            self._sweeper.discard(self)
        self._tenants.expire_keys()
