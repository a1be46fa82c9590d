"""Keys in a simulation: weights in the queue, and limits, as in the proxy."""

from dataclasses import replace

import pytest

from router.config.keys import KeyLine
from router.config.model import Hedging
from router.core.errors import Reason
from router.lab.simulator.scenario import Channel, Scenario
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import played, world


def keyed(*lines: KeyLine, **changes: object) -> Scenario:
    """The name of a tenant is that of its key in capitals."""
    return replace(world(**changes), keys={line.name.upper(): line for line in lines})


def key(name: str, **limits: object) -> KeyLine:
    return KeyLine(name=name, hash=f"sha256:{ord(name):064x}", **limits)  # type: ignore[arg-type]


def asked(number: int, at: float, tenant: str, *, known: bool = True) -> Arrival:
    return Arrival(number, at, 200, 4, tenant=tenant, is_known=known)


def test_requests_beyond_a_limit_a_minute_are_refused() -> None:
    scenario = keyed(key("a", requests_per_minute=2), key("b"))
    arrivals = [asked(n, 0.1 * n, "AB"[n % 2]) for n in range(12)]
    kept = played(scenario, *arrivals)
    reasons = [kept[n].reason for n in range(0, 12, 2)]
    assert reasons.count(Reason.KEY_REQUESTS) == reasons.count(Reason.OK) * 2 == 4
    assert {kept[n].reason for n in range(1, 12, 2)} == {Reason.OK}


@pytest.mark.parametrize(("channel", "expected"), [(Channel(), 6), (None, 18)])
def test_routers_that_tell_each_other_apply_a_limit_once(
    channel: Channel | None, expected: int
) -> None:
    scenario = keyed(key("a", requests_per_minute=6))
    scenario = replace(scenario, routers=3, channel=channel)
    # All come in less than a tenth of a minute, but not faster than the messages.
    kept = played(scenario, *(asked(n, 0.1 * n, "A") for n in range(60)))
    reasons = [kept[n].reason for n in range(60)]
    assert expected <= reasons.count(Reason.OK) <= expected + 1
    assert reasons.count(Reason.KEY_REQUESTS) + reasons.count(Reason.OK) == 60


def test_without_a_queue_they_are_refused() -> None:
    scenario = keyed(key("a", concurrency=1))
    kept = played(scenario, *(asked(n, 0.001 * n, "A") for n in range(3)))
    assert [kept[n].reason for n in range(3)] == [
        *(Reason.OK, Reason.KEY_CONCURRENCY, Reason.KEY_CONCURRENCY)
    ]


def test_a_key_that_may_hedge_gets_a_second_copy_where_it_asks() -> None:
    at_once = Hedging(policy="fixed", options={"delay_s": 0.0}, budget=1.0)
    scenario = keyed(key("a", may_hedge=True), key("b"), replicas=2, hedging=at_once)
    arrivals = [
        Arrival(n, 5.0 * n, 200, 4, tenant="AB"[n], is_known=True, hedging="on") for n in range(2)
    ]
    kept = played(scenario, *arrivals)
    assert [kept[n].hedged for n in range(2)] == [True, False]


def test_the_slots_of_a_limit_go_to_the_oldest_requests_of_all_routers() -> None:
    scenario = keyed(key("a", concurrency=2), queue={"enabled": True, "policy": "fifo"})
    scenario = replace(scenario, routers=3, channel=Channel())
    kept = played(scenario, *(asked(n, 0.01 * n, "A") for n in range(60)))
    outcomes = sorted(kept.outcomes, key=lambda one: one.dispatched)
    assert {one.reason for one in outcomes} == {Reason.OK}
    assert len({one.router for one in outcomes}) == 3
    for place, one in enumerate(outcomes):
        assert abs(place - one.arrival.number) <= 3, "in the order of arrival"
        running = [o for o in outcomes[:place] if o.ended > one.dispatched + 0.1]
        assert len(running) < 2 or place < 6
    # A slot is free until the messages have come.
    service_s = sum(one.ended - one.dispatched for one in outcomes)
    assert outcomes[-1].ended < 1.25 * service_s / 2
