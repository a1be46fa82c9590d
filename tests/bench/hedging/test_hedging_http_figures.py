"""The hedging bench over HTTP: figures from records and counters, and verdicts on them."""

from dataclasses import replace
from typing import Any

import pytest

from bench.fleet.script import Conversation, Script, Turn
from bench.hedging.http import traffic
from bench.hedging.http.figures import Figures, Times, figures
from bench.hedging.http.judge import judge
from bench.hedging.http.stage import Row
from bench.hedging.http.traffic import SCENARIOS
from router.lab.emulator.http import faults as emulated


def record(due: float, ttft: float | None, urgency: str = "", error: str = "") -> dict[str, Any]:
    return {
        "due": due,
        "sent": due + 0.001,
        "ttft": ttft,
        "measured": due >= 10.0,
        "error": error,
        "urgency": urgency,
    }


def counts(asked: int, tokens: int, prefilled: int) -> dict[str, Any]:
    return {"asked": asked, "asked_tokens": tokens, "prefilled_tokens": prefilled}


WORDS = "x" * 4 * 97  # 100 tokens with its role, and 3 more for the answer's role
SCRIPT = Script(
    tuple(Conversation(float(n), "", (Turn(WORDS, 4),), "high" * (n == 11)) for n in range(8, 12)),
    10.0,
    12.0,
)


def told(*records: dict[str, Any]) -> dict[str, Any]:
    return {
        "played": {"records": list(records), "cpu_share": 0.1},
        "before": [counts(1, 10, 10), counts(1, 10, 10)],
        "after": [counts(4, 319, 319), counts(3, 216, 133)],
    }


def test_copies_are_what_engines_were_asked_beyond_what_clients_asked() -> None:
    seen = figures(
        told(*(record(float(n), 0.1, "high" * (n == 11)) for n in range(8, 12))), SCRIPT, 0.0
    )
    assert seen.copies == 1
    assert seen.extra_asked == pytest.approx(0.25)
    assert seen.extra_computed == pytest.approx(20 / 412)  # of the copy's 103 tokens
    assert seen.urgent_share == pytest.approx(0.25)


def test_classes_and_times_before_are_kept_apart() -> None:
    seen = figures(
        told(
            record(5.0, 9.0, "high"),  # during the warm-up
            record(8.0, 0.2, "high"),
            record(10.0, 0.3, "high"),
            record(10.5, 0.5, "high"),
            record(11.0, 0.1),
        ),
        SCRIPT,
        6.0,
    )
    assert (seen.urgent.requests, seen.urgent.p50, seen.urgent.worst) == (2, 0.3, 0.5)
    assert (seen.urgent_normal.requests, seen.urgent_normal.p99) == (1, 0.2)
    assert (seen.other.requests, seen.other.p99) == (1, 0.1)


TIMES = Times(500, 0.1, 0.2, 1.0, (0.9, 1.2), 1.5)
FIGURES = Figures(TIMES, TIMES, TIMES, 0.2, 0, 0.0, 0.0, {}, 0, 0.001, 0.1)


def rows(scenario: str, **p99: float | None) -> list[Row]:
    """Contestants by key with their urgent class's p99."""
    return [
        Row(key, key, scenario, figures=replace(FIGURES, urgent=replace(TIMES, p99=value)))
        for key, value in p99.items()
    ]


def test_hedging_is_judged_against_the_same_without_and_the_best_of_the_others() -> None:
    verdicts = judge(rows("slow-requests", adaptive=0.3, off=1.0, envoy=0.6, haproxy=None))
    cut, best, others, extra = verdicts
    assert cut.value == pytest.approx(0.3) and cut.met and "off 900 to 1200 ms" in cut.note
    assert best.value == pytest.approx(0.5) and best.met and "envoy" in best.goal
    assert others.met and extra.met
    missed = judge(rows("slow-requests", adaptive=0.5, off=1.0))[0]
    assert not missed.met


SIZE = traffic.Size.quick()


def test_every_fifth_request_is_urgent_and_no_two_are_alike() -> None:
    talks = traffic.script(200.0, 1, 0.0, 20.0).conversations
    urgent = [talk for talk in talks if talk.urgency == traffic.URGENT]
    assert {talk.urgency for talk in talks} == {"", traffic.URGENT}
    assert len(urgent) / len(talks) == pytest.approx(traffic.URGENT_SHARE, abs=0.03)
    assert len({talk.turns[0].text[:32] for talk in talks}) == len(talks)


@pytest.mark.parametrize("name", SCENARIOS)
def test_engines_understand_what_is_to_go_wrong(name: str) -> None:
    scenario = SCENARIOS[name]
    since, until = scenario.measure_from(SIZE), scenario.until(SIZE)
    assert until - since == SIZE.measured
    for fault in scenario.faults(since, until):
        emulated._checked(fault.fault)
        assert since <= fault.at <= until
    for option, value in zip(scenario.options, scenario.options[1:], strict=False):
        if option == "--fault":
            assert emulated.parse(value) != emulated.NONE
