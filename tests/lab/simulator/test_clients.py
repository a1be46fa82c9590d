"""Clients as recorded in a log: when they disconnect, how long they wait, what they request.

In the small worlds a prompt of 100 tokens takes 110 ms of prefill and a decode step 20 ms; the
network takes 1 ms each way.
"""

from collections import Counter
from math import inf

import pytest
from hypothesis import given, strategies as st

from router.config.model import Hedging, Queue, QueueGates
from router.core.errors import Reason
from router.lab.simulator.scenario import Fault
from router.lab.simulator.simulation import Simulation, simulate
from router.lab.simulator.traffic import Arrival
from tests.examples import examples
from tests.lab.simulator.worlds import Kept, Script, played, world

QUEUED = Queue(enabled=True, policy="fifo", gates=QueueGates(waiting=1, prefill_tokens=0))


# -- clients that leave ---------------------------------------------------------------------------


def test_a_client_leaves_to_the_moment_and_the_engine_stops() -> None:
    kept = Kept()
    simulation = Simulation(world(), Script([Arrival(0, 1.0, 100, 50, leaves_s=0.5)]), kept)
    totals = simulation.run()
    one = kept[0]
    assert (one.reason, one.ended) == (Reason.CLIENT_GONE, 1.5)
    assert one.first == pytest.approx(1.112)
    assert one.tpot_s is None
    assert (totals.engines[0].aborted, totals.engines[0].finished) == (1, 0)
    (metrics,) = [router.metrics for router in simulation.routers]
    assert metrics.kinds["chat"].ends == {(Reason.CLIENT_GONE, 499): 1}
    (counted,) = metrics.models.values()
    assert counted.output == 1 + int(
        (0.5 - 0.111) / 0.020
    )  # the tokens that the client had received


# -- how long they wait ---------------------------------------------------------------------------


def test_a_deadline_passes_in_the_queue_and_at_a_replica() -> None:
    arrivals = [
        Arrival(0, 0.0, 400, 3, deadline_s=0.3),
        Arrival(1, 0.01, 100, 3, deadline_s=0.2),
        Arrival(2, 0.02, 100, 3, deadline_s=5.0),
    ]
    kept = Kept()
    totals = simulate(world(queue=QUEUED), Script(arrivals), kept)
    assert totals.queues["expired"] == (0, 0, 1, 0, 0)  # the queue itself ends the second one
    assert [kept[n].reason for n in range(3)] == [Reason.DEADLINE_PASSED] * 2 + [Reason.OK]
    assert (kept[0].ended, kept[0].attempts) == (0.3, 1)
    assert (kept[1].ended, kept[1].attempts) == (pytest.approx(0.21), 0)
    assert kept[2].dispatched == 0.3


def test_deadlines_that_differ_by_a_rounding_error_are_exact() -> None:
    arrivals = [
        Arrival(0, 0.0, 4000, 3),
        Arrival(1, 0.1, 100, 3, deadline_s=0.5),
        Arrival(2, 0.2, 100, 3, deadline_s=0.4),
    ]
    kept = Kept()
    simulate(world(queue=QUEUED), Script(arrivals), kept)
    assert sorted(one.ended for one in kept.outcomes)[:2] == [0.1 + 0.5, 0.2 + 0.4]


@pytest.mark.parametrize("when", ["before content", "in the answer", "in the queue"])
def test_the_time_for_a_whole_request_is_over(when: str) -> None:
    arrivals = [Arrival(0, 0.0, 100 if when == "in the answer" else 900, 90)]
    if when == "in the queue":
        arrivals.append(Arrival(1, 0.0, 100, 3))
    kept = Kept()
    simulation = Simulation(world(queue=QUEUED), Script(arrivals), kept)
    simulation.routers[0].context.rules.times.total_s = 0.4
    simulation.run()
    for one in kept.outcomes:
        assert (one.reason, one.ended) == (Reason.TOTAL_TIMEOUT, 0.4)
    assert (kept[0].first >= 0.0) == (when == "in the answer")


# -- what clients request -------------------------------------------------------------------------


def test_the_number_names_the_class() -> None:
    kept = played(
        world(queue=Queue(enabled=True, policy="strict", gates=QUEUED.gates)),
        Arrival(0, 0.0, 100, 3),
        Arrival(1, 0.01, 100, 3, priority_number=3.0),
        Arrival(2, 0.02, 100, 3, priority_number=0.0),
    )
    assert [one.arrival.number for one in kept.outcomes] == [0, 2, 1]


# -- any order of events --------------------------------------------------------------------------

tenths = st.integers(0, 40).map(lambda tenths: tenths / 10)
patience = st.one_of(st.just(inf), st.integers(0, 30).map(lambda tenths: tenths / 10))
clients = st.tuples(tenths, st.integers(1, 400), st.integers(0, 60), patience, patience)


@examples(100)
@given(
    st.lists(clients, max_size=20),
    st.sampled_from([Queue(enabled=False), QUEUED]),
    st.sampled_from(["off", "fixed"]),
    st.booleans(),
)
def test_every_client_has_one_end_and_nothing_is_held(
    asked: list[tuple[float, int, int, float, float]], queue: Queue, hedges: str, dies: bool
) -> None:
    arrivals = [
        Arrival(number, at, prompt, out, priority="high", deadline_s=deadline, leaves_s=leaves)
        for number, (at, prompt, out, deadline, leaves) in enumerate(sorted(asked))
    ]
    options = {"delay_s": 0.1} if hedges == "fixed" else {}
    faults = (Fault(at=1.05, replica=0, kind="kill", until=2.5),) if dies else ()
    scenario = world(
        replicas=2,
        queue=queue,
        faults=faults,
        hedging=Hedging(policy=hedges, options=options, budget=1.0),
    )
    kept = played(scenario, *arrivals)
    assert Counter(one.arrival.number for one in kept.outcomes) == Counter(range(len(arrivals)))
    for one in kept.outcomes:
        arrival = one.arrival
        assert one.ended <= arrival.at + arrival.leaves_s
        if one.first >= 0.0:
            assert one.first <= arrival.at + arrival.deadline_s
        if one.reason is Reason.CLIENT_GONE:
            assert one.ended == arrival.at + arrival.leaves_s
        elif one.reason is Reason.DEADLINE_PASSED:
            assert one.ended == arrival.at + arrival.deadline_s


def test_no_time_was_left() -> None:
    one = played(world(), Arrival(0, 3.0, 100, 3, deadline_s=0.0))[0]
    assert (one.reason, one.ended, one.attempts) == (Reason.DEADLINE_PASSED, 3.0, 0)
