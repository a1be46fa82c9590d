"""What the queue promises as verdicts, within one part: orders against fifo and against no queue.

The worst order stands for all; which others fall short is said beside it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bench.overhead.goals import Verdict
from bench.priority.orders import FIFO, NONE
from bench.priority.rows import Row

LOSS: Final = 0.03  # of fifo's tokens/s
KEPT: Final = 0.6  # of the prefix hit rate without a queue


def judge(rows: Sequence[Row], default: str) -> list[Verdict]:
    """`default`: the order that is shipped; it is judged by itself, too."""
    at = {row.order: row for row in rows}
    ordered = [row for row in rows if row.order not in (NONE, FIFO)]
    queued = [row for row in rows if row.order != NONE]

    def lost(row: Row) -> float | None:
        return loss(row, at.get(FIFO))

    def missing(row: Row) -> float | None:
        share = kept(row, at.get(NONE))
        return None if share is None else 1.0 - share

    fewer, hits = f"−{LOSS:.0%} at most", f"{KEPT:.0%} at least"
    return [
        _worst("tokens/s against fifo", fewer, LOSS, ordered, lost, lambda x: f"{-x:+.1%}"),
        _worst(
            "prefix hits against no queue",
            hits,
            1.0 - KEPT,
            queued,
            missing,
            lambda x: f"{1.0 - x:.0%}",
        ),
        *(
            [
                _only(f"{default}: tokens/s against fifo", fewer, LOSS, lost(at[default]), _signed),
                _only(
                    f"{default}: prefix hits against no queue",
                    hits,
                    1.0 - KEPT,
                    missing(at[default]),
                    lambda x: f"{1.0 - x:.0%}",
                ),
            ]
            if default in at
            else []
        ),
    ]


def loss(row: Row, fifo: Row | None) -> float | None:
    """The share of fifo's tokens/s that an order loses; below 0: it gains."""
    if fifo is None or fifo.tokens_s <= 0.0:
        return None
    return 1.0 - row.tokens_s / fifo.tokens_s


def kept(row: Row, unqueued: Row | None) -> float | None:
    """The prefix hit rate as a share of that without a queue."""
    if unqueued is None or not unqueued.hit_rate or row.hit_rate is None:
        return None
    return row.hit_rate / unqueued.hit_rate


def _signed(lost: float) -> str:
    return f"{-lost:+.1%}"


def _only(
    name: str, goal: str, limit: float, value: float | None, words: Callable[[float], str]
) -> Verdict:
    if value is None:
        return Verdict(name, goal, limit, None, "nothing to compare")
    return Verdict(name, goal, limit, value, "", words(value))


def _worst(
    name: str,
    goal: str,
    limit: float,
    rows: Sequence[Row],
    value: Callable[[Row], float | None],
    words: Callable[[float], str],
) -> Verdict:
    seen = {row.order: found for row in rows if (found := value(row)) is not None}
    name = f"every order: {name}"
    if not seen:
        return Verdict(name, goal, limit, None, "nothing to compare")
    worst = max(seen, key=lambda order: seen[order])
    short = [order for order, found in seen.items() if found > limit]
    note = f"worst: {worst}"
    if len(short) > 1:
        note += f"; short: {', '.join(short)}"
    return Verdict(name, goal, limit, seen[worst], note, words(seen[worst]))
