"""Formats findings as text: the conclusions in sentences, and one table of the parties.

All functions are pure. Must never name a party as a cause below the thresholds of this module, or
call an estimate a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from textwrap import wrap
from typing import Final

from router.core.text.printable import printable
from router.core.text.table import Column, build, plain
from router.lab.audit.blame import Parts
from router.lab.audit.findings import Findings, PairFinding, PartyFinding, ReplicaFinding
from router.lab.audit.parties import OTHERS
from router.lab.replay.report.words import seconds

_NAME_CHARS: Final = 30


def parties(findings: Findings, top: int) -> list[str]:
    """Return the load, the waits and the caused delays of the parties with the most tokens."""

    def of_p99(field: Callable[[Parts], float]) -> Callable[[PartyFinding], float | None]:
        return lambda party: _cell_percent(party.p99.share(field(party.p99)))

    columns: list[Column[PartyFinding]] = [
        Column("name", findings.told_by, text=name),
        Column("streams", "streams", value=lambda party: party.ttft.requests),
        Column("tokens", "tokens", "%", lambda party: _cell_percent(party.token_share)),
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


def _cell_percent(share: float | None) -> float | None:
    return None if share is None else round(100.0 * share)


MATTERS: Final = 0.05  # minimum share of a party's p99 TTFT for a cause to be named
# Minimum number of streams of a delayed party; a p99 of fewer streams is not reliable.
STREAMS_MIN: Final = 20
# Minimum share of a party's p99 TTFT for a delay by its own other requests to be named.
_OWN_MATTERS: Final = 0.25
# Minimum unexplained share of a replica's times to first token for it to be named.
_SLOW: Final = 0.15
_BURST: Final = 4.0  # minimum peak of concurrent requests of a burst, as a multiple of the average
_BURST_MIN: Final = 8
_KNOWN: Final = 0.9  # minimum share of streams whose time on an idle replica is known
_WIDTH: Final = 100
# Begin of a list entry, or of a further line of the entry.
_MARK: Final = re.compile(r"- |\d+\. | +")
_LABEL_CHARS: Final = 60
_KINDS_MAX: Final = 2  # maximum number of failure reasons listed per replica
_PLURALS: Final = {"class": "classes"}


def report_text(findings: Findings, top: int = 10) -> str:
    """Return the whole report, with at most `top` entries per list."""
    sections = [
        ("Delays by other requests", _answers(findings, top)),
        (f"By {findings.told_by}", [*parties(findings, top), *_bursts(findings, top)]),
        (
            "Queue and replicas",
            [*_queue(findings), *_failing(findings, top), *_slow(findings, top)],
        ),
        ("Accuracy", _trust(findings)),
    ]
    lines = _heading(findings)
    for title, body in sections:
        if body:
            lines += ["", title, "=" * len(title), *body]
    return "".join(f"{line}\n" for text in lines for line in _wrapped(text))


def _heading(findings: Findings) -> list[str]:
    names = len({party.name for party in findings.parties if party.name != OTHERS})
    some = "more than " if any(party.name == OTHERS for party in findings.parties) else ""
    who = findings.told_by if names == 1 else _PLURALS.get(findings.told_by, f"{findings.told_by}s")
    where = len(findings.replicas)
    lines = [
        f"Audit of {', '.join(findings.files)}",
        f"{_moment(findings.begin)} to {_until(findings.begin, findings.end)} UTC "
        f"({_span(findings.end - findings.begin)}): {findings.requests:,} requests of "
        f"{some}{names:,} {who} on {where:,} {'replica' if where == 1 else 'replicas'}.",
    ]
    if findings.failed:
        share = 100.0 * findings.failed / findings.requests
        lines.append(f"{findings.failed:,} of them failed because of the fleet ({share:.2g} %).")
    return lines


def _answers(findings: Findings, top: int) -> list[str]:
    """Return sentences about each party that delays another party, the largest delay first.

    If no delay is large enough, a sentence says so.
    """
    by_label = {party.label: party for party in findings.parties}
    known = [pair for pair in findings.pairs if by_label[pair.victim].ttft.requests >= STREAMS_MIN]
    others = [pair for pair in known if not pair.itself]
    others.sort(key=lambda pair: -pair.delay_s)
    matters = [pair for pair in others if pair.p99_share >= MATTERS]
    least = f"{100.0 * MATTERS:.0f} %"
    lines: list[str] = []
    told: set[str] = set()
    for number, pair in enumerate(matters[:top], 1):
        lines += _answer(number, pair, by_label[pair.victim], first=pair.victim not in told)
        told.add(pair.victim)
    rest = len(matters) - top
    if rest > 0:
        lines.append(f"... and {rest:,} more such pairs; --top {len(matters)} shows them all.")
    elif matters:
        lines.append(f"No other delay is {least} or more of a p99 TTFT.")
    else:
        lines.append(f"None: no delay by others is {least} or more of a p99 TTFT.")
        if others and others[0].delay_s > 0.0:
            worst = others[0]
            lines.append(
                f"Largest delay: {_percent(worst.p99_share)} of the p99 TTFT of "
                f"{_who(worst.victim)}, by {_who(worst.causer)}."
            )
    own = [pair for pair in known if pair.itself and pair.p99_share >= _OWN_MATTERS]
    own.sort(key=lambda pair: -pair.p99_share)
    lines += [
        f"{_capital(_who(pair.victim))} delays itself: {_percent(pair.p99_share)} of its "
        f"p99 TTFT of {_p99(by_label[pair.victim])} is waiting for its own other requests."
        for pair in own[:top]
    ]
    return lines


def _answer(number: int, pair: PairFinding, victim: PartyFinding, *, first: bool) -> list[str]:
    mark = f"{number}. "
    lines = [
        f"{_capital(_who(pair.causer))} delays {_who(pair.victim)}: {_percent(pair.p99_share)} "
        f"of its p99 TTFT of {_p99(victim)}.",
        f"In total, its {victim.ttft.requests:,} streams were delayed by {seconds(pair.delay_s)}, "
        f"{_percent(pair.share)} of the sum of their TTFT.",
    ]
    if first and victim.without_others_p99_s is not None:
        lines.append(
            f"Without others its p99 would be about {seconds(victim.without_others_p99_s)}."
        )
    indent = " " * len(mark)
    return [mark + lines[0], *(indent + line for line in lines[1:])]


def _bursts(findings: Findings, top: int) -> list[str]:
    """Return a sentence about each party that sends bursts."""
    found = [
        party
        for party in findings.parties
        if party.name != OTHERS
        and party.at_once_peak >= max(_BURST_MIN, _BURST * party.at_once_mean)
    ]
    found.sort(key=lambda party: -party.at_once_peak)
    return [
        f"{_capital(_who(party.label))} sends bursts: {party.at_once_peak:,} requests at once "
        f"at {_moment(party.at_once_peak_at)} UTC, {party.at_once_mean:.2g} on average."
        for party in found[:top]
    ]


def _queue(findings: Findings) -> list[str]:
    """Return a sentence about each class whose requests waited in the router's own queue."""
    return [
        f"Class {each.name}: {each.waited:,} of {each.requests:,} requests waited in the router's "
        f"queue, half of them {_length(each.wait_p50_s)} or less, the p99 "
        f"{_length(each.wait_p99_s)}; {each.in_vain:,} were never sent."
        for each in findings.queue
        if each.waited
    ]


def _failing(findings: Findings, top: int) -> list[str]:
    """Return a sentence about each replica with failed attempts, the largest share first."""
    found = [replica for replica in findings.replicas if replica.failures]
    found.sort(key=lambda replica: -sum(replica.failures.values()) / max(replica.attempts, 1))
    return [
        f"{short(replica.name)}: {sum(replica.failures.values()):,} of {replica.attempts:,} "
        f"attempts failed: {_failures(replica)}."
        for replica in found[:top]
    ]


def _failures(replica: ReplicaFinding) -> str:
    kinds = list(replica.failures.items())
    texts = [f"{count:,} {reason}" for reason, count in kinds[:_KINDS_MAX]]
    rest = sum(count for _, count in kinds[_KINDS_MAX:])
    return ", ".join([*texts, f"{rest:,} others"] if rest else texts)


def _slow(findings: Findings, top: int) -> list[str]:
    """Return a sentence about each replica that takes longer than its known load explains."""
    usual = findings.unexplained_share
    found = [
        replica
        for replica in findings.replicas
        if replica.unexplained_share >= max(_SLOW, 2.0 * usual)
    ]
    found.sort(key=lambda replica: -replica.unexplained_share)
    return [
        f"{short(replica.name)}: the log does not explain {_percent(replica.unexplained_share)} "
        f"of its times to first token (fleet: {_percent(usual)}). It is slower than the others, "
        "stalls, or also serves clients that do not use this router."
        for replica in found[:top]
    ]


def _trust(findings: Findings) -> list[str]:
    lines = [
        "- The causes are an estimate, from the requests that a replica served while another one "
        "waited there. `hedgerow replay` of the same log shows what another policy would change.",
        f"- {_percent(findings.unexplained_share)} of all times to first token remain unexplained.",
    ]
    if findings.known < _KNOWN:
        lines += [
            f"- The prefill time without delay is well known for {_percent(findings.known)} of the "
            "streams only. Few prompts of other lengths were served without delay, so the delays "
            "are underestimated.",
        ]
    return lines + [f"- {note}" for note in findings.notes]


def _wrapped(text: str) -> list[str]:
    """Wrap prose; tables stay unchanged."""
    if len(text) <= _WIDTH or not text.endswith("."):
        return [text]
    mark = _MARK.match(text)
    indent = " " * (mark.end() if mark is not None else 0)
    return wrap(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _p99(party: PartyFinding) -> str:
    return _length(party.ttft_p99_s)


def _length(value: float | None) -> str:
    return "unknown length" if value is None else seconds(value)


def _who(label: str) -> str:
    return short(label, _LABEL_CHARS)


def _percent(share: float) -> str:
    percent = 100.0 * share
    return f"{percent:.0f} %" if percent >= 9.95 or percent == 0.0 else f"{percent:.1f} %"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _span(length_s: float) -> str:
    """Format a duration in minutes, hours or days."""
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if length_s >= 2.0 * size:
            return f"{length_s / size:.3g} {unit}"
    return seconds(length_s)


def _until(begin: float, end: float) -> str:
    """Format the end of a span. The date is included only if it differs from that of the begin."""
    first, last = _moment(begin), _moment(end)
    return last.split()[1] if first.split()[0] == last.split()[0] else last


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
