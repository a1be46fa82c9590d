"""The promises of hedging: that each can be missed, by figures and by real bad hedgers."""

from dataclasses import replace

import pytest

from bench.findings import intervals
from bench.findings.intervals import PAIRS_MIN
from bench.hedging.simulated import promises
from bench.hedging.simulated.nodes import CASES, Case, Length
from bench.hedging.simulated.promises import AGAIN, WITH, WITHOUT, Figures, Row, Rows
from router.config.model import Hedging

PLAIN = Figures(
    requests=1000,
    p50=0.2,
    p99=1.0,
    slowest=0.5,
    other_p99=1.0,
    hedged=10,
    won=5,
    copy_tokens=0,
    prefilled_tokens=100_000,
    preemptions=0,
)
AT = {case.name: case for case in CASES}


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal figures need no more."""
    monkeypatch.setattr(intervals, "DRAWS", 100)


def rows(**with_: float) -> Rows:
    """All cases with equal figures for all, except for these factors of the hedged contestants."""
    changed = {
        name: type(getattr(PLAIN, name))(getattr(PLAIN, name) * factor)
        for name, factor in with_.items()
    }
    changed |= {"copy_tokens": int(1000 * with_.get("copy_tokens", 0))}
    hedged = replace(PLAIN, **changed)  # type: ignore[arg-type]
    calm = {
        label: replace(one, p99=0.3 * one.p99) for label, one in ((WITHOUT, PLAIN), (WITH, hedged))
    }
    found = {
        (case.name, label): Row(case, label, [PLAIN if label == WITHOUT else hedged] * 5)
        for case in CASES
        for label in (WITHOUT, WITH, AGAIN)
    }
    for label in (WITHOUT, WITH, AGAIN):
        one = calm[WITHOUT if label == WITHOUT else WITH]
        found["calm", label] = Row(AT["calm"], label, [one] * 5)
    return found


def missed(**with_: float) -> set[str]:
    return {verdict.name for verdict in promises.judge(rows(**with_)) if verdict.missed}


def named(what: str, *promised: str) -> set[str]:
    return {f"{case.name}: {what}" for case in CASES if case.promise in promised}


@pytest.mark.usefixtures("few_draws")
def test_every_promise_is_met_at_its_limit_and_missed_above() -> None:
    """Only a hedger that cuts the p99 by 60 % keeps all promises."""
    assert missed(p99=0.4) == set()
    assert missed(p99=0.41) == named("high, p99 TTFT", "cut")
    assert missed(p99=1.03) == named("high, p99 TTFT", "cut", "kept")
    assert missed(p99=0.4, slowest=1.19) == set()  # twice the p99 of `calm`, 0.3
    assert missed(p99=0.4, slowest=1.21) == {"frozen: high, slowest"}
    everywhere = "cut", "kept", "bounded"
    assert missed(p99=0.4, other_p99=1.04) == named("others, p99 TTFT", *everywhere)
    assert missed(p99=0.4, prefilled_tokens=1.06) == named(
        "prefill tokens of the engines", *everywhere
    )
    assert missed(p99=0.4, copy_tokens=5.1) == named("tokens of copies", "kept")


# -- bad hedgers, simulated ------------------------------------------------------------------------

SHORT = Length(measured_s=60.0, seeds=PAIRS_MIN, nodes=2, warm_s=15.0)
EVERYTHING = Hedging(policy="fixed", options={"delay_s": 0.0}, budget=1.0, utilisation=1.0)


def judged(case: Case, hedging: Hedging) -> dict[str, str]:
    """The state of each promise of one case."""
    found = promises.judge(promises.measure([case], hedging, SHORT))
    return {verdict.name: verdict.state for verdict in found}


def test_a_hedger_that_copies_everything_misses_the_goal_of_tokens() -> None:
    found = judged(AT["calm"], EVERYTHING)
    assert found["calm: prefill tokens of the engines"] == "missed"
    assert found["calm: tokens of copies"] == "missed"


def test_a_hedger_that_never_copies_misses_the_goal_of_the_p99() -> None:
    found = judged(AT["steps"], Hedging(policy="off"))
    assert found["steps: high, p99 TTFT"] == "missed"
    assert found["steps: prefill tokens of the engines"] != "missed"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_has_its_stragglers(case: Case) -> None:
    lasting = replace(SHORT, measured_s=1000.0)
    scenario = case.scenario(Hedging(), 1, lasting)
    kinds = {fault.kind for fault in scenario.faults}
    assert bool(kinds) == (case.name in {"steps", "node", "frozen", "full", "slow", "mixed"})
    assert bool(scenario.neighbours) == (case.name in {"neighbour", "kv"})
    assert bool(scenario.straggling.share) == (case.name == "late")
    assert case.scenario(Hedging(policy="off"), 1, lasting).faults == scenario.faults
