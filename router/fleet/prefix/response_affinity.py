"""Records which replica holds each stored response, and which client (`party`) owns the response.

A stored response (`resp_…`) exists only on the replica that created it, and an engine returns it to
any client that knows its ID.

Memory is bounded: the least recently used response IDs are dropped first.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from router.core.errors import Reason, RouterError

CAPACITY = 100_000
_ID = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_\-]{1,128})"')


def response_id(data: bytes) -> str | None:
    """Return the first stored-response id in the first 4096 bytes of a body or stream."""
    match = _ID.search(data, 0, 4096)
    return match.group(1).decode("ascii") if match else None


class ResponseAffinity:
    """An LRU map from response id to replica id and owner.

    Any client may use a response whose owner is "".
    """

    __slots__ = ("_capacity", "_owners")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._owners: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._owners)

    def learn(self, response: str, replica: str, party: str = "") -> bool:
        """Record which replica created a response, and for which client (`party`).

        Returns False if the id belongs to another client. The entry then stays as it is, because
        some engines let a client choose the id of its response.
        """
        owners = self._owners
        before = owners.get(response)
        if before is not None and before[1] != party:
            return False
        owners[response] = replica, party
        owners.move_to_end(response)
        if len(owners) > self._capacity:
            owners.popitem(last=False)
        return True

    def shown(self, response: str, replica: str) -> None:
        """Record the replica of a response that was read by a client that may not be its owner."""
        if response not in self._owners:
            self.learn(response, replica)

    def find(self, response: str, party: str = "") -> str | None:
        """Return the id of the replica that holds a stored response; `None` if the response is
        unknown.

        Raises RouterError (STATE_LOST) if the stored response belongs to another client.
        """
        found = self._owners.get(response)
        if found is None:
            return None
        replica, owner = found
        if owner and owner != party:
            raise RouterError(Reason.STATE_LOST, "there is no such response")
        self._owners.move_to_end(response)
        return replica
