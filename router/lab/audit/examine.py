"""Makes findings from logs, in two passes over the files.

Memory is bounded by the number of concurrent requests and of watched parties and replicas, never by
the length of the log. Must never format the findings as text (see `report_section`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

from router.lab.audit.blame import Blame, Roster, Tally
from router.lab.audit.findings import Findings, assemble
from router.lab.audit.parties import HEAD_ROWS, By, Crowd, Party, namer, told_by
from router.lab.audit.residency import (
    END,
    START,
    Progress,
    Reading,
    Row,
    Stay,
    rows,
    stay_of,
    sweep,
)
from router.lab.audit.survey import Survey
from router.lab.traces.lines import Lines

NAMED: Final = 64  # maximum number of parties that are listed separately
_P99: Final = 0.99


def examine(
    paths: Sequence[str],
    by: By = "tenant",
    *,
    named: int = NAMED,
    on_progress: Progress | None = None,
) -> Findings:
    """Return the findings of one log, or of the logs of several routers in front of one fleet.

    Raises TraceError for a file that is not an access log or has no stream with a first token,
    OSError for an unreadable file, and ValueError if `named` allows no party.
    """
    if named < 1:
        raise ValueError("at least one party must be named")
    told = told_by(by, _head(paths))
    name_of = namer(told)

    survey = Survey(name_of)
    with Reading(paths, _half(on_progress, 0)) as reading:
        for now, what, stay in sweep(reading.stays(survey.stays)):
            survey.happens(now, what, stay)
        if not survey.streams:
            raise reading.error("no answered stream in this log, so no TTFT to explain")
        incomplete = reading.incomplete

    roster = Roster(survey.parties, named)
    tally = Tally(_tails(roster))
    crowds: defaultdict[int, Crowd] = defaultdict(Crowd)  # by party
    with Reading(paths, _half(on_progress, 1)) as reading:
        stays = _numbered(survey, roster, name_of)
        _blame(reading.stays(stays, survey.longest_s), tally, crowds, survey)
        late = reading.late
    if on_progress is not None:
        on_progress(1.0)
    return assemble(
        paths, by, told, survey, roster, tally, crowds, incomplete=incomplete, late=late
    )


def _head(paths: Sequence[str]) -> Iterator[Row]:
    for path in paths:
        with closing(Lines(path)) as lines:
            yield from islice(rows(lines), HEAD_ROWS)


def _half(on_progress: Progress | None, number: int) -> Progress | None:
    """Return a function that converts the progress of pass `number` to the total progress."""
    if on_progress is None:
        return None
    return lambda share: on_progress((number + share) / 2)


def _tails(roster: Roster) -> dict[int, float]:
    """Return the smallest TTFT of each party's slowest hundredth of requests, by party number."""
    tails = {}
    for number, figures in enumerate(roster.figures):
        p99 = figures.ttft.quantile(_P99)
        if p99 is not None:
            tails[number] = p99 * (1.0 - figures.ttft.accuracy)
    return tails


def _numbered(
    survey: Survey, roster: Roster, name_of: Callable[[Row], Party]
) -> Callable[[Iterable[Row]], Iterator[Stay]]:
    """Return a function that creates stays from rows.

    Each stay has the number of its party, and the time at which its prefill began.
    """
    pace = survey.tpot.quantile(0.5) or 0.0

    def stays(read: Iterable[Row]) -> Iterator[Stay]:
        for row in read:
            stay = stay_of(row, roster.number(name_of(row)))
            if stay is not None:
                stay.place(survey.alone.seconds(stay.model, stay.uncached), pace)
                yield stay

    return stays


def _blame(
    stays: Iterable[Stay], tally: Tally, crowds: Mapping[int, Crowd], survey: Survey
) -> None:
    blame = Blame()
    watched = {name for name, _ in survey.replicas.heaviest()}
    for now, what, stay in sweep(stays):
        if what == START:
            crowds[stay.party].comes(now)
        wait = blame.happens(now, what, stay)
        if wait is not None:
            tally.add(wait, stay.replica if stay.replica in watched else None)
        if what == END:
            crowds[stay.party].goes(stay.end - stay.start)
