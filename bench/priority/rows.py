"""Formats the rows of one part as one table with its goals.

`Times`, `Row`: the results of one order, simulated or over HTTP.

A request without a whole answer counts as slower than all others.

`judge`, `loss`, `kept`: judges the goals of the queue's orders: each is compared with fifo and with
no queue.

The verdict is on the worst order; its note lists all orders that miss the goal. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from typing import Final

from bench.findings.found import Found
from bench.fleet.statistics import quantile, quantile_bounds
from bench.overhead.goals import Verdict
from bench.priority.traffic import CLASSES
from policies.queueing.contract import order_names
from router.config.model import Queue
from router.core.text.table import Column, build

NONE: Final = "no queue"
FIFO: Final = "fifo"
_KNOWN: Final = (
    *("strict", "aging", "round_robin", "fair", "drr"),
    *("dlpm", "shortest", "edf", "slide"),
)
# Orders that are not in `_KNOWN` come last.
ALL: Final = (NONE, FIFO, *_KNOWN, *(n for n in order_names() if n not in (FIFO, *_KNOWN)))


def rules(order: str) -> Queue:
    """Return the configuration of a queue with this order and otherwise default settings."""
    return Queue(enabled=False) if order == NONE else Queue(enabled=True, policy=order)


@dataclass(frozen=True, slots=True)
class Times:
    """Times to first token of one class, in seconds.

    A time is None if there were no requests, or if so many failed that it is not finite.
    """

    requests: int
    p50: float | None
    p99: float | None
    p99_bounds: tuple[float, float] | None  # 95 % confidence interval of the p99


def times(ttfts: Iterable[float]) -> Times:
    """Compute the quantiles. A request without a whole answer is infinite in `ttfts`."""
    ranked = sorted(ttfts)
    bounds = quantile_bounds(ranked, 0.99)
    return Times(
        len(ranked),
        _finite(quantile(ranked, 0.5)),
        _finite(quantile(ranked, 0.99)),
        bounds if bounds is not None and isfinite(bounds[1]) else None,
    )


@dataclass(slots=True)
class Row:
    order: str
    classes: dict[str, Times]
    tokens_s: float  # output tokens that arrived in the measured time
    hit_rate: float | None  # share of the prompt tokens that engines found in their prefix caches
    errors: int = 0
    router_cpu: float | None = None  # CPUs that the router used; None if not measured
    problems: list[str] = field(default_factory=list)

    def of(self, name: str) -> Times:
        return self.classes.get(name) or Times(0, None, None, None)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


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


def found(title: str, method: str, rows: Sequence[Row]) -> Found:
    remarks = [f"! {row.order}: {problem}" for row in rows for problem in row.problems]
    return Found(
        title,
        method,
        build(rows, columns(rows)),
        remarks=remarks,
        verdicts=judge(rows, Queue().policy),
        figures={"rows_by_order": [asdict(row) for row in rows]},
    )


def columns(rows: Sequence[Row]) -> list[Column[Row]]:
    at = {row.order: row for row in rows}

    def ttft(row: Row, name: str, of: str) -> float | None:
        value: float | None = getattr(row.of(name), of)
        return value

    def lost(row: Row) -> float | None:
        found = None if row.order == NONE else loss(row, at.get(FIFO))
        return None if found is None else -100.0 * found

    def held(row: Row) -> float | None:
        found = kept(row, at.get(NONE))
        return None if found is None else 100.0 * found

    shown: list[Column[Row]] = [
        Column("order", "order", text=lambda row: row.order + ("!" if row.problems else "")),
    ]
    for name in CLASSES:
        for of in ("p50", "p99"):
            value: Callable[[Row], float | None] = partial(ttft, name=name, of=of)
            shown.append(Column(f"{name}_{of}", f"TTFT {of}", f"s, {name}", value, "low"))
    shown += [
        Column("tokens", "output", "tokens/s", lambda row: row.tokens_s, "high"),
        Column("lost", "of it", "% over fifo", lost),
        Column("hits", "hits", "% of prompts", lambda row: _percent(row.hit_rate), "high"),
        Column("held", "of them", "% of no queue", held),
    ]
    if any(row.errors for row in rows):
        shown.append(Column("errors", "errors", "", lambda row: row.errors, "low"))
    if any(row.router_cpu is not None for row in rows):
        shown.append(Column("router", "router", "CPU", lambda row: row.router_cpu))
    return shown


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
