"""The hedger's calls one by one: its times, its choice of a replica, its counters."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from policies.hedging import contract
from policies.hedging.contract import Delay, HedgingPolicy, PolicyConfigError, policy_names
from policies.hedging.curve import Curve
from router.config.model import Hedging
from router.core.errors import Reason
from router.core.lease import Lease
from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.dispatch.hedging.hedger import ASKED
from router.dispatch.hedging.learned_times import MODELS_MAX
from router.fleet.health import RACES
from router.fleet.signals import Signals
from router.observe.hedge_counts import HedgeCounts, Refusal
from router.wire.sweep import NEVER
from tests.dispatch.hedging.world import TOKENS, TOOK_S, World, expected, played

# -- the time of a copy -----------------------------------------------------------------------


@played
def test_the_first_requests_have_a_time_to_ask() -> None:
    """The time follows from assumed times. Before any answer no copy is sent: all may be slow."""
    w = World(budget=1.0)
    _, attempt, due = w.dispatch(w.a)
    assert w.now + 0.1 < due < w.now + 2.0
    w.now = due
    assert w.ask(attempt) == []
    assert w.refused == {"cold": 1}
    assert w.now < w.hedger.asks_again_at() < w.now + 1.0
    other, second, _ = w.dispatch(w.b)
    w.now += TOOK_S
    w.answer(other, second)
    assert w.ask(attempt) == ["b", "c"]


@played
def test_the_distance_is_a_part_of_the_prediction_and_not_of_the_line() -> None:
    """All replicas of a model share one fitted line, at any distance."""
    near, far = World(budget=1.0), World(budget=1.0)
    far.a.speed.rtt_s = 0.5
    for w, took_s in ((near, TOOK_S), (far, TOOK_S + 0.5)):
        for _ in range(40):
            state, attempt, _ = w.dispatch(w.a)
            w.now += took_s
            w.answer(state, attempt)
    predicted = []
    for w, replica in ((near, near.a), (far, far.b), (far, far.a)):
        state, attempt, _ = w.dispatch(replica)
        predicted.append(expected(attempt).predicted_s)
        state.end(Reason.CLIENT_GONE, w.now)
    assert predicted[1] == pytest.approx(predicted[0], rel=0.02)
    assert predicted[2] == pytest.approx(predicted[0] + 0.5, rel=0.02)


@played
def test_an_answer_that_took_long_makes_those_that_wait_less_late() -> None:
    """A large model takes ten times the assumed time.

    At the time derived from the assumption, the hedger has already learned the real one.
    """
    w = World(budget=1.0)
    slow, first, _ = w.dispatch(w.b)
    w.now += 3.0
    _, attempt, due = w.dispatch(w.a)
    w.answer(slow, first)
    w.now = due
    assert w.ask(attempt) == []
    assert w.refused == {"cold": 1}
    w.now = attempt.began + 10.0
    assert w.ask(attempt) == ["b", "c"]


@played
def test_a_prediction_and_a_time_to_ask() -> None:
    w = World()
    w.learn()
    _, attempt, due = w.dispatch(w.a)
    assert expected(attempt).predicted_s == pytest.approx(TOOK_S, rel=0.01)
    # just after the time of most answers, whose times are all equal
    assert due - w.now == pytest.approx(TOOK_S, rel=0.05)


@pytest.mark.parametrize("hedges_as", ["", "normal"])
@played
def test_a_request_that_may_not_be_hedged_gets_no_copy(hedges_as: str) -> None:
    w = World()
    w.learn()
    before = w.refused
    _, attempt, due = w.dispatch(w.a, hedges_as)
    assert due == NEVER
    assert w.refused == before  # not counted as suppressed, because the request is not hedgeable
    assert expected(attempt).predicted_s > 0.0  # and its time is learned like that of any request


@played
def test_a_header_may_ask_where_that_is_allowed() -> None:
    w = World(by_header=True, classes=())
    w.learn(hedges_as=ASKED)
    _, _, due = w.dispatch(w.a, ASKED)
    assert due < NEVER


@played
def test_a_long_prompt_is_not_hedged() -> None:
    w = World(prompt_tokens=TOKENS - 1)
    w.learn(3)
    assert w.refused == {"long": 3}


@played
def test_the_policy_off_measures_nothing() -> None:
    w = World(policy="off")
    state, attempt, due = w.dispatch(w.a)
    assert (due, attempt.lateness) == (NEVER, None)
    assert w.ask(attempt) == []
    w.answer(state, attempt)
    assert vars(w.counts) == vars(HedgeCounts())


@played
def test_fixed_needs_no_samples() -> None:
    w = World(policy="fixed", options={"delay_s": 0.5})
    _, attempt, due = w.dispatch(w.a)
    assert due == w.now + 0.5
    w.now = due
    assert w.ask(attempt) == []
    assert w.refused == {"budget": 1}  # but the budget cannot pay for a copy


@played
def test_streams_and_whole_answers_are_apart() -> None:
    w = World()
    w.learn()
    w.view.stream = False
    _, attempt, due = w.dispatch(w.a)
    assert expected(attempt).predicted_s > 1.0  # assumed, because a whole answer takes seconds
    assert w.now + 1.0 < due < NEVER


@played
def test_what_waits_ahead_makes_it_later() -> None:
    w = World()
    # prompts of 1000 tokens with zero, one or two other prompts waiting before them
    for number in range(200):
        lives = [w.dispatch(w.a) for _ in range(number % 3 + 1)]
        for behind, (state, attempt, _) in enumerate(lives):
            w.now += TOOK_S
            assert expected(attempt).ahead == (behind + 1) * TOKENS
            w.answer(state, attempt)
    _, one, _ = w.dispatch(w.a)
    _, two, _ = w.dispatch(w.a)
    assert expected(one).predicted_s == pytest.approx(TOOK_S, rel=0.05)
    assert expected(two).predicted_s == pytest.approx(2 * TOOK_S, rel=0.05)


# -- the replica of a copy --------------------------------------------------------------------


@played
def test_each_refusal_has_one_reason_and_says_whether_to_ask_again() -> None:
    w = World()
    w.learn()
    w.counts.suppressed = dict.fromkeys(Refusal, 0)
    _, attempt = w.late()
    hedger, b = w.hedger, w.b

    def refused(why: Refusal, *, again: bool) -> None:
        before = dict(w.counts.suppressed)
        assert w.ask(attempt, others=[b]) == []
        before[why] += 1
        assert w.counts.suppressed == before
        due = hedger.asks_again_at()
        assert w.now < due < w.now + 1.0 if again else due == NEVER

    def told(**signals: Any) -> None:
        for replica in (w.a, b):
            replica.reports.last = replica.reports.signals = msgspec.structs.replace(
                replica.reports.signals, **signals
            )

    waiting, _ = w.begin(b)
    refused(Refusal.WAITING, again=True)
    waiting.end(Reason.CLIENT_GONE, w.now)
    b.kv_usage = 0.95
    refused(Refusal.KV, again=True)
    b.kv_usage = None
    w.a.slots = b.slots = 1  # one of two slots is in use
    w.hedger.adopt(msgspec.structs.replace(w.rules, utilisation=0.5))
    refused(Refusal.UTILISATION, again=True)
    w.hedger.adopt(w.rules)
    assert w.ask(attempt, others=[b]) == ["b"]  # utilisation 0.5 is below 0.7
    told(started_at=1_700_000_000.0)
    refused(Refusal.SAME_ENGINE, again=True)
    told(started_at=None)
    b.health.half_open = True
    refused(Refusal.HEALTH, again=True)
    b.health.half_open = False
    w.view.prompt_tokens = 10**6
    refused(Refusal.BUDGET, again=True)
    w.view.prompt_tokens = TOKENS
    w.now -= 0.9 * TOOK_S  # evaluated too early: the attempt has hardly begun
    refused(Refusal.GAIN, again=True)
    w.now += 0.9 * TOOK_S
    assert hedger.backup(w.view, attempt, [], w.now) == ()
    assert w.counts.suppressed[Refusal.ALONE] == 1
    assert hedger.asks_again_at() == NEVER
    assert w.ask(attempt, others=[b]) == ["b"]
    assert hedger.asks_again_at() == NEVER  # the attempt was not refused


@played
def test_a_replica_that_must_prefill_much_more_does_not_pay() -> None:
    """The other replicas would have to prefill the part that the first one has in its cache."""
    w = World()
    knowledge = w.table.fleet.knowledge
    w.learn()
    for replica in (w.a, w.b):
        w.view.blocks = tuple(range(1, 1 + 4 * TOKENS // 128))
        knowledge.sent(replica, w.view.blocks, 0)
        knowledge.begun(replica, w.view.blocks, 0)
    w.view.prompt_tokens = 10**5  # a and b hold little of the prompt, and the budget is too small
    _, attempt = w.late()
    assert w.ask(attempt) == []
    assert w.refused["budget"] == 1
    w.view.prompt_tokens = 4 * TOKENS  # b holds nearly all of the prompt, c nothing
    assert w.ask(attempt) == ["b"]


@played
def test_a_replica_of_a_slow_kind_takes_no_copy_that_does_not_pay() -> None:
    w = World()
    w.learn()
    for _ in range(20):
        state, attempt, _ = w.dispatch(w.c, "")
        w.now += 7.5 * TOOK_S
        w.answer(state, attempt)
    _, attempt = w.late()
    w.now = attempt.began + 2 * TOOK_S  # as late as earlier ones that needed 8 more
    assert w.ask(attempt, others=[w.c, w.b]) == ["b"]
    assert w.ask(attempt, others=[w.c]) == []
    assert w.refused["gain"] == 1


@played
def test_immediate_is_for_critical_ones_in_a_pool_known_to_be_idle() -> None:
    w = World(policy="immediate", classes=("critical", "high"))
    for _ in range(50):
        state, attempt, due = w.dispatch(w.a, "critical")
        assert due == w.now
        w.answer(state, attempt)
    state, _, due = w.dispatch(w.a, "high")
    assert due == NEVER
    state.end(Reason.CLIENT_GONE, w.now)
    _, attempt, due = w.dispatch(w.a, "critical")
    assert w.ask(attempt) == []  # the load of b and c is unknown
    for replica in (w.a, w.b, w.c):
        replica.slots = 2
    assert w.ask(attempt) == ["b", "c"]  # 1 of 6
    for replica in (w.a, w.b, w.c):
        replica.slots = 1
    assert w.ask(attempt) == []  # 1 of 3
    assert w.refused == {"utilisation": 2}


# -- the end of a copy ------------------------------------------------------------------------


def copied(w: World, *, connecting: bool = False) -> tuple[AttemptState, Attempt, Attempt]:
    """A late request at `a`, and its copy at `b`."""
    state, primary = w.late()
    return state, primary, w.copy(state, primary, connecting=connecting)


@played
def test_a_copy_that_wins() -> None:
    w = World()
    w.learn()
    level = w.counts.budget_tokens
    state, _, hedge = copied(w)
    counts = w.counts
    assert (counts.fired, counts.fired_tokens) == (1, TOKENS)
    assert expected(hedge).predicted_s == pytest.approx(TOOK_S, rel=0.01)
    assert counts.budget_tokens == pytest.approx(level - TOKENS, abs=100)
    w.now += TOOK_S
    w.answer(state, hedge)
    assert (counts.won, counts.lost, counts.failed) == (1, 0, 0)
    assert counts.wasted_tokens == TOKENS
    # The attempt had waited for 2 of 10 s: attempts that were as late needed 8 s more.
    assert counts.saved_s == pytest.approx(8 * TOOK_S, rel=0.1)


@played
def test_a_copy_that_loses() -> None:
    w = World()
    w.learn()
    state, primary, _ = copied(w)
    w.now += TOOK_S / 4
    w.answer(state, primary)
    counts = w.counts
    assert (counts.won, counts.lost, counts.failed) == (0, 1, 0)
    # A quarter of the prompt was computed by then, at the usual speed.
    assert counts.wasted_tokens == pytest.approx(TOKENS / 4, rel=0.05)
    assert (counts.fired_tokens, counts.saved_s) == (TOKENS, 0.0)
    assert w.a.health.races_lost == w.b.health.races_lost == 0


@played
def test_what_waits_before_a_copy_is_computed_first() -> None:
    w = World()
    w.learn()
    state, primary = w.late()
    assert "b" in w.ask(primary)
    others = [Lease(w.b, TOKENS) for _ in range(2)]
    _, hedge = w.begin(w.b, state, hedge=True)
    w.hedger.sent(w.view, hedge, w.now)
    assert expected(hedge).ahead == 3 * TOKENS
    w.now += expected(hedge).predicted_s / 2
    w.answer(state, primary)
    assert w.counts.wasted_tokens == 0
    for lease in others:
        lease.release()


@played
def test_a_copy_overtaken_while_connecting_is_refunded() -> None:
    w = World()
    w.learn()
    state, primary, _ = copied(w, connecting=True)
    level = w.counts.budget_tokens
    w.now += TOOK_S / 4
    w.answer(state, primary)
    counts = w.counts
    assert (counts.lost, counts.wasted_tokens) == (1, 0)
    assert (counts.fired_tokens, counts.returned_tokens) == (0, TOKENS)
    assert counts.budget_tokens == pytest.approx(level + TOKENS)


@pytest.mark.parametrize(
    ("reason", "connecting", "wasted"),
    [
        (Reason.CONNECT_FAILED, True, 0),
        (Reason.CLIENT_GONE, True, 0),
        (Reason.REPLICA_RESET, False, TOKENS),
        (Reason.CLIENT_GONE, False, TOKENS),
    ],
)
@played
def test_a_copy_that_fails(reason: Reason, connecting: bool, wasted: int) -> None:
    w = World()
    w.learn()
    state, primary, hedge = copied(w, connecting=connecting)
    w.now += 1.01 * TOOK_S  # The prediction is at most 1 % above the usual time.
    level = w.counts.budget_tokens
    state.keep_error(hedge, reason, w.now)
    w.hedger.failed(w.view, hedge, w.now)
    counts = w.counts
    assert (counts.won, counts.lost, counts.failed) == (0, 0, 1)
    assert counts.wasted_tokens == wasted
    assert (counts.fired_tokens, counts.returned_tokens) == (wasted, TOKENS - wasted)
    # A copy that never reached a replica costs nothing.
    assert counts.budget_tokens == pytest.approx(level + TOKENS - wasted)
    w.answer(state, primary)


@played
def test_a_replica_that_loses_repeatedly_is_suspect() -> None:
    w = World(budget=0.2)  # a budget that keeps more of its deposits
    w.learn(200)
    for number in range(RACES):
        assert not w.a.health.suspected_at
        state, _, hedge = copied(w)
        w.now += TOOK_S
        w.answer(state, hedge)
        if number == 0:  # an answer in between shows that the replica is alive
            state, attempt, _ = w.dispatch(w.a, "")
            w.answer(state, attempt)
            state, _, hedge = copied(w)
            w.now += TOOK_S
            w.answer(state, hedge)
    assert w.a.health.suspected_at is not None
    assert w.table.events == [("suspect", "a")]
    assert w.counts.suspected == 1


@played
def test_unknown_attempts_are_ignored() -> None:
    w = World()
    state, attempt = w.begin(w.a)
    w.hedger.failed(w.view, attempt, w.now)
    state.failed(attempt, Reason.CONNECT_FAILED, w.now, repeatable=True, known_dead=False)
    _, retry = w.begin(w.b, state)
    w.answer(state, retry)
    assert vars(w.counts) == vars(HedgeCounts())


@played
def test_a_dry_run_sends_nothing_and_counts_what_would_be() -> None:
    w = World(dry_run=True)
    w.learn()
    state, primary = w.late()
    assert w.ask(primary) == []
    assert w.ask(primary) == []  # at most one copy per request
    counts = w.counts
    assert (counts.would_fire, counts.would_fire_tokens, counts.fired) == (1, TOKENS, 0)
    assert w.hedger.asks_again_at() == NEVER
    w.now += 9 * TOOK_S
    w.answer(state, primary)
    assert counts.would_win == 1
    assert counts.would_save_s == pytest.approx(8 * TOOK_S, rel=0.05)
    state, primary = w.late()
    assert w.ask(primary) == []
    w.now += 0.5 * TOOK_S  # the first attempt answers before the copy would have
    w.answer(state, primary)
    assert (counts.would_fire, counts.would_win) == (2, 1)


# -- policies and reloads ---------------------------------------------------------------------


@played
def test_a_reload_changes_the_rules_and_keeps_what_was_learned() -> None:
    w = World()
    w.learn()
    w.hedger.adopt(Hedging(policy="fixed", options={"delay_s": 3.0}, classes=("low",)))
    state, attempt, due = w.dispatch(w.a, "low")
    assert due == w.now + 3.0
    assert expected(attempt).predicted_s == pytest.approx(TOOK_S, rel=0.01)
    state.end(Reason.CLIENT_GONE, w.now)
    with pytest.raises(PolicyConfigError):
        w.hedger.adopt(Hedging(policy="sometimes"))
    state, _, due = w.dispatch(w.a, "low")
    assert due == w.now + 3.0  # unchanged


class Broken(HedgingPolicy):
    """A third-party policy that raises, or returns an invalid time."""

    says: object = None

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says  # type: ignore[return-value]


@pytest.mark.parametrize(
    "says",
    [ValueError("no"), Delay(-1.0), Delay(float("nan")), Delay(0.0, -1.0), 7, ("a", "b")],
    ids=repr,
)
def test_a_policy_that_fails_hedges_nothing(says: object, monkeypatch: pytest.MonkeyPatch) -> None:
    policy_names()
    broken = type("Broken", (Broken,), {"says": says})
    monkeypatch.setitem(contract.HEDGING.classes, "broken", broken)

    @played
    def play() -> None:
        w = World(policy="broken")
        state, attempt, due = w.dispatch(w.a)
        assert due == NEVER
        assert w.counts.policy_errors == 1
        w.answer(state, attempt)

    play()


def test_a_policy_that_changes_its_plan_meanwhile_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy_names()
    wavering = type("Wavering", (Broken,), {"says": Delay(seconds=0.1)})
    monkeypatch.setitem(contract.HEDGING.classes, "wavering", wavering)

    @played
    def play() -> None:
        w = World(policy="wavering")
        w.learn()
        _, attempt, due = w.dispatch(w.a)
        assert due == w.now + 0.1
        for says, found in ((None, []), (Delay(seconds=0.1), ["b", "c"])):
            wavering.says = says  # type: ignore[attr-defined]
            w.now += 2.0
            state, _, due = w.dispatch(w.a)  # the hedger asks for a new plan
            state.end(Reason.CLIENT_GONE, w.now)
            assert (due == NEVER) == (says is None)
            w.counts.suppressed = dict.fromkeys(Refusal, 0)
            assert w.ask(attempt) == found
            assert w.refused == ({} if found else {"gain": 1})
            assert (w.hedger.asks_again_at() < NEVER) == (not found)

    play()


def test_a_policy_that_cannot_judge_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy_names()

    @dataclass(slots=True)
    class Unsure(HedgingPolicy):
        def delay(self, curve: Curve, quantile: float) -> Delay | None:
            return Delay(seconds=0.1)

        def pays(self, waited_s: float, predicted_s: float, backup_s: float, curve: Curve) -> bool:
            raise RuntimeError("who knows")

    monkeypatch.setitem(contract.HEDGING.classes, "unsure", Unsure)

    @played
    def play() -> None:
        w = World(policy="unsure")
        w.learn()
        _, attempt, due = w.dispatch(w.a)
        w.now = due
        assert w.ask(attempt) == []
        assert w.counts.policy_errors == 1
        assert w.refused == {"gain": 1}

    play()


@played
def test_models_that_clients_invent_are_bounded() -> None:
    w = World()
    for number in range(3 * MODELS_MAX):
        w.view.model = f"invented-{number}"
        state, attempt, _ = w.dispatch(w.a)
        w.answer(state, attempt)
    assert len(w.hedger.times.entries()) <= MODELS_MAX + 1
    w.now += 100.0  # the entries were not used since, so they are evicted
    w.view.model = "m"
    w.learn()
    assert [name for name, _, _ in w.hedger.times.entries()] == ["m"]
    _, _, due = w.dispatch(w.a)
    assert due < NEVER


@played
def test_missing_signals_do_not_prevent_copies() -> None:
    w = World()
    w.learn()
    for replica in (w.a, w.b, w.c):
        replica.reports.signals = replica.reports.last = Signals()
    _, attempt = w.late()
    assert w.ask(attempt) == ["b", "c"]
