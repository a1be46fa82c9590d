"""Makes predictions for the requests of an access log, as the router would have made them.

The dispatches, first tokens and ends in the log are replayed in the order of their times, with the
router's own code for leases and learning. The prompt's tokens and cached tokens are the engine's
counts; the router had only estimates of them at the dispatch. Requests of other routers are not in
the log.

For an answer that was not streamed, the log has no first token. Such a request counts as running
from its dispatch on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.findings.found import Found
from bench.overhead.goals import Verdict
from bench.predictors.errors import Row, columns, read, within
from router.core.lease import Lease
from router.core.replica_load import ReplicaLoad
from router.core.speed_learner import SpeedLearner, SpeedSample
from router.core.text.table import build
from router.core.unreadable import NOT_JSON
from router.observe.log.record import Record

WARM = 0.2  # share of the requests, at the start, whose predictions are not judged
TTFT_GOAL, TPOT_GOAL = 25.0, 10.0  # maximum MAPE in percent for real engines
_DISPATCH, _FIRST, _END = 2, 1, 0  # order of events with equal times: ends first


@dataclass(slots=True, eq=False)
class Logged:
    """One answered request of a log. Times are in seconds since the start of the log."""

    replica: str
    uncached: int
    cached: int
    output: int  # exact number of output tokens; 0 if unknown
    slots: float  # requests that the replica can run at a time; below 0 if unknown
    dispatched: float
    first: float  # time of the first token; below 0 if the answer was not streamed
    ended: float
    lease: Lease | None = field(default=None, init=False)
    sample: SpeedSample | None = field(default=None, init=False)


def requests(path: str) -> list[Logged]:
    """Read the answered requests whose prompt length is known. Raises OSError and ValueError."""
    decode = msgspec.json.Decoder(Record).decode
    found: list[Logged] = []
    begin = None
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = decode(line)
            except NOT_JSON as err:
                if not line.endswith(b"\n"):
                    break  # The last line may be incomplete while the router writes the log.
                raise ValueError(f"{path}, line {number}: {err}") from None
            begin = record.ts if begin is None else min(begin, record.ts)
            if one := _logged(record):
                found.append(one)
    if begin is None or not found:
        raise ValueError(f"{path}: no answered request with known token counts")
    for one in found:
        one.dispatched -= begin
        one.first -= begin if one.first >= 0.0 else 0.0
        one.ended -= begin
    return found


def _logged(record: Record) -> Logged | None:
    if record.status != 200 or record.ttft_ms is None or record.prompt_tokens is None:
        return None
    engine_ms = record.ttft_ms if record.engine_ms is None else record.engine_ms
    first = record.ts + record.ttft_ms / 1000.0
    cached = record.cached_tokens or 0
    is_whole = record.exact and record.reason == "ok"
    return Logged(
        record.replica,
        max(0, record.prompt_tokens - cached),
        cached,
        (record.output_tokens or 0) if is_whole else 0,
        -1.0 if record.slots is None else float(record.slots),
        first - engine_ms / 1000.0,
        first if record.stream else -1.0,
        record.ts + record.duration_ms / 1000.0,
    )


def play(found: Sequence[Logged]) -> list[Row]:
    """Replay all requests, with learning. Returns each replica's errors after the warm-up."""
    places: dict[str, tuple[ReplicaLoad, SpeedLearner]] = {}
    before: dict[str, Row] = {}
    events = sorted(_events(found), key=lambda event: event[:3])
    warm_until = sorted(one.dispatched for one in found)[int(WARM * len(found))]
    for now, what, _, one in events:
        if one.replica not in places:
            place = ReplicaLoad(one.replica)
            places[one.replica] = place, SpeedLearner(place.speed)
        if not before and now >= warm_until:
            before = {name: read(name, [learner]) for name, (_, learner) in places.items()}
        _step(*places[one.replica], one, what, now)
    return [
        read(name, [learner]).since(before.get(name, Row(name)))
        for name, (_, learner) in places.items()
    ]


def _events(found: Sequence[Logged]) -> Iterator[tuple[float, int, int, Logged]]:
    for number, one in enumerate(found):
        yield one.dispatched, _DISPATCH, number, one
        if one.first >= 0.0:
            yield one.first, _FIRST, number, one
        yield one.ended, _END, number, one


def _step(place: ReplicaLoad, learner: SpeedLearner, one: Logged, what: int, now: float) -> None:
    if what == _DISPATCH:
        one.lease = Lease(place, one.uncached)
        if one.first >= 0.0:
            one.sample = learner.dispatched(place, one.uncached, one.cached, one.slots, now)
        else:
            one.lease.begun()
        return
    assert one.lease is not None
    if what == _FIRST:
        one.lease.begun()
        assert one.sample is not None
        learner.shown(place, one.sample, now - one.dispatched, True, now)
        return
    one.lease.release()
    if one.sample is not None:
        learner.ended(place, one.sample, one.output, True, now)


def run(path: str) -> Found:
    """Judge the predictions for a log. Raises OSError and ValueError."""
    found = requests(path)
    rows = play(found)
    return Found(
        "Requests of an access log",
        f"{len(found)} answered requests; those after the first {WARM:.0%} are judged. Tokens are "
        "the engines' counts. Step: TPOT, predicted when the stream ends from the load that it "
        "had.",
        build(rows, columns("replica")),
        verdicts=list(_verdicts(rows)),
    )


def _verdicts(rows: Sequence[Row]) -> Iterator[Verdict]:
    for row in rows:
        yield within(f"TTFT, {row.name}", row.ttft, TTFT_GOAL)
        yield within(f"TPOT, {row.name}", row.tpot, TPOT_GOAL)
