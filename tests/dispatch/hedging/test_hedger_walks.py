"""Random walks over all events of requests and their copies.

For any order, each copy ends once, the budget is not exceeded, and nothing remains stored.
"""

from random import Random

import pytest

from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.wire.sweep import NEVER
from tests.dispatch.hedging.world import TOKENS, World, played

ENDS = (Reason.CONNECT_FAILED, Reason.REPLICA_RESET, Reason.SERVER_ERROR, Reason.CLIENT_GONE)


class Walk:
    """Some concurrent requests; `step` triggers an event of one of them."""

    def __init__(self, seed: int, dry_run: bool, is_quiet: bool) -> None:
        self.rng = Random(seed)
        self.budget = self.rng.choice((0.02, 0.05, 0.5, 1.0))
        policy = self.rng.choice(("adaptive", "quantile", "fixed"))
        delay = self.rng.choice(({}, {"high": 0.0}))
        self.w = World(
            is_quiet=is_quiet, policy=policy, budget=self.budget, dry_run=dry_run, delay=delay
        )
        self.is_quiet = is_quiet
        self.begun = self.rng.choice((0, 60))  # number of requests so far
        self.w.learn(self.begun)
        self.due: dict[AttemptState, float] = {}

    def step(self) -> None:
        w, rng = self.w, self.rng
        w.now += rng.choice((0.0, 0.01, 0.3, 3.0))
        replicas = [w.a, w.b, w.c]
        live = [state for state in self.due if not state.over]
        what = rng.random()
        if not live or what < 0.3:
            self.begun += 1
            state, _, due = w.dispatch(rng.choice(replicas), rng.choice(("high", "")))
            self.due[state] = due
            return
        state = rng.choice(live)
        primary = state.attempts[0]
        if what < 0.6 and len(state.attempts) == 1 and self.due[state] < NEVER:
            found = w.ask(primary, others=[r for r in replicas if r is not primary.at])
            if found:
                replica = w.table.fleet.replicas[rng.choice(found)]
                _, hedge = w.begin(replica, state, hedge=True)
                w.hedger.sent(w.view, hedge, w.now)
        elif what < 0.85:
            self.answers(state, rng.choice(state.live))
        else:
            self.fails(state, rng.choice(state.live))

    def answers(self, state: AttemptState, attempt: Attempt) -> None:
        self.w.answer(state, attempt)

    def fails(self, state: AttemptState, attempt: Attempt) -> None:
        w, reason = self.w, self.rng.choice(ENDS)
        if reason is Reason.CLIENT_GONE or state.live == [attempt]:
            ended = [*state.live]
            state.end(reason, w.now)
        else:
            ended = [attempt]
            state.keep_error(attempt, reason, w.now)
        for gone in ended:
            w.hedger.failed(w.view, gone, w.now)

    def check(self) -> None:
        counts = self.w.counts
        live = sum(len(state.live) for state in self.due) - sum(
            not state.over and state.attempts[0] in state.live for state in self.due
        )
        assert counts.fired == counts.won + counts.lost + counts.failed + live
        assert counts.budget_tokens >= 0.0
        assert counts.fired == sum(counts.causes.values())
        # Copies at idle replicas are not counted in the share, and dry runs do not count them.
        if not (self.is_quiet and self.w.rules.dry_run):
            spent = counts.fired_tokens + counts.would_fire_tokens - counts.idle_tokens
            assert spent <= self.budget * TOKENS * self.begun + 1e-6
        assert self.is_quiet or counts.idle == counts.idle_tokens == 0
        assert counts.wasted_tokens <= TOKENS * counts.fired


@pytest.mark.parametrize("is_quiet", [False, True], ids=["busy", "quiet"])
@pytest.mark.parametrize("dry_run", [False, True])
@played
def test_under_random_operations_each_copy_ends_once(dry_run: bool, is_quiet: bool) -> None:
    fired = failed = 0
    for seed in range(60):
        walk = Walk(seed, dry_run, is_quiet)
        for _ in range(150):
            walk.step()
            walk.check()
        for state in walk.due:
            if not state.over:
                walk.answers(state, state.live[0])
        walk.check()
        fired += walk.w.counts.fired
        failed += walk.w.counts.failed
    assert (fired > 100 and failed > 10) is not dry_run
