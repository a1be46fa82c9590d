"""Hedging in a fleet with little traffic: copies at idle replicas, silent replicas, pairs."""

from typing import Any

import msgspec
import pytest

from router.config.model import Hedging
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.dispatch.hedging.silence import LEAST_S
from router.fleet.engines.common.registry import engine_of
from router.fleet.replica import Replica
from router.wire.sweep import NEVER
from tests.dispatch.hedging.hedged_fleet import HedgedFleet
from tests.dispatch.hedging.test_hedger_at_large import PER_S
from tests.dispatch.hedging.world import TOKENS, World, played, work_much
from tests.examples import ALL

POLL_S = 1.0


def answers(w: World, replica: Replica, took_s: float, count: int = 1) -> None:
    """The replica answers requests that may not be hedged, one after the other."""
    for _ in range(count):
        state, attempt, _ = w.dispatch(replica, "")
        w.now += took_s
        w.answer(state, attempt)


def polled(w: World, replica: Replica, generated: int) -> None:
    """A poll of an engine that counts tokens while it generates; the count has grown, or not."""
    before = replica.reports.signals.generated_tokens
    if before is not None and generated > before:
        replica.progress.polled(replica.reports.at, w.now)
    replica.descriptor = engine_of("vllm")
    replica.reports.signals = msgspec.structs.replace(
        replica.reports.signals, generated_tokens=generated
    )
    replica.reports.at = w.now


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["adaptive", "quantile", "fixed"])
@played
def test_the_first_request_of_a_fresh_router_gets_a_copy_without_budget(policy: str) -> None:
    w = World(is_quiet=True, policy=policy)
    state, attempt, due = w.dispatch(w.a)
    assert due <= w.now + LEAST_S
    w.now = due
    while not (found := w.ask(attempt)):
        w.now = w.hedger.asks_again_at()
    assert w.now - attempt.began <= LEAST_S
    assert found == ["b", "c"]
    hedge = w.copy(state, attempt)
    cause = "late" if policy == "fixed" else "silent"
    counts = w.counts
    assert {why.value: n for why, n in counts.causes.items() if n} == {cause: 1}
    assert (counts.fired, counts.idle, counts.idle_tokens) == (1, 1, TOKENS)
    w.answer(state, hedge)


@pytest.mark.parametrize("usual_s", [0.02, 0.1, 0.29, 1 / 3, 0.45, 1.0, 5.0])
@pytest.mark.parametrize("known", [0, 2, 5, 30])
@pytest.mark.parametrize("has_answered", [True, False])
@played
def test_each_request_is_answered_within_a_second_or_three_times_the_usual(
    usual_s: float, known: int, has_answered: bool
) -> None:
    """`a` hangs, from the beginning or after it has answered; nothing is known after a start."""
    w = World(is_quiet=True)
    answers(w, w.b, usual_s, known)
    if has_answered:
        answers(w, w.a, usual_s, known)
    for _ in range(5):
        state, attempt, due = w.dispatch(w.a)
        w.now = due
        while not w.ask(attempt):
            w.now = w.hedger.asks_again_at()
            assert w.now < attempt.began + 10.0 * max(usual_s, 1.0)
        hedge = w.copy(state, attempt)
        w.now += usual_s
        assert w.now - attempt.began <= max(1.0, 3.0 * usual_s)
        w.answer(state, hedge)
        w.now += 10.0 * usual_s


@played
def test_a_replica_that_works_for_others_is_not_silent() -> None:
    w = World(is_quiet=True)
    other, stream = w.begin(w.a)
    assert other.content(stream)
    _, attempt, due = w.dispatch(w.a)
    while due < attempt.began + 5.0:
        w.now = due
        w.a.progress.at = w.now - 0.1  # a token of the other stream
        assert w.ask(attempt) == []
        due = w.hedger.asks_again_at()
        assert due < NEVER
    assert w.refused.keys() == {"cold"}
    w.now += LEAST_S  # the other stream stands still, too
    assert w.ask(attempt) == ["b", "c"]


@played
def test_totals_that_grew_before_the_replica_hung_are_no_sign() -> None:
    w = World(is_quiet=True)
    _, attempt, due = w.dispatch(w.a)
    w.a.progress.polled(w.now - 0.5, w.now + 0.1)  # a poll sees the tokens of an earlier request
    w.now = due
    assert w.ask(attempt) == ["b", "c"]


@played
def test_a_silent_replica_in_a_busy_fleet_is_no_cause_for_a_copy() -> None:
    w = World(is_quiet=True)
    for replica in (w.b, w.c):
        work_much(w.hedger, replica, w.now)
    _, attempt, due = w.dispatch(w.a)
    w.now = due
    assert w.ask(attempt) == []
    assert w.refused == {"cold": 1}


# -- answers that are not streamed ----------------------------------------------------------------


def whole(w: World, usual_s: float) -> tuple[AttemptState, Attempt, float]:
    """A request that is not streamed at `a`, whose answers usually take `usual_s`."""
    w.view.stream = False
    for replica in (w.a, w.b):
        polled(w, replica, 0)
        answers(w, replica, usual_s, 5)
    return w.dispatch(w.a)


@played
def test_a_long_answer_gets_no_free_copy_while_polls_show_its_tokens() -> None:
    w = World(is_quiet=True)
    _, attempt, due = whole(w, 3.0)
    assert due < NEVER
    generated, next_poll = 0, w.now + POLL_S
    while w.now < attempt.began + 60.0:
        if due <= next_poll:
            w.now = due
            assert w.ask(attempt) == []
            due = w.hedger.asks_again_at()
        else:
            w.now = next_poll
            generated += 30
            polled(w, w.a, generated)
            next_poll += POLL_S
    assert w.refused.keys() <= {"cold", "budget", "gain"}
    # Now the engine stands still, and a poll shows it.
    w.now += 2.0 * POLL_S
    polled(w, w.a, generated)
    assert w.ask(attempt) == ["b", "c"]


@played
def test_a_poll_that_shows_no_work_makes_a_whole_answer_late() -> None:
    w = World(is_quiet=True)
    _, attempt, due = whole(w, 10.0)
    w.now = due
    assert w.ask(attempt) == []  # no poll has come since
    w.now = attempt.began + 2.0 * POLL_S
    polled(w, w.a, 0)
    assert sorted(w.ask(attempt)) == ["b", "c"]  # Their predictions are equal but for rounding.


@played
def test_without_metrics_a_whole_answer_is_late_by_its_usual_time() -> None:
    w = World(is_quiet=True)
    w.view.stream = False
    answers(w, w.b, 10.0, 5)
    _, attempt, due = w.dispatch(w.a)
    w.now = due
    while not w.ask(attempt):
        w.now = w.hedger.asks_again_at()
    assert 10.0 < w.now - attempt.began <= 20.0


# -- what bounds the copies -----------------------------------------------------------------------


@played
def test_a_fleet_that_hangs_does_not_double_itself() -> None:
    w = World(is_quiet=True, delay={"critical": 0.0})
    lives = []
    for number in range(30):
        primary = (w.a, w.b, w.c)[number % 3]
        state, attempt, due = w.dispatch(primary, ("critical", "high")[number % 2])
        lives.append((state, attempt))
        w.now = max(w.now, min(due, w.now + 1.0))
        for state, attempt in lives:
            if len(state.attempts) == 1 and (found := w.ask(attempt, [w.a, w.b, w.c])):
                _, hedge = w.begin(w.table.fleet.replicas[found[0]], state, hedge=True)
                w.hedger.sent(w.view, hedge, w.now)
    assert 1 <= w.counts.fired <= 3


@played
def test_one_copy_of_an_enormous_prompt_makes_the_replica_busy() -> None:
    w = World(is_quiet=True)
    w.view.prompt_tokens = 200_000
    w.view.block_tokens = 16
    for is_first in (True, False):
        state = AttemptState(3)
        attempt = state.begin(w.a, w.now, 200_000, 0, True)
        state.sent(attempt)
        w.now = w.hedger.dispatched(w.view, attempt, "high", w.now)
        assert w.ask(attempt, [w.b]) == (["b"] if is_first else [])
        if is_first:
            hedge = state.begin(w.b, w.now, 200_000, 0, True, hedge=True)
            state.sent(hedge)
            w.hedger.sent(w.view, hedge, w.now)
            assert (w.counts.idle, w.counts.idle_tokens) == (1, 200_000)
        state.end(Reason.CLIENT_GONE, w.now)
    assert w.refused.keys() <= {"budget", "cold"}


@pytest.mark.parametrize("rules", [{"budget": 0.0}, {"policy": "off"}], ids=["budget 0", "off"])
@played
def test_no_copy_is_free_without_a_budget(rules: dict[str, Any]) -> None:
    w = World(is_quiet=True, delay={"high": 0.0}, **rules)
    _, attempt, _ = w.dispatch(w.a)
    w.now += 60.0
    assert w.ask(attempt) == []


@pytest.mark.parametrize("delay", [{}, {"high": 0.0}], ids=["late", "pairs"])
@pytest.mark.parametrize("seed", [1, 2, 3] if ALL else [1])
@played
def test_clients_that_send_all_as_urgent_pay_under_load(seed: int, delay: dict[Any, float]) -> None:
    """The replicas compute a fifth of the time, so they are not idle after the first minute."""
    f = HedgedFleet(Hedging(delay=delay), seed=seed, high=1.0, is_quiet=True)
    f.play(9000, 3.0 * PER_S)
    before = f.counts.fired_tokens, f.tokens
    f.play(9000, 3.0 * PER_S)
    copied, tokens = f.counts.fired_tokens - before[0], f.tokens - before[1]
    assert 0.0 < copied <= 1.1 * 0.05 * tokens


# -- pairs ----------------------------------------------------------------------------------------


@played
def test_a_class_can_ask_for_two_copies_at_once() -> None:
    w = World(is_quiet=True, delay={"critical": 0.0})
    state, attempt, due = w.dispatch(w.a, "critical")
    assert due == w.now
    hedge = w.copy(state, attempt)
    assert {why.value: n for why, n in w.counts.causes.items() if n} == {"class": 1}
    w.answer(state, hedge)
    _, _, due = w.dispatch(w.a, "high")
    assert due > w.now


@played
def test_the_budget_pays_for_pairs_under_load() -> None:
    w = World(delay={"critical": 0.0})
    w.learn(hedges_as="")
    pairs = 0
    for _ in range(200):
        state, attempt, due = w.dispatch(w.a, "critical")
        assert due == w.now
        if w.ask(attempt):
            pairs += 1
            w.copy(state, attempt)
        w.answer(state, attempt)
    assert 0 < pairs <= 0.05 * 300
