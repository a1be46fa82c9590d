"""Which replica holds which stored response: `resp_…` ids are known only where they were made.

Bounded: the least recently used ids are forgotten first.
"""

from __future__ import annotations

import re
from collections import OrderedDict

CAPACITY = 100_000
_ID = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_\-]{1,128})"')


def response_id(data: bytes) -> str | None:
    """The first stored-response id in the beginning of a body or stream."""
    match = _ID.search(data, 0, 4096)
    return match.group(1).decode("ascii") if match else None


class Owners:
    """An LRU map from response id to replica id."""

    __slots__ = ("_capacity", "_owners")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._owners)

    def learn(self, response: str, replica: str) -> None:
        owners = self._owners
        owners[response] = replica
        owners.move_to_end(response)
        if len(owners) > self._capacity:
            owners.popitem(last=False)

    def find(self, response: str) -> str | None:
        replica = self._owners.get(response)
        if replica is not None:
            self._owners.move_to_end(response)
        return replica
