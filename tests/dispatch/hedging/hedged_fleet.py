"""A fleet in which some attempts are slow, played through the hedger without engines or sockets.

An attempt takes a base time + a time per token x (uncached tokens at its replica), with some random
variation; one in twenty takes ten times that. Hedgeable requests are evaluated when the hedger says
so. The first copy to deliver content wins and the other is cancelled, as the exchange does it.
"""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

from policies.contract import RequestView
from router.config.model import Hedging
from router.dispatch.driver.attempt_state import Attempt, AttemptState, Kind
from router.dispatch.hedging.hedger import Hedger
from router.fleet.replica import Replica
from router.observe.hedge_counts import HedgeCounts
from router.wire.sweep import NEVER
from tests.dispatch.hedging.world import new_table, work_much

REPLICAS = 20
BASE_S = 0.05
TOKEN_S = 1e-4


class Request:
    """One request and its result."""

    def __init__(self, view: RequestView, urgency: str, began: float) -> None:
        self.view = view
        self.urgency = urgency
        self.began = began
        self.state = AttemptState(3)
        self.slow: dict[Attempt, bool] = {}
        self.ttft_s = NEVER

    @property
    def was_slow(self) -> bool:
        """Whether its first attempt was a straggler."""
        return self.slow[self.state.attempts[0]]

    @property
    def was_hedged(self) -> bool:
        return any(a.kind == Kind.HEDGE for a in self.state.attempts)


class HedgedFleet:
    """A fleet table of `REPLICAS`; `play` runs requests. Times are virtual seconds."""

    def __init__(
        self,
        rules: Hedging | None = None,
        seed: int = 1,
        stragglers: float = 0.05,
        factor: float = 10.0,
        high: float = 0.2,
        sigma: float = 0.1,
        is_quiet: bool = False,
    ) -> None:
        """`is_quiet`: False if the budget must pay for copies from the beginning."""
        self.table = table = new_table()
        for number in range(REPLICAS):
            table.add(f"r{number}")
        self.fleet = fleet = table.fleet
        self.counts = HedgeCounts()
        self.hedger = Hedger(rules or Hedging(), fleet, self.counts)
        if not is_quiet:
            for replica in fleet.replicas.values():
                work_much(self.hedger, replica, 100.0)
        self.requests: list[Request] = []
        self.tokens = 0  # tokens of first attempts
        self.slowness: Callable[[float], float] = lambda now: 1.0  # factor on times, by time
        self.slowness_of: Callable[[Replica, float], float] = lambda replica, now: 1.0
        self._frozen: set[Replica] = set()
        self._rng = Random(seed)
        self._stragglers, self._factor = stragglers, factor
        self._high, self._sigma = high, sigma
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._now = 0.0
        table.clock = lambda: self._now

    def play(self, requests: int, per_s: float) -> list[Request]:
        """Play this number of Poisson arrivals until the last of them is answered."""
        rng, now = self._rng, self.requests[-1].began if self.requests else 100.0
        first = len(self.requests)
        for _ in range(requests):
            now += rng.expovariate(per_s)
            self._at(now, self._arrives)
        while self._events:
            when, _, happens = heapq.heappop(self._events)
            self._now = when
            if self.fleet.deadline <= when:
                self.fleet.on_deadline(when)
            happens(when)
        return self.requests[first:]

    def freeze(self, replica: Replica) -> None:
        """From now on, the replica answers nothing."""
        self._frozen.add(replica)

    def _at(self, when: float, happens: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), happens))

    def _arrives(self, now: float) -> None:
        rng = self._rng
        tokens = int(rng.lognormvariate(6.5, 0.6))
        view = RequestView(model="m", stream=True, prompt_tokens=tokens)
        urgency = "high" if rng.random() < self._high else ""
        request = Request(view, urgency, now)
        self.requests.append(request)
        self.tokens += tokens
        replicas = rng.sample(self.fleet.serving.ready, 2)
        replica = min(replicas, key=lambda r: r.pending_tokens)
        primary = self._begins(request, replica, now, hedge=False)
        due = self.hedger.dispatched(view, primary, urgency, now)
        if due != NEVER:
            self._at(max(due, now), lambda at: self._asks(request, primary, at))

    def _begins(self, request: Request, replica: Replica, now: float, *, hedge: bool) -> Attempt:
        tokens = request.view.prompt_tokens
        attempt = request.state.begin(replica, now, tokens, 0, True, hedge=hedge)
        request.state.sent(attempt)
        rng = self._rng
        is_slow = rng.random() < self._stragglers
        request.slow[attempt] = is_slow
        took = (BASE_S + TOKEN_S * replica.pending_tokens) * rng.lognormvariate(0.0, self._sigma)
        took *= (self._factor if is_slow else 1.0) * self.slowness(now)
        took *= self.slowness_of(replica, now)
        if replica not in self._frozen:
            self._at(now + took, lambda at: self._shows(request, attempt, at))
        return attempt

    def _asks(self, request: Request, primary: Attempt, now: float) -> None:
        state, view, hedger = request.state, request.view, self.hedger
        if state.over or state.winner is not None:
            return
        found = hedger.backup(view, primary, self.fleet.serving.ready, now)
        if found:
            backup = self._rng.choice(found)
            hedger.sent(view, self._begins(request, backup, now, hedge=True), now)
        elif (due := hedger.asks_again_at()) != NEVER:
            self._at(due, lambda at: self._asks(request, primary, at))

    def _shows(self, request: Request, attempt: Attempt, now: float) -> None:
        state, hedger, view = request.state, self.hedger, request.view
        if state.over or not state.content(attempt):
            return
        request.ttft_s = now - request.began
        ttft_s = now - attempt.began
        self.fleet.outcomes.showed_content(attempt.at, now, attempt.began, ttft_s, attempt.tokens)
        hedger.shown(view, attempt, now)
        losers = [other for other in state.live if other is not attempt]
        state.outrun(now)
        for loser in losers:
            hedger.outrun(view, loser, -1, now)
        state.completed(attempt, now)
