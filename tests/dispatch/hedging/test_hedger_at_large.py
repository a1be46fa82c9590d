"""The hedger over thousands of requests: the hedged requests, their cost and benefit.

No engine and no socket: `hedged_fleet.py` plays attempts whose times are linear, and one in
twenty takes ten times as long.
"""

import pytest

from router.config.model import Hedging
from router.fleet.health import RACES
from tests.dispatch.hedging.hedged_fleet import HedgedFleet, Request
from tests.dispatch.hedging.world import expected, played

REQUESTS = 3000
PER_S = 30.0


def p99(requests: list[Request]) -> float:
    times = sorted(r.ttft_s for r in requests)
    return times[int(0.99 * len(times))]


def share(requests: list[Request]) -> float:
    """Share of hedged requests."""
    return sum(r.was_hedged for r in requests) / len(requests)


def within_budget(f: HedgedFleet) -> bool:
    counts = f.counts
    assert counts.fired == counts.won + counts.lost + counts.failed
    return counts.fired_tokens <= f.hedger._budget.share * f.tokens


@pytest.mark.parametrize("seed", [1, 2, 3])
@played
def test_it_hedges_the_stragglers_and_few_others(seed: int) -> None:
    f = HedgedFleet(seed=seed)
    f.play(1000, PER_S)  # the hedger warms up
    high = [r for r in f.play(REQUESTS, PER_S) if r.urgency]
    assert share([r for r in high if r.was_slow]) > 0.95
    assert share([r for r in high if not r.was_slow]) < 0.02
    assert within_budget(f)
    assert f.counts.fired_tokens < 0.02 * f.tokens  # far less than the budget allows
    assert f.counts.won > 0.75 * f.counts.fired
    assert f.counts.quantile == pytest.approx(0.75, abs=0.05)


@played
def test_hedging_removes_the_tail_of_hedgeable_requests() -> None:
    off, on = HedgedFleet(Hedging(policy="off")), HedgedFleet()
    without, hedged = off.play(REQUESTS, PER_S), on.play(REQUESTS, PER_S)
    for requests in (without, hedged):
        del requests[:1000]
    assert p99([r for r in hedged if r.urgency]) < 0.4 * p99([r for r in without if r.urgency])
    others = [[r for r in requests if not r.urgency] for requests in (without, hedged)]
    assert p99(others[1]) < 1.1 * p99(others[0])


@played
def test_quantile_spends_its_budget_on_the_latest() -> None:
    f = HedgedFleet(Hedging(policy="quantile"))
    f.play(1000, PER_S)
    high = [r for r in f.play(REQUESTS, PER_S) if r.urgency]
    assert share([r for r in high if r.was_slow]) > 0.9
    assert share(high) == pytest.approx(0.25, abs=0.07)
    assert within_budget(f)


@played
def test_stragglers_are_hedged_even_if_all_requests_may_be() -> None:
    """The budget pays for as many copies as there are stragglers: the hedger must not wait for
    the latest stragglers.
    """
    f = HedgedFleet(high=1.0)
    f.play(1000, PER_S)
    requests = f.play(REQUESTS, PER_S)
    assert share([r for r in requests if r.was_slow]) > 0.8
    assert share([r for r in requests if not r.was_slow]) < 0.02
    assert within_budget(f)


@played
def test_without_a_tail_next_to_nothing_is_sent() -> None:
    f = HedgedFleet(stragglers=0.0)
    f.play(1000, PER_S)
    high = [r for r in f.play(REQUESTS, PER_S) if r.urgency]
    assert share(high) < 0.03


@played
def test_the_budget_holds_if_all_requests_are_slow() -> None:
    f = HedgedFleet(high=1.0)
    f.play(1000, PER_S)
    start = f.requests[-1].began
    f.slowness = lambda now: 4.0 if now > start + 20.0 else 1.0
    f.play(REQUESTS, PER_S)
    assert within_budget(f)


@played
def test_a_frozen_replica_delays_requests_only_a_little() -> None:
    """One of twenty replicas never answers again; before, no request was slow."""
    f = HedgedFleet(stragglers=0.0, high=1.0)
    f.play(2000, PER_S)
    f.freeze(f.table.fleet.replicas["r3"])
    requests = f.play(1000, PER_S)
    stuck = [r for r in requests if r.state.attempts[0].at.id == "r3"]
    assert len(stuck) >= RACES
    assert all(r.was_hedged for r in stuck)
    # The time of most answers, plus the time of the copy.
    assert max(r.ttft_s / expected(r.state.attempts[0]).predicted_s for r in stuck) < 3.0
    assert ("suspect", "r3") in f.table.events  # for every request, until r3 answers anything


@played
def test_a_dry_run_says_what_would_have_been_saved() -> None:
    dry, wet = HedgedFleet(Hedging(dry_run=True)), HedgedFleet()
    dry.play(REQUESTS, PER_S)
    wet.play(REQUESTS, PER_S)
    assert dry.counts.fired == 0
    assert not any(r.was_hedged for r in dry.requests)
    # The same requests with other random draws: only a few dozen stragglers are counted.
    assert dry.counts.would_fire == pytest.approx(wet.counts.fired, rel=0.3)
    assert dry.counts.would_save_s == pytest.approx(wet.counts.saved_s, rel=0.4)
