"""Sentences about a replay agree with the table; without a finding there is no sentence."""

from __future__ import annotations

from router.core.errors import Reason
from router.lab.replay.report.findings import findings, separate_state
from router.lab.replay.report.run import Setup
from tests.lab.replay.report.made import outcome, replay, run, steady

LATE = steady(3.0)  # every request misses an SLO of one second
FAST = steady(0.3)


def test_a_smaller_fleet_that_does_as_well_and_none_that_is_enough() -> None:
    half, fewer = [*LATE[:10], *FAST[10:]], [*LATE[:15], *FAST[15:]]
    made = replay(
        run("kv_aware", half, replicas=8),
        run("random", LATE, replicas=8),
        run("kv_aware", half, replicas=9),
        run("random", fewer, replicas=9),
    )
    assert findings(made)[1:] == [
        "No fleet of up to 9 replicas reaches 99 % of requests within the SLO.",
        "kv_aware on 8 replicas (50.0 % within the SLO) is at least as good as random on "
        "9 replicas (25.0 %).",
    ]


def test_what_separate_state_costs() -> None:
    made = replay(
        run("kv_aware", steady(0.6), routers=4),
        run("random", FAST, routers=4),
        run("kv_aware", LATE, routers=4, replicas=3),
        run("kv_aware", FAST, routers=4, shared=True),
        run("kv_aware", FAST, routers=4, replicas=3, shared=True),
    )
    assert separate_state(made) == [
        "kv_aware on 2 replicas, 4 routers: cost of separate router state: "
        "TTFT mean +100.0 %, TTFT p99 +100.2 %, goodput −2.0 %"
    ]


def test_an_infinite_quantile_is_reported() -> None:
    failing = [*FAST, outcome(5.0, None, reason=Reason.TTFT_TIMEOUT)]
    made = replay(run("p2c", failing, routers=2), run("p2c", FAST, routers=2, shared=True))
    assert "TTFT p99 infinite" in separate_state(made)[0]


def test_a_policy_that_fails_is_named() -> None:
    assert findings(replay(run("mine", FAST, policy_errors=7))) == [
        "mine on 2 replicas failed to choose a replica 7 times; a random replica was used."
    ]


def test_the_focus_is_where_policies_differ_most() -> None:
    made = replay(
        run("kv_aware", FAST, replicas=8, routers=2),
        run("random", [*FAST[:15], *LATE[15:]], replicas=8, routers=2),
        run("kv_aware", FAST, replicas=9, routers=2),
        run("random", LATE, replicas=9, routers=2),
        run("kv_aware", LATE, replicas=9, routers=2, shared=True),
    )
    assert made.focus() == Setup(9, 2, False)
    assert str(made.focus()) == "9 replicas, 2 routers with separate state"
    assert replay(run("one", FAST, replicas=1)).focus() == Setup(1, 1, False)
