"""Combines the counts of both passes over the log into findings.

Only sums and shares are computed; all functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.core.urgency import NUMBERS
from router.lab.audit.crowd import Crowd
from router.lab.audit.findings import (
    Findings,
    PairFinding,
    PartyFinding,
    QueueFinding,
    ReplicaFinding,
)
from router.lab.audit.parties import By, Grouping, label
from router.lab.audit.roster import Roster
from router.lab.audit.survey import Survey
from router.lab.audit.tally import Site, Tally, Victim


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
