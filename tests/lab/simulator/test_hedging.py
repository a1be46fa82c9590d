"""Second copies in the simulated fleet: the winner, the end of the loser, and the counters."""

from dataclasses import replace
from math import inf

import pytest

from router.config.model import Hedging
from router.core.errors import Reason
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Straggling
from router.lab.simulator.simulation import simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import Kept, Script, world

NET = 0.001
PREFILL = 0.110  # seconds for 100 tokens without other requests
DELAY = 0.2


def fixed(delay_s: float = DELAY) -> Hedging:
    """Every hedgeable request is hedged after this time: each pays for its own copy."""
    return Hedging(policy="fixed", options={"delay_s": delay_s}, budget=1.0)


def struck(*attempts: bool, share: float = 0.5) -> int:
    """The number of a request whose attempts straggle like this."""
    straggling = Straggling(share=share)
    for number in range(1000):
        if [straggling.selects(1, number, index) for index in range(len(attempts))] == [*attempts]:
            return number
    raise AssertionError("no such request")


def high(number: int = 0, at: float = 0.0, tokens: int = 100, **more: object) -> Arrival:
    return Arrival(number, at, tokens, 3, priority="high", **more)  # type: ignore[arg-type]


def run(*arrivals: Arrival, **changes: object) -> tuple[list[Outcome], Totals]:
    kept = Kept()
    scenario = world(**{"replicas": 2, "hedging": fixed(), **changes})
    totals = simulate(scenario, Script(arrivals), kept)
    return kept.outcomes, totals


@pytest.mark.parametrize("stream", [True, False])
def test_the_copy_of_a_straggler_answers(stream: bool) -> None:
    (one,), totals = run(
        high(struck(True, False), stream=stream), straggling=Straggling(share=0.5, factor=10.0)
    )
    assert (one.reason, one.attempts, one.replica) == (Reason.OK, 2, "r1")
    assert one.hedged and one.hedge_won
    assert one.dispatched == pytest.approx(DELAY)
    whole = 0.0 if stream else 2 * 0.020
    assert one.first == pytest.approx(DELAY + 2 * NET + PREFILL + whole)
    # The straggler never reached its engine's queue, and no client waits for it any more.
    assert one.wasted_tokens == 0
    assert (totals.hedges.fired, totals.hedges.won, totals.hedges.wasted_tokens) == (1, 1, 0)
    assert [engine.requests for engine in totals.engines] == [0, 1]


def test_a_request_whose_body_is_not_kept_gets_no_copy() -> None:
    (one,), totals = run(
        high(struck(True, False)), straggling=Straggling(share=0.5, factor=10.0), retry_body=399
    )
    assert (one.reason, one.attempts, one.replica) == (Reason.OK, 1, "r0")
    assert totals.hedges.fired == 0


def test_both_straggle_and_the_first_one_is_still_the_first() -> None:
    (one,), totals = run(high(struck(True, True)), straggling=Straggling(share=0.5, factor=4.0))
    assert one.hedged and not one.hedge_won
    assert (one.replica, one.wasted_tokens) == ("r0", 0)
    assert one.first == pytest.approx(2 * NET + 4.0 * PREFILL)
    assert (totals.hedges.fired, totals.hedges.lost) == (1, 1)
    assert [engine.requests for engine in totals.engines] == [1, 0]


def test_a_losing_attempt_is_aborted_at_its_engine() -> None:
    (one,), totals = run(high(tokens=400))
    assert one.hedged and not one.hedge_won
    assert one.first == pytest.approx(2 * NET + 0.410)
    assert [(engine.finished, engine.aborted) for engine in totals.engines] == [(1, 0), (0, 1)]
    # The engine was computing the whole prompt in one step.
    assert one.wasted_tokens == totals.hedges.wasted_tokens == 400


def test_the_same_first_attempts_straggle_whatever_a_policy_does() -> None:
    arrivals = [high(number, 2.0 * number) for number in range(40)]
    straggling = Straggling(share=0.3, factor=3.0)
    without, _ = run(*arrivals, straggling=straggling, hedging=Hedging(policy="off"))
    with_, totals = run(*arrivals, straggling=straggling)
    late = {one.arrival.number for one in without if (one.ttft_s or 0.0) > DELAY}
    assert late == {one.arrival.number for one in with_ if one.hedged}
    assert len(late) == totals.hedges.fired
    assert 4 < len(late) < 20
    other = replace(straggling, share=0.0)
    assert not any(one.hedged for one in run(*arrivals, straggling=other)[0])


def test_the_shares_of_stragglers_are_kept() -> None:
    straggling = Straggling(share=0.05)
    for attempt in (0, 1):
        hit = sum(straggling.selects(3, number, attempt) for number in range(20_000))
        assert 900 < hit < 1100
    both = sum(all(straggling.selects(3, n, a) for a in (0, 1)) for n in range(20_000))
    assert 20 < both < 90


@pytest.mark.parametrize(
    "values", [{"share": 1.5}, {"share": -0.1}, {"factor": 0.5}, {"factor": inf}]
)
def test_stragglers_that_cannot_be(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="straggling"):
        Straggling(**values)
