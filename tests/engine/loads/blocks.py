"""Puts the blocks of an access log into another order, as if they had been recorded in it.

A block is what was logged from one idle moment of the fleet to the next. Its times are shifted as a
whole, so all differences within a block stay. Pure.
"""

import json
from collections.abc import Iterator, Sequence

GAP_S = 1.0  # idle time between two blocks


def in_order(blocks: Sequence[Sequence[bytes]]) -> Iterator[bytes]:
    """The lines of the blocks, one block after the other; the first one keeps its times."""
    next_at = None
    for block in blocks:
        rows = [json.loads(line) for line in block]
        begin = min(row["ts"] for row in rows)
        end = max(row["ts"] + row["duration_ms"] / 1e3 for row in rows)
        shift_s = 0.0 if next_at is None else next_at - begin
        for row in rows:
            row["ts"] += shift_s
            yield json.dumps(row, separators=(",", ":")).encode()
        next_at = end + shift_s + GAP_S
