"""The findings of an audit, and how the counts of both passes over the log become findings.

`PartyFinding`, `PairFinding`, `QueueFinding`: the findings of an audit, for the text report and for
`--json`.

Times are in seconds and shares from 0 to 1. None: the value is not known. Must never compute a
value.

`assemble`: combines the counts of both passes over the log into findings.

Only sums and shares are computed; all functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.core.urgency import NUMBERS
from router.lab.audit.blame import Parts, Roster, Site, Tally, Victim
from router.lab.audit.parties import By, Crowd, Grouping, label
from router.lab.audit.survey import Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyFinding:
    """One party: its load, its waits, and the waits that it causes for others."""

    label: str
    name: str
    priority: str
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    token_share: float  # the party's share of all tokens
    ttft_p99_s: float | None  # TTFT of the party's streams
    without_others_p99_s: float | None  # estimated TTFT of its streams without other parties
    ttft: Parts  # parts of the TTFT of all streams of the party
    p99: Parts  # parts of the TTFT of streams at or above the party's p99
    caused_s: float  # seconds of delay that this party causes to all others together
    at_once_mean: float
    at_once_peak: int
    at_once_peak_at: float  # time of the peak, in seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFinding:
    """The delay that the requests of one party cause to another party, or to itself."""

    victim: str  # label of the delayed party
    causer: str
    itself: bool
    delay_s: float
    share: float  # the delay as a share of the victim's times to first token
    p99_share: float  # the same share, of times at or above the victim's p99


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFinding:
    """The wait of one class's requests in the router's queue."""

    name: str  # name of the class
    requests: int
    waited: int
    in_vain: int  # requests that waited and that no replica answered
    wait_p50_s: float | None  # seconds, of the requests that waited
    wait_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFinding:
    name: str
    attempts: int
    failures: dict[str, int]  # attempts that failed because of this replica, by reason
    unexplained_share: float  # unexplained share of the replica's times to first token


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All findings of an audit.

    Parties are sorted by tokens, pairs by delay, and replicas by attempts, the largest first.
    """

    files: list[str]
    told_by: Grouping  # the attribute that distinguishes parties; may differ from `asked_by`
    asked_by: str
    begin: float  # first arrival, in seconds since 1970
    end: float
    requests: int
    failed: int
    streams: int  # requests with a known first token; only these are examined for delays
    parties: list[PartyFinding]
    pairs: list[PairFinding]
    queue: list[QueueFinding]  # the most urgent class first; empty: no request waited
    replicas: list[ReplicaFinding]
    known: float  # share of streams with a prompt length that was often served without delay
    unexplained_share: float  # unexplained share of all times to first token
    notes: list[str]  # sentences about data that the log lacks


def assemble(
    paths: Sequence[str],
    by: By,
    told: Grouping,
    survey: Survey,
    roster: Roster,
    tally: Tally,
    crowds: Mapping[int, Crowd],
    *,
    incomplete: int,
    late: int,
) -> Findings:
    victims = [tally.victims.get(number, Victim()) for number in range(len(roster.parties))]
    labels = [label(party, told) for party in roster.parties]
    whole = sum(victim.all.total_s for victim in victims)
    unexplained = sum(victim.all.unexplained_s for victim in victims)
    return Findings(
        files=list(paths),
        asked_by=by,
        told_by=told,
        begin=survey.begin,
        end=survey.end,
        requests=survey.rows,
        failed=survey.failed,
        streams=survey.streams,
        parties=_parties(labels, roster, victims, crowds, survey.end - survey.begin),
        pairs=_pairs(labels, victims),
        queue=_queue(survey),
        replicas=_replicas(survey, tally),
        known=survey.alone.known,
        unexplained_share=unexplained / whole if whole > 0.0 else 0.0,
        notes=_notes(survey, roster, by, told, incomplete, late),
    )


def _parties(
    labels: Sequence[str],
    roster: Roster,
    victims: Sequence[Victim],
    crowds: Mapping[int, Crowd],
    span_s: float,
) -> list[PartyFinding]:
    tokens = sum(figures.prompt + figures.output for figures in roster.figures)
    found = []
    for number, (party, figures) in enumerate(zip(roster.parties, roster.figures, strict=True)):
        victim = victims[number]
        crowd = crowds.get(number, Crowd())
        mine = figures.prompt + figures.output
        found.append(
            PartyFinding(
                label=labels[number],
                name=party.name,
                priority=party.priority,
                requests=figures.requests,
                failed=figures.failed,
                prompt_tokens=figures.prompt,
                output_tokens=figures.output,
                token_share=mine / tokens if tokens else 0.0,
                ttft_p99_s=figures.ttft.quantile(0.99),
                without_others_p99_s=victim.without.quantile(0.99),
                ttft=victim.all,
                p99=victim.tail,
                caused_s=sum(other.by.get(number, 0.0) for other in victims if other is not victim),
                at_once_mean=crowd.seconds / span_s if span_s > 0.0 else 0.0,
                at_once_peak=crowd.peak,
                at_once_peak_at=crowd.peak_at,
            )
        )
    found.sort(key=lambda party: -(party.prompt_tokens + party.output_tokens))
    return found


def _pairs(labels: Sequence[str], victims: Sequence[Victim]) -> list[PairFinding]:
    """Return pairs of parties in which one party delayed the other."""
    found = []
    for number, victim in enumerate(victims):
        for other in range(len(victims)):
            delay = victim.by.get(other, 0.0)
            if delay > 0.0:
                found.append(
                    PairFinding(
                        victim=labels[number],
                        causer=labels[other],
                        itself=number == other,
                        delay_s=delay,
                        share=victim.all.share(delay),
                        p99_share=victim.tail.share(victim.tail_by.get(other, 0.0)),
                    )
                )
    found.sort(key=lambda pair: -pair.delay_s)
    return found


def _queue(survey: Survey) -> list[QueueFinding]:
    found = [
        QueueFinding(
            name=name,
            requests=figures.requests,
            waited=figures.waits.count,
            in_vain=figures.in_vain,
            wait_p50_s=figures.waits.quantile(0.5),
            wait_p99_s=figures.waits.quantile(0.99),
        )
        for name, figures in sorted(survey.queues.items(), key=lambda item: NUMBERS[item[0]])
    ]
    return found if any(each.waited for each in found) else []


def _replicas(survey: Survey, tally: Tally) -> list[ReplicaFinding]:
    found = []
    for name, entry in survey.replicas.heaviest():
        figures = entry.value
        site = tally.sites.get(name, Site())
        found.append(
            ReplicaFinding(
                name=name,
                attempts=figures.attempts,
                failures=dict(figures.failures.most_common()),
                unexplained_share=site.unexplained_s / site.seconds if site.seconds else 0.0,
            )
        )
    return found


def _notes(
    survey: Survey, roster: Roster, by: By, told: Grouping, incomplete: int, late: int
) -> list[str]:
    """Return sentences about data that the log lacks, and the effect on the findings."""
    notes = []
    if by == "tenant" and told == "client":
        notes.append(
            "No line names a tenant, so clients are distinguished by their addresses. A proxy in "
            "front of the router counts as one client."
        )
    elif by == "tenant" and told == "model":
        notes.append(
            "No line names a tenant and all have one address, so they are distinguished by model."
        )
    answers = survey.answers
    if survey.uncounted:
        notes.append(
            f"{_of(survey.uncounted, answers)} answers have no engine's count of their prompt "
            "tokens. The router's estimate is used, or a quarter of the body's bytes."
        )
    if survey.uncached_unknown:
        notes.append(
            f"{_of(survey.uncached_unknown, answers)} answers do not report how much of their "
            "prompt was cached. It counts as computed."
        )
    if answers > survey.streams:
        notes.append(
            f"{_of(answers - survey.streams, answers)} answers were not streams. The time of their "
            "first token is estimated from their end; they cause delays but are not delayed."
        )
    if roster.unwatched:
        notes.append(
            "There are too many parties. Those with the fewest tokens are combined as all others, "
            "and the figures of the lightest named ones may lack their first requests."
        )
    if late:
        notes.append(
            f"{late:,} lines were too far out of order to be sorted. If the file joins the logs of "
            "several routers, pass them as separate files."
        )
    if incomplete:
        noun = "line was" if incomplete == 1 else "lines were"
        notes.append(
            f"{incomplete:,} incomplete {noun} skipped: the disk was full, or the file is still "
            "being written."
        )
    return notes


def _of(some: int, all: int) -> str:
    """Format a count out of a total: "All 40", "12 of 40"."""
    return f"All {all:,}" if some == all else f"{some:,} of {all:,}"
