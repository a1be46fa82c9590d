"""Formats the rows of one part as one table with its goals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from bench.findings.found import Found
from bench.priority.goals import judge, kept, loss
from bench.priority.orders import FIFO, NONE
from bench.priority.rows import Row
from bench.priority.traffic import CLASSES
from router.config.model import Queue
from router.core.text.table import Column, build


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
