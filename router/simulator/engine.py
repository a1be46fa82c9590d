"""One engine of the simulated fleet: the emulator's core on the virtual clock, behind a network.

What a router sends arrives `network_s` later, and so does everything it hears back. The core moves
from event to event by its `next_event`, which is asked again whenever something may have moved it.

Must never: decide what happens to a request, or know more of a router than the attempts it sends.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod

from mypy_extensions import mypyc_attr

from router.emulator.core.core_config import CoreConfig
from router.emulator.core.engine_core import FINISHED, EngineCore
from router.emulator.core.request import Request
from router.emulator.core.timing import Timing
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from router.simulator.clock import Clock
from router.simulator.engine_totals import EngineTotals
from router.simulator.scenario import Fault, Straggling


@mypyc_attr(allow_interpreted_subclasses=True)
class EngineAttempt(Request):
    """One attempt, as its engine sees it: what it runs, and who hears what it says."""

    __slots__ = ("made", "relayed", "replica", "streamed")

    def __init__(
        self,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        block_hashes: Sequence[int],
        priority: int,
        replica: Replica,
        streamed: bool,
    ) -> None:
        super().__init__(id, prompt_tokens, output_tokens, block_hashes, priority)
        self.replica = replica
        self.streamed = streamed
        self.made = 0  # tokens it had when it was lost
        self.relayed = 0  # tokens of a stream that goes to the client, as far as they were counted

    @abstractmethod
    def identity(self) -> tuple[int, int]:
        """The number of its request in the traffic, and its own among the request's attempts."""

    @abstractmethod
    def connected(self) -> None:
        """It is on its way in."""

    @abstractmethod
    def not_connected(self, now: float) -> None:
        """The engine does not listen."""

    @abstractmethod
    def shown(self, now: float) -> None:
        """The first token."""

    @abstractmethod
    def finished(self, now: float) -> None:
        """The last one, or all of an answer that is not streamed."""

    @abstractmethod
    def refused(self, now: float) -> None:
        """The engine answers that it will not do this."""

    @abstractmethod
    def lost(self, now: float) -> None:
        """The connection dies."""


class SimulatedEngine:
    """One replica's engine. Times are the clock's seconds."""

    __slots__ = (
        "_before",
        "_busy_since",
        "_clock",
        "_config",
        "_deaths",
        "_freezes",
        "_idle",
        "_late",
        "_network_s",
        "_seed",
        "_slows",
        "_straggling",
        "_timing",
        "_wake",
        "core",
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
        self._seed = seed  # ... of who straggles
        self._late: dict[str, EngineAttempt] = {}  # stragglers that are not in the queue yet, by id
        self.core: EngineCore[EngineAttempt] = EngineCore(config, timing)
        self.started_at = 0.0
        self.frozen_since: float | None = None  # None: it is not
        self._wake = inf  # when the core is moved on next; what comes at another time is outdated
        self._busy_since: float | None = None
        self._idle: Signals | None = None  # what it says as long as it has nothing to do
        self._before = EngineTotals()  # of the lives that are over
        # Of faults that go on; they may overlap.
        self._slows: list[float] = []
        self._freezes = 0
        self._deaths = 0

    # -- what can be asked --------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether one can connect."""
        return not self._deaths

    @property
    def load(self) -> int:
        """Requests here: running, waiting, and on their way into the queue."""
        core = self.core
        return core.running + core.waiting + len(self._late)

    def generated(self, attempt: EngineAttempt) -> int:
        """Tokens that an attempt has made so far."""
        if not self.core.holds(attempt.id):
            return attempt.made  # it has not arrived, or died with another life
        self.core.settle(self._clock.now)
        return self.core.generated(attempt)

    def computed(self, attempt: EngineAttempt) -> int:
        """Prompt tokens that were computed for an attempt so far."""
        if not self.core.holds(attempt.id):
            return 0
        self.core.settle(self._clock.now)
        return attempt.computed

    def count_tokens(self, replica: Replica) -> None:
        """The tokens that a router's streams have made since they were last counted."""
        core = self.core
        core.settle(self._clock.now)
        for attempt in core.rows():
            if attempt.replica is replica and attempt.relayed:
                made = core.generated(attempt)
                replica.cadence.events += made - attempt.relayed
                attempt.relayed = made

    def totals(self) -> EngineTotals:
        """Up to now."""
        totals = replace(self._before)
        totals.add(self.core)
        if self._busy_since is not None:
            totals.busy_s += self._clock.now - self._busy_since
        return totals

    def signals(self) -> Signals:
        """Its metrics at this moment. While it has nothing to do, always the same object."""
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
        """A router sends an attempt, which is told what becomes of it."""
        clock = self._clock
        clock.at(clock.now + self._network_s, partial(self._arrives, attempt))

    def cancel(self, attempt: EngineAttempt) -> None:
        """Its router closes the connection."""
        clock = self._clock
        clock.holds += 1
        clock.at(clock.now + self._network_s, partial(self._is_dropped, attempt))

    def _arrives(self, attempt: EngineAttempt, now: float) -> None:
        if self._deaths:
            self._clock.at(now + self._network_s, attempt.not_connected)
            return
        attempt.connected()
        straggling = self._straggling
        if straggling.strikes(self._seed, *attempt.identity()):
            self._late[attempt.id] = attempt
            late_s = (straggling.factor - 1.0) * self.core.alone_s(attempt)
            self._clock.at(now + late_s, partial(self._is_here, attempt))
            return
        self._submit(attempt, now)

    def _is_here(self, attempt: EngineAttempt, now: float) -> None:
        """A straggler comes to the queue, if it is still wanted."""
        if self._late.pop(attempt.id, None) is not None:
            self._submit(attempt, now)

    def _submit(self, attempt: EngineAttempt, now: float) -> None:
        try:
            self.core.submit(attempt, now)
        except ValueError:  # it could never run here, say the core's own rules
            self._clock.at(now + self._network_s, attempt.refused)
            return
        self._idle = None
        self._look(now)

    def _is_dropped(self, attempt: EngineAttempt, now: float) -> None:
        self._clock.holds -= 1
        if self._late.pop(attempt.id, None) is not None:
            return
        self.core.abort(attempt.id, now)
        self._look(now)

    # -- time ---------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Something happened to the core: its next event may be another one."""
        due = self.core.next_event(now)
        if due is not None and due < self._wake:
            self._wake = max(due, now)
            self._clock.at(self._wake, self._go_on)

    def _go_on(self, now: float) -> None:
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
                    self._clock.at(core.clock + self._network_s, attempt.shown)
            due = core.next_event(now)
        if due is not None:
            self._wake = due
            self._clock.at(due, self._go_on)
            return
        self._wake = inf
        if not core.running and not core.waiting:
            self._before.busy_s += now - self._busy_since
            self._busy_since = None

    # -- faults -------------------------------------------------------------------------------

    def fails(self, fault: Fault, now: float) -> None:
        """A fault begins."""
        if fault.kind == "slow":
            self._slows.append(fault.factor)
            self._slow_down(now)
        elif fault.kind == "freeze":
            self._freezes += 1
            if self._freezes == 1:
                self.frozen_since = now
                self.core.stall(now)
        else:
            self._deaths += 1
            if self._deaths == 1:
                self._die(now)
        self._look(now)

    def recovers(self, fault: Fault, now: float) -> None:
        """A fault is over."""
        if fault.kind == "slow":
            self._slows.remove(fault.factor)
            self._slow_down(now)
        elif fault.kind == "freeze":
            self._freezes -= 1
            if not self._freezes:
                self.frozen_since = None
                self.core.resume(now)
        else:
            self._deaths -= 1
            if not self._deaths:
                self.started_at = now
        self._look(now)

    def _slow_down(self, now: float) -> None:
        self.core.slow(prod(self._slows), now)

    def _die(self, now: float) -> None:
        """What it holds is lost, its cache too; the next life begins with nothing."""
        core = self.core
        core.settle(now)
        for attempt in [*core.rows(), *core.queued()]:
            attempt.made = core.generated(attempt)
            self._clock.at(now + self._network_s, attempt.lost)
        for attempt in self._late.values():
            self._clock.at(now + self._network_s, attempt.lost)
        self._late.clear()
        self._before.add(core)
        if self._busy_since is not None:
            self._before.busy_s += now - self._busy_since
        self._busy_since = self._idle = None
        self._wake = inf
        self.core = core = EngineCore(self._config, self._timing)
        self._slow_down(now)
        if self._freezes:
            core.stall(now)
