"""Polls the engines' metrics: one task per replica, over connections that client requests never
use.

The result of a poll goes to `fleet.polls`: `observed` for signals, `unobserved` for a problem,
`unpolled` if a reload ends the polls. A failed poll affects no other replica. The poller also
detects the engine if the model list did not show it. A replica that answers but has no metrics is
polled rarely, because each poll adds a line to its log.

Polls cost the engine time: vLLM 0.32 needs about 5 ms for its metrics page of 60 KB. So the poller
sends a replica at most one request per `gap_s` seconds on average. This limit includes regular and
early polls, engine detection, the engine's facts and a second source of metrics. The requests of
one poll follow each other at once. Then the next poll is delayed, so that the average stays within
the limit.

Must never: share a connection with client requests, have two polls of one replica in progress, or
make a request wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import msgspec

from router.config.in_force import InForce
from router.config.model import Config, Polling
from router.core.clock import monotonic
from router.core.lease import poll_begins
from router.fleet.engines.common.base import (
    INVALID,
    NO_FACTS,
    Facts,
    JsonSource,
    Known,
    Source,
    TextSource,
    decoded as decode,
)
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.detect import QUESTIONS, detect
from router.fleet.engines.common.exposition import Reader
from router.fleet.engines.common.models import owners
from router.fleet.engines.common.registry import engine_of
from router.fleet.monitor.ask import Asker, NoAnswer, Problem, keep
from router.fleet.monitor.nap import Nap
from router.fleet.replica import Replica
from router.fleet.signals import NO_SIGNALS, Signals
from router.fleet.table.fleet import Fleet

GAP_S: Final = 0.5  # Minimum seconds between two requests to one replica, on average.
# Number of polls in a row without metrics, or with too much data, after which polls become rare.
GIVE_UP: Final = 3
# Maximum bytes of a JSON document: decoding a longer one would block the event loop.
_JSON_BYTES: Final = 1024 * 1024
# Maximum bytes of a metrics page in which the poller searches for the engine's metric names.
_HEAD_BYTES: Final = 256 * 1024


def gap_s(interval_s: float) -> float:
    """Return the minimum seconds per request to one replica: GAP_S, or the poll interval if that is
    shorter."""
    return min(GAP_S, interval_s)


class Poller:
    """The polls of a whole fleet."""

    def __init__(
        self,
        fleet: Fleet,
        in_force: InForce,
        rng: Random,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._fleet = fleet
        self._rng = rng
        self._on_error = on_error
        self._in_force = in_force
        self._asker = Asker(in_force)
        self._turns: dict[Replica, _Turn] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_open = False
        self.odd: dict[str, int] = {}  # Metric -> number of polls with an impossible value of it.

    @property
    def _polling(self) -> Polling:
        return self._in_force.config.polling

    @property
    def _refresh_s(self) -> float:
        return self._in_force.config.health.models_interval_s

    def reloaded(self, before: Config) -> None:
        """Begin the polls anew if a reload has changed their interval. `before`: the
        configuration that the reload has replaced."""
        interval_s = before.polling.interval_s
        if self._polling.interval_s != interval_s:
            for turn in self._turns.values():
                self._end(turn)
                self._begin(turn)
        if interval_s and not self._polling.interval_s:
            for turn in self._turns.values():
                for rank in turn.replica.ranks:
                    self._fleet.polls.unpolled(rank)

    async def start(self) -> None:
        """Poll every replica of the fleet from now on."""
        self._is_open = True
        for turn in self._turns.values():
            self._begin(turn)
        for replica in self._fleet.members:
            self.watch(replica)

    def watch(self, replica: Replica) -> None:
        """Poll a replica from now on, unless it belongs to a provider of another company."""
        if replica in self._turns or replica.is_external:
            return
        turn = self._turns[replica] = _Turn(replica)
        self._begin(turn)

    def unwatch(self, replica: Replica) -> None:
        turn = self._turns.pop(replica, None)
        if turn is not None:
            self._end(turn)

    def poll_early(self, replica: Replica) -> None:
        """Poll a replica as soon as possible, before its regular poll."""
        turn = self._turns.get(replica.ranks[0])  # All ranks of an address are polled together.
        if turn is not None:
            turn.is_early = True
            turn.nap.wake()

    async def stop(self) -> None:
        self._is_open = False
        for turn in self._turns.values():
            self._end(turn)
        self._turns.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._asker.close()

    @property
    def running(self) -> int:
        """The number of running poll tasks."""
        return sum(turn.task is not None for turn in self._turns.values()) + len(self._ending)

    def _begin(self, turn: _Turn) -> None:
        if self._is_open and self._polling.interval_s:  # With interval 0, nothing is polled.
            turn.task = asyncio.ensure_future(self._watch(turn))

    def _end(self, turn: _Turn) -> None:
        task, turn.task = turn.task, None
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _watch(self, turn: _Turn) -> None:
        # First polls are spread over one interval, so that a large fleet is not polled at once.
        pause = self._polling.interval_s * self._rng.random()
        while True:
            await turn.rest(pause, gap_s(self._polling.interval_s))
            turn.began = monotonic()
            turn.asked = 0
            try:
                await self._poll(turn)
            except Exception as err:
                self._on_error(err)
            pause = self._polling.interval_s
            # A replica that is down is polled as rarely as it is probed, until it is up again.
            if not turn.replica.health.up:
                pause = max(
                    pause, turn.replica.health.pause_s(self._in_force.config.health.interval_s)
                )
            # Polls become rare only after the fleet was informed that the signals are too old.
            if turn.misses >= GIVE_UP and turn.began - turn.seen_at > self._polling.stale_s:
                pause = max(pause, self._refresh_s)
            pause *= self._rng.uniform(0.8, 1.2)

    async def _poll(self, turn: _Turn) -> None:
        """Poll once, and report the result or the problem to the fleet."""
        replica = turn.replica
        try:
            if replica.endpoint.refuses and not replica.health.up:
                raise NoAnswer("refused")  # The probes find out when it accepts connections again.
            engine = await self._engine(turn)
            await self._learn_facts(turn, engine)
            signals, numbers = await self._ask(turn, engine)
        except NoAnswer as none:
            turn.missed(none.problem)
            if not replica.removed:
                for rank in replica.ranks:
                    self._fleet.polls.unobserved(rank, none.problem, monotonic())
            return
        turn.misses = 0
        turn.seen_at = now = monotonic()
        if replica.removed:
            return
        count = replica.config.data_parallel_ranks or max(1, len(turn.by_rank))
        self._fleet.set_ranks(replica, count, min(turn.by_rank, default=None))
        each = _each(signals, turn.by_rank, turn.facts, len(replica.ranks))
        for rank, own in zip(replica.ranks, each, strict=True):
            number = numbers[rank.rank] if rank.rank < len(numbers) else poll_begins(rank, now)
            self._fleet.polls.observed(rank, own, number, now)

    async def _ask(self, turn: _Turn, engine: Engine) -> tuple[Signals, list[int]]:
        """Return the signals of the first source of metrics that reports requests.

        The second value has the number of this poll for each rank of the replica.

        If no source reports running or waiting requests, use the first source with any signal.
        """
        if monotonic() >= turn.sources_at:  # A better source of metrics may exist by now.
            turn.source = 0
            turn.sources_at = monotonic() + self._refresh_s
        some: tuple[Signals, list[int]] | None = None
        problem: Problem = "status"
        # True: the next poll begins with the source that gives the signals of this poll.
        is_last = True
        for index in range(turn.source, len(engine.sources)):
            now = monotonic()
            numbers = [poll_begins(rank, now) for rank in turn.replica.ranks]
            turn.replica.endpoint.asked_at = now
            try:
                signals = await self._read(turn, engine, engine.sources[index])
            except NoAnswer as none:
                if none.problem not in ("status", "garbage", "nothing"):
                    raise
                # A source of metrics that exists, but has nothing new, is tried again at the next
                # poll.
                is_last = is_last and none.problem != "nothing"
                # If one page of metrics is unreadable and another one is missing, the unreadable
                # page is reported.
                problem = none.problem if problem == "status" else problem
                continue
            if signals.running is not None or signals.waiting is not None:
                turn.source = index if is_last else 0
                return signals, numbers
            some = some or (signals, numbers)
        if some is None:
            turn.source = 0
            raise NoAnswer(problem)
        return some

    async def _read(self, turn: _Turn, engine: Engine, source: Source) -> Signals:
        """Read the signals of one source of metrics. Raises NoAnswer."""
        size = self._polling.size
        timeout_s = max(self._polling.timeout_s, source.timeout_s)
        last = turn.last if turn.signals_from == source.path else NO_SIGNALS
        known = Known(facts=turn.facts, last=last, empty=turn.empty)
        odd: set[str] = set()
        signals: Signals | None
        if isinstance(source, TextSource):
            reader = Reader(source.wanted)
            await self._get(turn, engine, source.path, timeout_s, reader.feed, size)
            samples = reader.end()
            signals = source.parse_samples(samples, known, odd)
            turn.by_rank = source.by_rank(samples, known)
        else:
            pieces: list[bytes] = []
            size = min(size, _JSON_BYTES)
            await self._get(turn, engine, source.path, timeout_s, keep(pieces), size)
            body = b"".join(pieces)
            signals = source.parse(body, known, odd)
            turn.by_rank = source.by_rank(body, known) if isinstance(source, JsonSource) else {}
            turn.empty = turn.empty + 1 if body.strip() == b"[]" else 0
        for name in odd:
            self.odd[name] = self.odd.get(name, 0) + 1
        if signals is None or (signals == NO_SIGNALS and odd):
            raise NoAnswer("garbage")
        if signals == NO_SIGNALS:
            raise NoAnswer("nothing")
        turn.signals_from = source.path
        turn.last = signals
        return signals

    async def _get(
        self,
        turn: _Turn,
        engine: Engine,
        path: str,
        timeout_s: float,
        sink: Callable[[bytes], bool],
        size: int,
    ) -> None:
        turn.asked += 1
        status = await self._asker.get(
            turn.replica, path, timeout_s, sink, size, keep_alive=engine.keeps_alive
        )
        if status != 200:
            raise NoAnswer("status")

    # -- engine and facts ---------------------------------------------------------------------

    async def _engine(self, turn: _Turn) -> Engine:
        """Return the engine: configured, already detected, shown by the model list, or detected
        now.
        """
        replica = turn.replica
        name = replica.config.engine or replica.engine
        if name is None:
            name = detect(owned_by=owners(replica.listed.objects))
            if name is None and monotonic() >= turn.engine_at:
                turn.engine_at = monotonic() + self._refresh_s
                name = await self._find_out(turn)
            for rank in replica.ranks:
                rank.engine = name
        engine = engine_of(name)
        if engine is not turn.engine:
            turn.forget(engine)
        return engine

    async def _find_out(self, turn: _Turn) -> str | None:
        """Detect the engine by requests to all paths that distinguish engines. Raises NoAnswer if
        the replica is unreachable."""
        page = bytearray()

        def head(piece: bytes) -> bool:
            page.extend(piece)
            return len(page) < _HEAD_BYTES

        answers: dict[str, Any] = {}
        timeout_s = self._polling.timeout_s
        turn.asked += 1
        try:
            await self._asker.get(turn.replica, "/metrics", timeout_s, head, self._polling.size)
        except NoAnswer as none:
            if none.problem in ("refused", "timeout", "local"):
                turn.engine_at = 0.0  # No path was answered, so the detection is repeated soon.
                raise
        if page.lstrip()[:1] == b"[":
            answers["/metrics"] = decode(bytes(page))
        name = detect(metrics=bytes(page), answers=answers)
        for path in QUESTIONS:
            if name is None:
                turn.asked += 1
                answers.update(await self._document(turn.replica, path))
                name = detect(answers=answers)
        return name

    async def _document(self, replica: Replica, path: str) -> Mapping[str, Any]:
        try:
            body = await self._asker.body(replica, path, self._polling.timeout_s, _JSON_BYTES)
        except NoAnswer:
            return {}
        document = INVALID if body is None else decode(body)
        return {} if document is INVALID else {path: document}

    async def _learn_facts(self, turn: _Turn, engine: Engine) -> None:
        """Read the engine's facts (such as its number of slots) again, if it is time.

        An engine's facts change only with a restart. A failed read changes nothing.
        """
        if engine.facts is None or monotonic() < turn.facts_at:
            return
        turn.facts_at = monotonic() + self._refresh_s
        turn.asked += 1
        try:
            body = await self._asker.body(
                turn.replica, engine.facts.path, self._polling.timeout_s, _JSON_BYTES
            )
        except NoAnswer:
            return
        if body is not None and (facts := engine.facts.parse(body)) != NO_FACTS:
            turn.facts = facts
            endpoint = turn.replica.endpoint
            endpoint.by_priority = facts.by_priority
            endpoint.low_first = facts.low_first
            endpoint.metrics_on = facts.metrics_on


class _Turn:
    """The schedule of one replica's polls, and what earlier polls found."""

    __slots__ = (
        "asked",
        "began",
        "by_rank",
        "empty",
        "engine",
        "engine_at",
        "facts",
        "facts_at",
        "is_early",
        "last",
        "misses",
        "nap",
        "replica",
        "seen_at",
        "signals_from",
        "source",
        "sources_at",
        "task",
    )

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.task: asyncio.Task[None] | None = None
        self.began = 0.0  # When the last poll began.
        self.asked = 0  # Number of requests that the last poll sent.
        self.seen_at = float("-inf")  # When the last successful poll returned.
        self.is_early = False
        self.misses = 0  # Number of polls in a row that the replica answered without metrics.
        self.engine_at = 0.0  # The time at which to try engine detection again.
        self.nap = Nap()
        self.engine: Engine | None = None
        self.forget(None)

    def forget(self, engine: Engine | None) -> None:
        """Discard what was learned by polls, because the replica may now run another engine."""
        self.engine = engine
        self.source = 0  # Index of the first source of metrics to try.
        self.sources_at = 0.0  # The time at which to try the better sources of metrics again.
        self.facts: Facts = NO_FACTS
        self.facts_at = 0.0
        # The last signals, by the rank's number; empty: there is one rank.
        self.by_rank: dict[int, Signals] = {}
        self.last = NO_SIGNALS
        self.signals_from = ""  # The path that gave the last signals.
        self.empty = 0

    def missed(self, problem: Problem) -> None:
        """Record a poll without signals."""
        if problem in ("status", "nothing", "too_large") and not self.empty:
            self.misses += 1
            if self.misses == GIVE_UP and self.replica.config.engine is None:
                # The replica may now run another engine, so it is detected again.
                self.replica.engine = None
            return
        # Other problems, such as a timeout, are temporary. An idle engine may have nothing to
        # report.
        self.misses = 0
        if problem == "refused":
            self.forget(self.engine)  # The engine may have been restarted.

    async def rest(self, pause: float, gap_s: float) -> None:
        """Wait until the next poll is due, or an early one is requested. `gap_s`: minimum seconds
        per request."""
        soonest = self.began + self.asked * gap_s
        until = max(monotonic() + pause, soonest)
        while True:
            if self.is_early:
                until = min(until, soonest)
            left = until - monotonic()
            if left <= 0:
                self.is_early = False
                return
            await self.nap.sleep(left)


def _each(whole: Signals, by_rank: dict[int, Signals], facts: Facts, count: int) -> list[Signals]:
    """Return the signals of each of `count` ranks. `whole`: the signals of all ranks together.

    If the engine does not report each rank, only facts that hold for every rank are known.
    """
    whole = _with_facts(whole, facts)
    if count == 1:
        return [whole]
    own = msgspec.structs.replace(
        NO_SIGNALS,
        kv_usage=whole.kv_usage,
        block_tokens=whole.block_tokens,
        asleep=whole.asleep,
        started_at=whole.started_at,
    )
    slots = None if facts.slots is None else facts.slots // count or None
    found = [*by_rank.values()] if len(by_rank) == count else [own] * count
    facts = msgspec.structs.replace(facts, slots=slots)
    return [_with_facts(signals, facts) for signals in found]


def _with_facts(signals: Signals, facts: Facts) -> Signals:
    """Take values that are missing in the signals from the engine's facts."""
    if facts is NO_FACTS:
        return signals
    return msgspec.structs.replace(
        signals,
        slots=signals.slots if signals.slots is not None else facts.slots,
        kv_tokens=signals.kv_tokens if signals.kv_tokens is not None else facts.kv_tokens,
        block_tokens=signals.block_tokens
        if signals.block_tokens is not None
        else facts.block_tokens,
    )
