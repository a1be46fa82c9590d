"""Blocks of a log in another order."""

from __future__ import annotations

import json

from tests.engine.loads.blocks import GAP_S, in_order


def line(at: float, duration_ms: float = 500.0) -> bytes:
    return json.dumps({"ts": at, "duration_ms": duration_ms, "id": f"{at:g}"}).encode()


def test_the_blocks_follow_each_other_and_keep_their_own_distances() -> None:
    blocks = [[line(100.0), line(102.0)], [line(50.0, 2000.0), line(51.0)], [line(10.0)]]
    rows = [json.loads(one) for one in in_order(blocks)]
    ends = 102.5 + GAP_S
    assert [row["ts"] for row in rows] == [
        100.0,
        102.0,
        ends,
        ends + 1.0,
        ends + 2.0 + GAP_S,
    ]
    assert [row["id"] for row in rows] == ["100", "102", "50", "51", "10"]
