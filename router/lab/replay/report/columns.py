"""Defines the columns of the tables by run, by class and by tenant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from router.core.text.table import Column
from router.lab.replay.report.group import Group
from router.lab.replay.report.run import Run
from router.lab.sketch import Sketch

_MS = 1e3
_PERCENT = 100.0
_PARTS_MAX = 10  # maximum number of classes or tenants in a table


def of_runs(runs: Sequence[Run]) -> list[Column[Run]]:
    """Return the columns of the table of runs.

    A column is left out if these runs have no values for it.
    """
    columns: list[Column[Run]] = [
        Column("policy", "policy", text=lambda run: run.policy),
        Column("replicas", "replicas", value=lambda run: run.scenario.replicas),
    ]
    if any(run.scenario.routers > 1 for run in runs):
        columns.append(Column("routers", "routers", text=lambda run: run.routers))
    if any(run.summary.all.failed for run in runs):
        columns.append(
            Column("failed", "failed", value=lambda run: run.summary.all.failed, better="low")
        )
    columns += [
        Column(
            "ttft_mean",
            "TTFT mean",
            "ms",
            lambda run: _scaled(run.summary.all.ttft.mean, _MS),
            "low",
        ),
        _quantile("ttft_p50", "TTFT p50", lambda group: group.ttft, 0.5),
        _quantile("ttft_p99", "TTFT p99", lambda group: group.ttft, 0.99),
        _quantile("tpot_p50", "TPOT p50", lambda group: group.tpot, 0.5),
        _quantile("tpot_p99", "TPOT p99", lambda group: group.tpot, 0.99),
        Column(
            "latency_p99",
            "latency p99",
            "s",
            lambda run: run.summary.all.quantile(run.summary.all.latency, 0.99),
            "low",
        ),
        Column(
            "slo",
            "in SLO",
            "%",
            lambda run: _scaled(run.summary.all.attainment, _PERCENT),
            "high",
        ),
        Column("goodput", "goodput", "req/s", lambda run: run.summary.goodput, "high"),
        Column(
            "goodput_tokens",
            "goodput",
            "tok/s",
            lambda run: run.summary.per_s(run.summary.all.good_tokens),
            "high",
        ),
        Column(
            "hits", "hits", "%", lambda run: _scaled(run.summary.all.hit_rate, _PERCENT), "high"
        ),
        Column("hotspot", "hotspot", "× even", lambda run: run.summary.hotspot, "low"),
    ]
    if any(run.summary.hedged for run in runs):
        columns += [
            Column("hedged", "hedged", "requests", lambda run: run.summary.hedged),
            Column("hedges_won", "won", "by the copy", lambda run: run.summary.hedges_won),
            Column("extra", "extra", "% of prefill", _extra),
        ]
    return columns


def _extra(run: Run) -> float | None:
    """Return the wasted prefill tokens in percent of the needed prefill tokens."""
    summary = run.summary
    needed = summary.all.prompt_tokens - summary.all.cached_tokens
    return _PERCENT * summary.wasted_tokens / needed if needed else None


class Part(NamedTuple):
    """The requests of one class or one tenant in one run."""

    run: Run
    name: str
    group: Group


def parts_of(runs: Sequence[Run], of: str) -> list[Part]:
    """Return the largest classes (`of` is "by_class") or tenants ("by_tenant").

    There is one entry per class or tenant and run. The result is empty if there are fewer than two
    classes or tenants.
    """
    sizes: dict[str, int] = {}
    for run in runs:
        for name, group in getattr(run.summary, of).items():
            sizes[name] = max(sizes.get(name, 0), group.requests)
    if len(sizes) < 2:
        return []
    names = sorted(sizes, key=lambda name: (-sizes[name], name))[:_PARTS_MAX]
    return [
        Part(run, name, group)
        for name in names
        for run in runs
        if (group := getattr(run.summary, of).get(name)) is not None
    ]


def of_parts(what: str, parts: Sequence[Part] = ()) -> list[Column[Part]]:
    """Return the columns of a table by class or by tenant. `what` is the title of the first column.

    Columns about the queue are left out if no run has a queue.
    """
    columns: list[Column[Part]] = [
        Column("name", what, text=lambda part: part.name),
        Column("policy", "policy", text=lambda part: part.run.policy),
        Column("requests", "requests", value=lambda part: part.group.requests),
        Column("failed", "failed", value=lambda part: part.group.failed, better="low"),
        _of_part("ttft_p50", "TTFT p50", lambda group: group.ttft, 0.5),
        _of_part("ttft_p99", "TTFT p99", lambda group: group.ttft, 0.99),
        _of_part("tpot_p99", "TPOT p99", lambda group: group.tpot, 0.99),
        Column("slo", "in SLO", "%", lambda part: _scaled(part.group.attainment, _PERCENT), "high"),
        Column("hits", "hits", "%", lambda part: _scaled(part.group.hit_rate, _PERCENT), "high"),
    ]
    if any(part.run.scenario.config.queue.enabled for part in parts):
        columns[4:4] = [
            Column("refused", "refused", value=lambda part: part.group.refused, better="low"),
            Column("expired", "expired", value=lambda part: part.group.expired, better="low"),
            _waited("queued_p50", "queued p50", 0.5),
            _waited("queued_p99", "queued p99", 0.99),
        ]
    return columns


def _waited(key: str, title: str, q: float) -> Column[Part]:
    def value(part: Part) -> float | None:
        return _scaled(part.group.waits.quantile(q), _MS)

    return Column(key, title, "ms", value, "low")


def _quantile(key: str, title: str, of: Callable[[Group], Sketch], q: float) -> Column[Run]:
    def value(run: Run) -> float | None:
        return _scaled(run.summary.all.quantile(of(run.summary.all), q), _MS)

    return Column(key, title, "ms", value, "low")


def _of_part(key: str, title: str, of: Callable[[Group], Sketch], q: float) -> Column[Part]:
    def value(part: Part) -> float | None:
        return _scaled(part.group.quantile(of(part.group), q), _MS)

    return Column(key, title, "ms", value, "low")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
