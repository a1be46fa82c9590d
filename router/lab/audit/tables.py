"""Builds the table of the report: one row per party. Times are in ms, and shares in percent.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router.core.text.printable import printable
from router.core.text.table import Column, build, plain
from router.lab.audit.findings import Findings, PartyFinding
from router.lab.audit.tally import Parts

_NAME_CHARS: Final = 30


def parties(findings: Findings, top: int) -> list[str]:
    """Return the load, the waits and the caused delays of the parties with the most tokens."""

    def of_p99(field: Callable[[Parts], float]) -> Callable[[PartyFinding], float | None]:
        return lambda party: _percent(party.p99.share(field(party.p99)))

    columns: list[Column[PartyFinding]] = [
        Column("name", findings.told_by, text=name),
        Column("streams", "streams", value=lambda party: party.ttft.requests),
        Column("tokens", "tokens", "%", lambda party: _percent(party.token_share)),
        Column("p99", "p99", "ms", lambda party: _ms(party.ttft_p99_s)),
        Column("without99", "w/o p99", "ms", lambda party: _ms(party.without_others_p99_s)),
        Column("alone", "prefill", "%", of_p99(lambda parts: parts.alone_s)),
        Column("others", "others", "%", of_p99(lambda parts: parts.others_s)),
        Column("itself", "itself", "%", of_p99(lambda parts: parts.itself_s)),
        Column("router", "router", "%", of_p99(lambda parts: parts.router_s)),
        Column("unexplained", "unclear", "%", of_p99(lambda parts: parts.unexplained_s)),
        Column("caused", "delays", "s", lambda party: party.caused_s),
    ]
    return [
        *plain(build(findings.parties[:top], columns)).splitlines(),
        "",
        "p99: of the time to first token (TTFT); w/o: estimated without the requests of others. "
        "The next percentages are parts of the TTFT of the slowest hundredth: its own prefill; "
        "waiting for requests of others and for its own; the router, its queue and earlier "
        "attempts; not explained by the log. delays: total time that requests of others waited for "
        "its own.",
    ]


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


def _ms(value: float | None) -> float | None:
    return None if value is None else value * 1e3


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100.0 * share)
