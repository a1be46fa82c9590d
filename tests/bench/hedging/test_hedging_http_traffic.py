"""The hedging bench over HTTP: its traffic, and its faults with their times."""

from __future__ import annotations

import pytest

from bench.hedging.http import traffic
from bench.hedging.http.run import FLEET
from bench.hedging.http.scenarios import SCENARIOS, Fault
from router.lab.emulator.http import faults as emulated

SIZE = traffic.Size.quick()


def test_the_same_seed_gives_the_same_requests() -> None:
    assert traffic.script(50.0, 1, 0.0, 4.0) == traffic.script(50.0, 1, 0.0, 4.0)
    assert traffic.script(50.0, 1, 0.0, 4.0) != traffic.script(50.0, 2, 0.0, 4.0)


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


def test_one_engine_at_a_time_stands_still() -> None:
    frozen: set[int | None] = set()
    turns: list[Fault] = sorted(SCENARIOS["frozen"].faults(10.0, 100.0), key=lambda f: f.at)
    for fault in turns:
        if fault.fault:
            frozen.add(fault.engine)
        else:
            frozen.remove(fault.engine)
        assert len(frozen) <= 1
    assert not frozen
    assert len({fault.engine for fault in turns}) > FLEET.count  # `load` wraps around
