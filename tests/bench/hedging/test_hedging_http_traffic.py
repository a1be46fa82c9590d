"""The hedging bench over HTTP: its traffic, and its faults with their times."""

from __future__ import annotations

import pytest

from bench.hedging.http import traffic
from bench.hedging.http.traffic import SCENARIOS
from router.lab.emulator.http import faults as emulated

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
