"""The admission queue in a simulated router: which requests wait, their order, and the answers.

In the small worlds a prompt of 100 tokens takes 110 ms of prefill and a decode step 20 ms.
"""

from dataclasses import replace
from typing import Any

import pytest

from policies.queueing.contract import order_names
from router.config.model import (
    BatchClass,
    Classes,
    ClassSettings,
    Hedging,
    Preemption,
    Queue,
    QueueGates,
    QueueLimits,
)
from router.core.errors import Reason
from router.fleet.learned_capacity import FIRST
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.summary import Summary
from router.lab.simulator.scenario import Fault, Polls, Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Arrival
from router.lab.simulator.workloads import Lengths, Mix, Shared, Unique
from tests.addons.needed import needs
from tests.lab.simulator.worlds import CORE, Kept, Script, world

# One request at a time waits at a replica, batch requests included.
ONE = QueueGates(waiting=1, prefill_tokens=0)


def queued(policy: str = "fifo", **rules: Any) -> Queue:
    return Queue(**{"enabled": True, "policy": policy, "gates": ONE, **rules})


def play(scenario: Scenario, *arrivals: Arrival) -> tuple[Kept, Totals]:
    kept = Kept()
    return kept, simulate(scenario, Script(arrivals), kept)


def test_without_a_queue_no_wait_is_recorded() -> None:
    kept, totals = play(world(), Arrival(0, 0.0, 100, 3))
    assert kept[0].queued_s < 0.0 and totals.queues == {}


def test_a_place_is_free_in_the_very_instant_of_the_first_token() -> None:
    kept, totals = play(world(queue=queued()), Arrival(0, 0.0, 100, 3), Arrival(1, 0.05, 100, 3))
    assert kept[1].dispatched == kept[0].first
    assert kept[1].queued_s == pytest.approx(kept[0].first - 0.05)
    assert totals.queues["granted"] == (0, 0, 1, 0, 0)


def test_too_many_are_refused_at_once() -> None:
    rules = queued(limits=QueueLimits(flow=1))
    kept, totals = play(
        world(queue=rules), *(Arrival(n, 0.001 * n, 100, 3, tenant="a") for n in range(3))
    )
    assert [kept[n].reason for n in range(3)] == [Reason.OK, Reason.OK, Reason.QUEUE_FLOW_FULL]
    assert kept[2].ended == kept[2].arrival.at and kept[2].attempts == 0
    assert totals.queues["refused"] == (0, 0, 1, 0, 0)


def _crowd(rate: float, seconds: float) -> Mix:
    return Mix(
        Shared(
            rate=rate,
            duration_s=seconds,
            groups=4,
            prefix_tokens=64,
            question_tokens=40,
            output_tokens=8,
            block_tokens=16,
        ),
        *(
            Unique(
                rate=rate,
                duration_s=seconds,
                prompt=Lengths(100.0, 0.4, 400),
                output=Lengths(8.0, 0.4, 40),
                tenant=name,
                priority=name,
                block_tokens=16,
                seed=seed,
            )
            for seed, name in enumerate(("high", "batch"))
        ),
    )


@needs("preemption")
@pytest.mark.parametrize("policy", order_names())
def test_a_crowd_ends_with_nothing_held_under_every_policy(policy: str) -> None:
    """`simulate` raises if a lease, a ticket or a flow is left."""
    scenario = world(
        replicas=3,
        policy="kv_aware",
        core=replace(CORE, priority_scheduling=True),
        queue=Queue(
            enabled=True,
            policy=policy,
            preemption=Preemption(enabled=True, after_s=0.05),
            gates=QueueGates(waiting=1, prefill_tokens=256),
        ),
        interval_s=0.5,
        hedging=Hedging(policy="fixed", options={"delay_s": 0.2}, budget=0.5),
        faults=(
            Fault(at=2.0, replica=0, kind="kill", until=4.0),
            Fault(at=5.0, replica=1, kind="freeze", until=6.0),
        ),
        first_token_s=2.0,
    )
    runs = []
    for _ in range(2):
        kept = Kept()
        totals = simulate(scenario, _crowd(12.0, 10.0), kept)
        queues = totals.queues
        sent = sum(queues["passed"]) + sum(queues["granted"])
        ended_waiting = sum(queues["expired"]) + sum(queues["refused"])
        # Every waiting request is sent or refused. A request is counted by how it entered: at once,
        # after a wait, or refused; again after a preemption, and after a failure that made it wait.
        began = sum(queues["queued"]) + sum(queues["preempted"])
        assert began == sum(queues["granted"]) + sum(queues["expired"])
        again = sent + ended_waiting - totals.requests - sum(queues["preempted"])
        assert 0 <= again <= totals.retries
        assert sum(queues["queued"]) and not totals.policy_errors
        runs.append(kept.lines())
    assert runs[0] == runs[1]


def test_the_report_has_waits_and_ends_by_class() -> None:
    classes = Classes(
        normal=ClassSettings(wait_s=0.05), batch=BatchClass(depth=1, prefill_tokens=0)
    )
    summary = Summary(Slo(), 1)
    arrivals = [
        Arrival(0, 0.0, 100, 3, priority="high"),
        Arrival(1, 0.01, 100, 3, priority="normal"),
        Arrival(2, 0.02, 100, 3, priority="batch"),
        Arrival(3, 0.03, 100, 3, priority="batch"),
    ]
    simulate(world(queue=queued(), classes=classes), Script(arrivals), summary)
    told = summary.document()["classes"]
    assert {name: (one["refused"], one["expired"]) for name, one in told.items()} == {
        "high": (0, 0),
        "normal": (0, 1),
        "batch": (1, 0),
    }
    assert told["high"]["queued_s"]["p50"] == 0.0
    assert told["normal"]["queued_s"]["p50"] is None
    assert told["batch"]["queued_s"]["p50"] > 0.0


def test_an_early_poll_is_made_when_a_request_waits_for_it() -> None:
    """Answers without streaming, more than an engine of unknown size is assumed to run, close a
    gate that only a poll opens.
    """
    polls = Polls(jitter=0.0, delay_s=0.001)
    core = replace(CORE, max_num_seqs=64)
    scenario = world(queue=queued(), interval_s=60.0, polls=polls, core=core)
    arrivals = [
        Arrival(number, 59.0, 100, 200, stream=False)  # four seconds of decoding
        for number in range(int(FIRST) + 1)
    ]
    arrivals.append(Arrival(9, 60.1, 100, 3))
    kept, totals = play(scenario, *arrivals)
    assert kept[9].first < kept[0].ended
    assert 0.0 < kept[9].queued_s < 0.05 and totals.polls == 2
