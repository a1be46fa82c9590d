"""The interface of an exact prefix index, which an addon may provide (`addons/kv_events`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from router.fleet.replica import Replica


class ExactPrefixes(Protocol):
    """Knows from the replicas themselves which blocks they hold."""

    def refined(
        self, estimated: Mapping[Replica, int], chains: object, block_tokens: float
    ) -> dict[Replica, int]:
        """Return how many leading blocks of a prompt each replica holds, in place of an estimate.

        `chains`: the prompt's token IDs, as the addon has stored them in the request's view.
        """

    def blocks(self, replica: Replica) -> int | None:
        """Return the number of blocks of a replica; `None`: it reports none."""
