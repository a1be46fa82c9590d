"""Builds the tables of the report, as lines of text. Times are in ms, and shares in percent.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from router.core.text.printable import printable
from router.core.text.table import Column, build, plain
from router.lab.audit.findings import (
    Findings,
    PartyFinding,
    QueueFinding,
    ReplicaFinding,
)
from router.lab.audit.tally import Parts

T = TypeVar("T")

# Maximum number of parties in a matrix, so that it fits into 100 characters.
_MATRIX_MAX: Final = 10
_NAME_CHARS: Final = 30
_KINDS_MAX: Final = 2  # maximum number of failure reasons listed per replica


def waits(findings: Findings, top: int) -> list[str]:
    """Return the times to first token of each party.

    The table also has the estimated times without other parties, and the parts of the p99.
    """
    parties = [party for party in findings.parties if party.ttft.requests][:top]

    def of_p99(field: Callable[[Parts], float]) -> Callable[[PartyFinding], float | None]:
        return lambda party: _percent(party.p99.share(field(party.p99)))

    columns: list[Column[PartyFinding]] = [
        Column("name", findings.told_by, text=name),
        Column("streams", "streams", value=lambda party: party.ttft.requests),
        Column("p50", "p50", "ms", lambda party: _ms(party.ttft_p50_s)),
        Column("p99", "p99", "ms", lambda party: _ms(party.ttft_p99_s)),
        Column("without50", "w/o p50", "ms", lambda party: _ms(party.without_others_p50_s)),
        Column("without99", "w/o p99", "ms", lambda party: _ms(party.without_others_p99_s)),
        Column("alone", "prefill", "%", of_p99(lambda parts: parts.alone_s)),
        Column("others", "others", "%", of_p99(lambda parts: parts.others_s)),
        Column("itself", "itself", "%", of_p99(lambda parts: parts.itself_s)),
        Column("router", "router", "%", of_p99(lambda parts: parts.router_s)),
        Column("unexplained", "unclear", "%", of_p99(lambda parts: parts.unexplained_s)),
    ]
    return [
        *_lines(parties, columns),
        "",
        "w/o: estimated TTFT without the requests of others. Percentages: parts of the TTFT of the "
        "slowest hundredth. prefill: its own prefill; others, itself: waiting for requests of "
        "others and for its own; router: the router, its queue and earlier attempts; unclear: not "
        "explained by the log.",
    ]


def queue(findings: Findings) -> list[str]:
    """Return the waits of each class's requests in the router's own queue."""
    if not findings.queue:
        return []
    columns: list[Column[QueueFinding]] = [
        Column("name", "class", text=lambda each: each.name),
        Column("requests", "requests", value=lambda each: each.requests),
        Column("waited", "waited", value=lambda each: each.waited),
        Column("share", "of all", "%", lambda each: _percent(each.waited / each.requests)),
        Column("p50", "wait p50", "ms", lambda each: _ms(each.wait_p50_s)),
        Column("p99", "wait p99", "ms", lambda each: _ms(each.wait_p99_s)),
        Column("in_vain", "unsent", value=lambda each: each.in_vain),
    ]
    return [
        *_lines(findings.queue, columns),
        "",
        "wait: of the requests that waited; unsent: they expired, or their clients disconnected.",
    ]


def causes(findings: Findings, top: int) -> list[str]:
    """Return the parties that delay others, the largest total delay first."""
    whole = sum(party.caused_s for party in findings.parties)
    parties = sorted(findings.parties, key=lambda party: -party.caused_s)[:top]

    def itself(party: PartyFinding) -> float | None:
        mine = party.ttft.itself_s
        return _percent(mine / (mine + party.caused_s)) if mine + party.caused_s > 0.0 else None

    columns: list[Column[PartyFinding]] = [
        Column("name", findings.told_by, text=name),
        Column("caused", "delays", "s", lambda party: party.caused_s),
        Column(
            "share", "of all", "%", lambda party: _percent(party.caused_s / whole if whole else 0.0)
        ),
        Column("itself", "itself", "%", itself),
        Column("tokens", "tokens", "%", lambda party: _percent(party.token_share)),
        Column("hits", "hits", "%", lambda party: _percent(party.hit_rate)),
        Column("mean", "at once", "mean", lambda party: party.at_once_mean),
        Column("peak", "at once", "peak", lambda party: party.at_once_peak),
        Column("requests", "requests", value=lambda party: party.requests),
        Column("failed", "failed", value=lambda party: party.failed),
    ]
    return [
        *_lines(parties, columns),
        "",
        "delays: total time that requests of others waited for its own; itself: share of the delay "
        "it causes that affects its own requests; hits: share of its prompt tokens found in "
        "caches; at once: its requests under way.",
    ]


def company(findings: Findings, top: int) -> list[str]:
    """Return two matrices of parties.

    The first has the time that two parties share at replicas. The second has the part of a party's
    p99 that it waits for another party.
    """
    parties = findings.parties[: min(top, _MATRIX_MAX)]
    if len(parties) < 2:
        return []
    shared = {(pair.victim, pair.causer): pair.shared_time for pair in findings.pairs}
    lost = {(pair.victim, pair.causer): pair.p99_share for pair in findings.pairs}
    return [
        "Share of the row's time at replicas in which requests of the column are there, too:",
        "",
        *_matrix(parties, shared, findings.told_by, diagonal=False),
        "",
        "Share of the row's p99 TTFT spent waiting for the column (diagonal: for itself):",
        "",
        *_matrix(parties, lost, findings.told_by, diagonal=True),
    ]


def replicas(findings: Findings, top: int) -> list[str]:
    """Return the replicas, those with failures first, then the slowest."""

    def trouble(replica: ReplicaFinding) -> tuple[float, float]:
        failed = sum(replica.failures.values()) / max(replica.attempts, 1)
        return -failed, -(replica.ttft_p99_s or 0.0)

    shown = sorted(findings.replicas, key=trouble)[:top]
    columns: list[Column[ReplicaFinding]] = [
        Column("name", "replica", text=lambda replica: short(replica.name)),
        Column("attempts", "attempts", value=lambda replica: replica.attempts),
        Column("failed", "failed", value=lambda replica: sum(replica.failures.values())),
        Column("retries", "retries", value=lambda replica: replica.retries),
        Column("p50", "TTFT p50", "ms", lambda replica: _ms(replica.ttft_p50_s)),
        Column("p99", "TTFT p99", "ms", lambda replica: _ms(replica.ttft_p99_s)),
        Column("unclear", "unclear", "%", lambda replica: _percent(replica.unexplained_share)),
        Column("why", "failures", text=_failures),
    ]
    lines = _lines(shown, columns)
    if len(findings.replicas) > len(shown):
        lines.append(f"... and {len(findings.replicas) - len(shown):,} more.")
    return lines


def name(party: PartyFinding) -> str:
    """Return the party's label without the name of the attribute, which is the column's title."""
    if not party.name:
        return short(party.label)
    shown = short(party.name)
    return f"{shown} ({party.priority})" if party.priority else shown


def short(text: str, chars: int = _NAME_CHARS) -> str:
    """Make a name from the log printable, and truncate it."""
    shown = printable(text)
    return shown if len(shown) <= chars else shown[: chars - 3] + "..."


def _matrix(
    parties: Sequence[PartyFinding],
    values: dict[tuple[str, str], float],
    told_by: str,
    *,
    diagonal: bool,
) -> list[str]:
    numbers = {party.label: str(number) for number, party in enumerate(parties, 1)}

    def column(other: PartyFinding) -> Column[PartyFinding]:
        def value(party: PartyFinding) -> float | None:
            if party is other and not diagonal:
                return None
            return _percent(values.get((party.label, other.label), 0.0))

        return Column(other.label, numbers[other.label], "%", value)

    columns: list[Column[PartyFinding]] = [
        Column("name", told_by, text=lambda party: f"{numbers[party.label]} {name(party)}"),
        *(column(party) for party in parties),
    ]
    return _lines(parties, columns)


def _lines(things: Sequence[T], columns: Sequence[Column[T]]) -> list[str]:
    return plain(build(things, columns)).splitlines()


def _failures(replica: ReplicaFinding) -> str:
    kinds = list(replica.failures.items())
    texts = [f"{count:,} {reason}" for reason, count in kinds[:_KINDS_MAX]]
    rest = sum(count for _, count in kinds[_KINDS_MAX:])
    return ", ".join([*texts, f"{rest:,} others"] if rest else texts)


def _ms(value: float | None) -> float | None:
    return None if value is None else value * 1e3


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100.0 * share)
