"""Judges the goals of the queue's orders: each is compared with fifo and with no queue.

The verdict is on the worst order; its note lists all orders that miss the goal. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.overhead.goals import Verdict
from bench.priority.orders import FIFO, NONE
from bench.priority.rows import Row

LOSS: Final = 0.03  # maximum loss of throughput, as a share of fifo's tokens/s
KEPT: Final = 0.6  # minimum prefix hit rate, as a share of the hit rate without a queue


def judge(rows: Sequence[Row], default: str) -> list[Verdict]:
    """Judge the worst order, and also the order `default` alone."""
    at = {row.order: row for row in rows}
    ordered = [row for row in rows if row.order not in (NONE, FIFO)]
    queued = [row for row in rows if row.order != NONE]

    def lost(row: Row) -> float | None:
        return loss(row, at.get(FIFO))

    def missing(row: Row) -> float | None:
        share = kept(row, at.get(NONE))
        return None if share is None else 1.0 - share

    tokens = _Goal("tokens/s against fifo", f"−{LOSS:.0%} at most", LOSS, lost, _signed)
    hits = _Goal("prefix hits against no queue", f"{KEPT:.0%} at least", 1.0 - KEPT, missing, _rest)
    verdicts = [tokens.worst(ordered), hits.worst(queued)]
    if default in at:
        verdicts += [tokens.of(at[default]), hits.of(at[default])]
    return verdicts


def loss(row: Row, fifo: Row | None) -> float | None:
    """The share of fifo's tokens/s that an order loses; below 0 if it has more tokens/s."""
    if fifo is None or fifo.tokens_s <= 0.0:
        return None
    return 1.0 - row.tokens_s / fifo.tokens_s


def kept(row: Row, unqueued: Row | None) -> float | None:
    """The prefix hit rate, divided by the hit rate without a queue."""
    if unqueued is None or not unqueued.hit_rate or row.hit_rate is None:
        return None
    return row.hit_rate / unqueued.hit_rate


@dataclass(frozen=True, slots=True)
class _Goal:
    name: str
    goal: str  # the goal as text
    limit: float  # maximum of `value`; lower is better
    value: Callable[[Row], float | None]
    words: Callable[[float], str]

    def of(self, row: Row) -> Verdict:
        name, value = f"{row.order}: {self.name}", self.value(row)
        if value is None:
            return Verdict(name, self.goal, self.limit, None, "nothing to compare")
        return Verdict(name, self.goal, self.limit, value, "", self.words(value))

    def worst(self, rows: Sequence[Row]) -> Verdict:
        name = f"every order: {self.name}"
        seen = {row.order: found for row in rows if (found := self.value(row)) is not None}
        if not seen:
            return Verdict(name, self.goal, self.limit, None, "nothing to compare")
        worst = max(seen, key=lambda order: seen[order])
        short = [order for order, found in seen.items() if found > self.limit]
        note = f"worst: {worst}"
        if len(short) > 1:
            note += f"; short: {', '.join(short)}"
        return Verdict(name, self.goal, self.limit, seen[worst], note, self.words(seen[worst]))


def _signed(lost: float) -> str:
    return f"{-lost:+.1%}"


def _rest(missing: float) -> str:
    return f"{1.0 - missing:.0%}"
