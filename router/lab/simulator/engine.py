"""One engine of the simulated fleet: the emulator's core on the virtual clock, behind a network.

Each message between router and engine takes `network_s` seconds in each direction. The core
advances from event to event. `next_event` is evaluated again after every change to the core.

Must never: decide what happens to a request, or access more of a router than its attempts.

`NeighbourRequest`: a request that a client sends directly to a simulated engine
(`scenario.Neighbour`).

The client uses no router. It waits for the answer and never disconnects. Must never: be seen by a
router, except in the engine's metrics.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod

from mypy_extensions import mypyc_attr

from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.lab.emulator.core.engine_core import FINISHED, EngineCore
from router.lab.emulator.core.kv_events import Cleared
from router.lab.emulator.core.request import Request
from router.lab.emulator.core.timing import CoreConfig, Timing
from router.lab.simulator.clock import Clock
from router.lab.simulator.kv_feed import KvFeed
from router.lab.simulator.scenario import Fault, Neighbour, Straggling
from router.lab.simulator.totals import EngineTotals


@mypyc_attr(allow_interpreted_subclasses=True)
class EngineAttempt(Request):
    """One request at an engine, with the callbacks for its events.

    It is an attempt of a router, or a request of a client that uses no router; `replica` is then
    None.
    """

    __slots__ = ("made", "relayed", "replica", "streamed")

    def __init__(
        self,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        block_hashes: Sequence[int],
        priority: int,
        replica: Replica | None,
        streamed: bool,
    ) -> None:
        super().__init__(id, prompt_tokens, output_tokens, block_hashes, priority)
        self.replica = replica
        self.streamed = streamed
        self.made = 0  # output tokens that were generated before the attempt was lost or dropped
        self.relayed = 0  # output tokens of the forwarded stream that the router has counted

    @abstractmethod
    def identity(self) -> tuple[int, int]:
        """The request's number in the traffic, and the attempt's index within the request."""

    @abstractmethod
    def connected(self) -> None:
        """Called when the engine has accepted the connection."""

    @abstractmethod
    def not_connected(self, now: float) -> None:
        """Called when the engine has refused the connection."""

    @abstractmethod
    def first_token(self, now: float) -> None:
        """Called when the first token of a stream arrives at the router."""

    @abstractmethod
    def finished(self, now: float) -> None:
        """Called when the last token of a stream, or an answer in one piece, arrives."""

    @abstractmethod
    def refused(self, now: float) -> None:
        """Called when the engine has rejected the request with an error response."""

    @abstractmethod
    def lost(self, now: float) -> None:
        """Called when the connection has broken."""


class SimulatedEngine:
    """One replica's engine. Times are the clock's seconds."""

    __slots__ = (
        "_busy_since",
        "_clock",
        "_config",
        "_delayed",
        "_freezes",
        "_idle",
        "_kills",
        "_network_s",
        "_past",
        "_seed",
        "_slows",
        "_straggling",
        "_timing",
        "_wake",
        "core",
        "feed",
        "frozen_since",
        "started_at",
    )

    def __init__(
        self,
        clock: Clock,
        config: CoreConfig,
        timing: Timing,
        network_s: float,
        straggling: Straggling,
        seed: int,
    ) -> None:
        self._clock = clock
        self._config = config
        self._timing = timing
        self._network_s = network_s
        self._straggling = straggling
        self._seed = seed  # seed of the choice of the attempts that are slow at random
        # Slow attempts (see `Straggling`) that are not in the engine's queue yet, by request ID.
        self._delayed: dict[str, EngineAttempt] = {}
        self.core: EngineCore[EngineAttempt] = EngineCore(config, timing)
        # Subscribers of the KV cache events; None: the engine publishes none.
        self.feed: KvFeed | None = KvFeed(clock, network_s) if config.kv_events else None
        self.started_at = 0.0
        self.frozen_since: float | None = None  # None: the engine is not frozen
        # When the core advances next. Calls of `_advance` at other times do nothing.
        self._wake = inf
        self._busy_since: float | None = None
        # Metrics of the engine while it has no request; None: it has requests.
        self._idle: Signals | None = None
        self._past = EngineTotals()  # the engine's totals before the latest restart
        # The current faults; they may overlap.
        self._slows: list[float] = []  # the factors of the current `slow` faults
        self._freezes = 0
        self._kills = 0

    # -- state --------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether the engine accepts connections."""
        return not self._kills

    @property
    def load(self) -> int:
        """Number of requests at this engine: running, waiting, and delayed before the queue."""
        core = self.core
        return core.running + core.waiting + len(self._delayed)

    def generated(self, attempt: EngineAttempt) -> int:
        """Number of output tokens that were generated for an attempt so far."""
        if not self.core.holds(attempt.id):
            # The attempt has not arrived yet, or was lost when the engine was killed.
            return attempt.made
        self.core.settle(self._clock.now)
        return self.core.generated(attempt)

    def computed(self, attempt: EngineAttempt) -> int:
        """Number of prompt tokens that were prefilled for an attempt so far."""
        if not self.core.holds(attempt.id):
            return 0
        self.core.settle(self._clock.now)
        return attempt.computed

    def stepped_at(self) -> float:
        """The time at which the engine's latest step ended."""
        return self.core.stepped_at(self._clock.now)

    def count_tokens(self, replica: Replica) -> None:
        """Count the tokens that a router's streams got since the last call.

        They are added to `cadence` of `replica`, which is the router's object for this engine.
        """
        core = self.core
        core.settle(self._clock.now)
        for attempt in core.rows():
            if attempt.replica is replica and attempt.relayed:
                made = core.generated(attempt)
                replica.learned.cadence.events += made - attempt.relayed
                attempt.relayed = made

    def totals(self) -> EngineTotals:
        """The engine's totals up to the current time."""
        totals = replace(self._past)
        totals.add(self.core)
        if self._busy_since is not None:
            totals.busy_s += self._clock.now - self._busy_since
        return totals

    def signals(self) -> Signals:
        """The engine's current metrics. An idle engine always returns the same object."""
        if self._idle is not None:
            return self._idle
        core, config = self.core, self._config
        core.settle(self._clock.now)
        running, waiting = core.running, core.waiting
        signals = Signals(
            running=running,
            waiting=waiting,
            kv_usage=core.kv_usage,
            kv_tokens=config.num_blocks * config.block_size,
            block_tokens=config.block_size,
            started_at=self.started_at,
            prompt_tokens=core.prompt_tokens,
            generated_tokens=core.generation_tokens,
            cache_queries=core.prefix_queries,
            cache_hits=core.prefix_hits,
            preemptions=core.preemptions,
        )
        if not running and not waiting and self._busy_since is None:
            self._idle = signals
        return signals

    # -- requests -----------------------------------------------------------------------------

    def send(self, attempt: EngineAttempt) -> None:
        """Send an attempt to the engine. The engine calls the callbacks of the attempt."""
        clock = self._clock
        clock.at(clock.now + self._network_s, partial(self._arrives, attempt))

    def receive(self, request: EngineAttempt, now: float) -> bool:
        """Queue the request of another client at once. False: the engine is down."""
        if self._kills:
            return False
        self._submit(request, now)
        return True

    def cancel(self, attempt: EngineAttempt) -> None:
        """Close the connection of an attempt; the engine notices it after the network delay."""
        clock = self._clock
        clock.unfinished += 1
        clock.at(clock.now + self._network_s, partial(self._cancelled, attempt))

    def _arrives(self, attempt: EngineAttempt, now: float) -> None:
        if self._kills:
            self._clock.at(now + self._network_s, attempt.not_connected)
            return
        attempt.connected()
        straggling = self._straggling
        if straggling.selects(self._seed, *attempt.identity()):
            self._delayed[attempt.id] = attempt
            delay_s = (straggling.factor - 1.0) * self.core.alone_s(attempt)
            self._clock.at(now + delay_s, partial(self._submit_delayed, attempt))
            return
        self._submit(attempt, now)

    def _submit_delayed(self, attempt: EngineAttempt, now: float) -> None:
        """Queue a delayed attempt, unless it was cancelled or lost."""
        if self._delayed.pop(attempt.id, None) is not None:
            self._submit(attempt, now)

    def _submit(self, attempt: EngineAttempt, now: float) -> None:
        try:
            self.core.submit(attempt, now)
        except ValueError:  # the core rejects requests that it can never run
            self._clock.at(now + self._network_s, attempt.refused)
            return
        self._idle = None
        self._reschedule(now)

    def _cancelled(self, attempt: EngineAttempt, now: float) -> None:
        self._clock.unfinished -= 1
        if self._delayed.pop(attempt.id, None) is not None:
            return
        self.core.abort(attempt.id, now)
        self._reschedule(now)

    # -- time ---------------------------------------------------------------------------------

    def _reschedule(self, now: float) -> None:
        """Schedule the core's next event if a change of the core made that event earlier."""
        due = self.core.next_event(now)
        if due is not None and due < self._wake:
            self._wake = max(due, now)
            self._clock.at(self._wake, self._advance)

    def _advance(self, now: float) -> None:
        if now != self._wake:
            return
        core = self.core
        if self._busy_since is None:
            self._busy_since = now
        due = core.next_event(now)
        while due is not None and due <= now:
            for kind, attempt in core.advance(now):
                if kind == FINISHED:
                    self._clock.at(core.clock + self._network_s, attempt.finished)
                elif attempt.streamed:
                    self._clock.at(core.clock + self._network_s, attempt.first_token)
            due = core.next_event(now)
        if core.kv_log and self.feed is not None:
            self.feed.publish(core.kv_log)
        if due is not None:
            self._wake = due
            self._clock.at(due, self._advance)
            return
        self._wake = inf
        if not core.running and not core.waiting:
            self._past.busy_s += now - self._busy_since
            self._busy_since = None

    # -- faults -------------------------------------------------------------------------------

    def begin_fault(self, fault: Fault, now: float) -> None:
        """Begin a fault of this engine."""
        if fault.kind == "slow":
            self._slows.append(fault.factor)
            self._apply_slowdown(now)
        elif fault.kind == "freeze":
            self._freezes += 1
            if self._freezes == 1:
                self.frozen_since = now
                self.core.stall(now)
        else:
            self._kills += 1
            if self._kills == 1:
                self._kill(now)
        self._reschedule(now)

    def end_fault(self, fault: Fault, now: float) -> None:
        """End a fault of this engine."""
        if fault.kind == "slow":
            self._slows.remove(fault.factor)
            self._apply_slowdown(now)
        elif fault.kind == "freeze":
            self._freezes -= 1
            if not self._freezes:
                self.frozen_since = None
                self.core.resume(now)
        else:
            self._kills -= 1
            if not self._kills:
                self.started_at = now
        self._reschedule(now)

    def _apply_slowdown(self, now: float) -> None:
        self.core.slow(prod(self._slows), now)

    def _kill(self, now: float) -> None:
        """Lose all requests and the cache; the restarted engine begins with an empty core."""
        core = self.core
        core.settle(now)
        for attempt in [*core.rows(), *core.queued()]:
            attempt.made = core.generated(attempt)
            self._clock.at(now + self._network_s, attempt.lost)
        for attempt in self._delayed.values():
            self._clock.at(now + self._network_s, attempt.lost)
        self._delayed.clear()
        self._past.add(core)
        if self._busy_since is not None:
            self._past.busy_s += now - self._busy_since
        self._busy_since = self._idle = None
        self._wake = inf
        self.core = core = EngineCore(self._config, self._timing)
        if core.kv_log is not None:
            core.kv_log.append(Cleared())  # the first event of the new process
        self._apply_slowdown(now)
        if self._freezes:
            core.stall(now)


class NeighbourRequest(EngineAttempt):
    """A request of a client that uses no router. The simulation waits for the request's end."""

    __slots__ = ("_clock", "_number")

    def __init__(self, number: int, neighbour: Neighbour, clock: Clock) -> None:
        super().__init__(
            f"neighbour {number}",
            neighbour.prompt_tokens,
            neighbour.output_tokens,
            (),
            0,
            None,
            False,
        )
        self._clock = clock
        self._number = number

    def identity(self) -> tuple[int, int]:
        return self._number, 0

    def connected(self) -> None:
        return

    def not_connected(self, now: float) -> None:
        self._clock.unfinished -= 1

    def first_token(self, now: float) -> None:
        return

    def finished(self, now: float) -> None:
        self._clock.unfinished -= 1

    def refused(self, now: float) -> None:
        self._clock.unfinished -= 1

    def lost(self, now: float) -> None:
        self._clock.unfinished -= 1
