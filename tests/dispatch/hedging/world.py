"""A hedger whose calls a test makes itself, and the decorator of the tests that use one.

A test needs no end: `played` ends the requests that still run, and checks that no lease remains.
"""

import functools
from collections.abc import Callable
from math import exp
from typing import Any, ParamSpec, Protocol

from policies.contract import RequestView
from router.config.model import Hedging
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState, Lateness
from router.dispatch.hedging.copy_price import WINDOW_S
from router.dispatch.hedging.hedger import Hedger
from router.fleet.replica import Replica
from router.observe.hedge_counts import HedgeCounts
from router.wire.sweep import NEVER
from tests.fleet.helpers import Table
from tests.harness.running import scenario

TOOK_S = 0.2  # usual seconds to the first content in these tests
TOKENS = 1000
P = ParamSpec("P")


class Opened(Protocol):
    def close(self) -> None: ...


opened: list[Opened] = []  # What the running test has opened.


def played(test: Callable[P, None]) -> Callable[P, None]:
    """Run a test in a loop of its own, then close what it has opened."""

    @scenario
    @functools.wraps(test)
    async def run(*args: P.args, **kwargs: P.kwargs) -> None:
        opened.clear()
        test(*args, **kwargs)
        for one in opened:
            one.close()

    return run


def new_table() -> Table:
    """An empty fleet table, which `played` closes."""
    table = Table()
    opened.append(table)
    return table


def expected(attempt: Attempt) -> Lateness:
    """What the hedger has recorded for an attempt."""
    assert attempt.lateness is not None
    return attempt.lateness


def work_much(hedger: Hedger, replica: Replica, now: float) -> None:
    """Make the replica busy for an hour: the budget must pay for each copy there."""
    hedger.times._of(replica).work.add(WINDOW_S * exp(3600.0 / WINDOW_S), now)


class World:
    """A hedger, a fleet of three and its counters. `now` is moved manually.

    The fleet has had so much work lately that the budget must pay for each copy, unless `is_quiet`.
    """

    def __init__(self, *, is_quiet: bool = False, **rules: Any) -> None:
        self.table = Table()
        self.a, self.b, self.c = (self.table.add(id) for id in "abc")
        self.counts = HedgeCounts()
        self.rules = Hedging(**rules)
        self.hedger = Hedger(self.rules, self.table.fleet, self.counts)
        self.now = 1000.0
        self.view = RequestView(model="m", stream=True, prompt_tokens=TOKENS)
        self.states: list[AttemptState] = []
        opened.append(self)
        if not is_quiet:
            for replica in (self.a, self.b, self.c):
                work_much(self.hedger, replica, self.now)

    @property
    def refused(self) -> dict[str, int]:
        return {why.value: count for why, count in self.counts.suppressed.items() if count}

    def begin(
        self,
        replica: Replica,
        state: AttemptState | None = None,
        *,
        hedge: bool = False,
        connecting: bool = False,
    ) -> tuple[AttemptState, Attempt]:
        if state is None:
            state = AttemptState(3)
            self.states.append(state)
        attempt = state.begin(replica, self.now, TOKENS, 0, self.view.stream, hedge=hedge)
        if not connecting:
            state.sent(attempt)
        return state, attempt

    def dispatch(
        self, replica: Replica, hedges_as: str = "high"
    ) -> tuple[AttemptState, Attempt, float]:
        state, attempt = self.begin(replica)
        due = self.hedger.dispatched(self.view, attempt, hedges_as, self.now)
        return state, attempt, due

    def answer(self, state: AttemptState, attempt: Attempt) -> None:
        """The attempt delivers its first content now and ends."""
        assert state.content(attempt)
        fleet = self.table.fleet
        ttft_s = self.now - attempt.began if self.view.stream else None
        fleet.outcomes.showed_content(attempt.at, self.now, attempt.began, ttft_s, attempt.tokens)
        self.hedger.shown(self.view, attempt, self.now)
        losers = [other for other in state.live if other is not attempt]
        state.outrun(self.now)
        for loser in losers:
            self.hedger.outrun(self.view, loser, -1, self.now)
        state.completed(attempt, self.now)

    def learn(self, requests: int = 100, hedges_as: str = "high") -> None:
        """Requests one after the other, with usual times; every twentieth takes ten times as
        long.
        """
        for number in range(requests):
            state, attempt, _ = self.dispatch(self.a, hedges_as)
            self.now += TOOK_S * (10.0 if number % 20 == 10 else 1.0)
            self.answer(state, attempt)

    def ask(self, primary: Attempt, others: list[Replica] | None = None) -> list[str]:
        found = self.hedger.backup(self.view, primary, others or [self.b, self.c], self.now)
        return [r.id for r in found]

    def late(self) -> tuple[AttemptState, Attempt]:
        """A request at `a` that is late enough to be evaluated."""
        state, attempt, due = self.dispatch(self.a)
        assert self.now < due < NEVER
        self.now = due
        return state, attempt

    def copy(self, state: AttemptState, primary: Attempt, *, connecting: bool = False) -> Attempt:
        """Send the copy of an attempt that is late now; `connecting`: without a connection yet."""
        replica = self.table.fleet.replicas[self.ask(primary)[0]]
        _, hedge = self.begin(replica, state, hedge=True, connecting=connecting)
        self.hedger.sent(self.view, hedge, self.now)
        return hedge

    def close(self) -> None:
        for state in self.states:
            state.end(Reason.CLIENT_GONE, self.now)
        for replica in self.table.fleet.replicas.values():
            assert (replica.inflight, replica.waiting, replica.pending_tokens) == (0, 0, 0)
        self.table.close()
