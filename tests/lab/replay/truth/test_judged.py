"""Logged figures beside simulated figures, compared with results computed by hand."""

from math import inf

import pytest

from router.core.errors import Reason
from router.lab.replay.truth.judged import REQUESTS_MIN, Half, Judged, Row, not_ranked, trust_of
from router.lab.simulator.arrival import Arrival, Logged
from router.lab.simulator.outcome import Outcome

HALF = Half(
    since_s=100.0,
    group_of_logged={"gpu-a": 0, "gpu-b": 1},
    group_of_simulated={"r0": 0, "r1": 1},
    groups=("1: small", "2: large"),
)


def outcome(
    at: float = 200.0,
    *,
    logged: Logged | None = None,
    ttft_s: float = 0.2,
    tpot_s: float = 0.02,
    queued_s: float = -1.0,
    cached: int = 0,
    replica: str = "r0",
    reason: Reason = Reason.OK,
    priority: str = "normal",
    stream: bool = True,
) -> Outcome:
    """A request of 100 prompt tokens and 11 of output."""
    arrival = Arrival(0, at, 100, 11, priority=priority, model="m", stream=stream, logged=logged)
    made = Outcome(arrival, replica, 0, at)
    made.reason = reason
    if reason is Reason.OK:
        made.first = at + ttft_s
        made.ended = made.first + 10 * tpot_s
    made.queued_s, made.cached_tokens = queued_s, cached
    return made


def said(
    ttft_s: float | None = 0.1,
    tpot_s: float | None = 0.01,
    wait_s: float = 0.0,
    cached: int | None = 50,
    replica: str = "gpu-a",
    reason: str = "ok",
) -> Logged:
    return Logged(
        reason,
        1.0,
        replica=replica,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        wait_s=wait_s,
        cached_tokens=cached,
    )


def rows_of(*outcomes: Outcome) -> dict[tuple[str, str], Row]:
    judged = Judged(HALF)
    for one in outcomes:
        judged.ended(one)
    return {(row.part, row.name): row for row in judged.rows()}


def test_both_sides_and_the_error_between_them() -> None:
    rows = rows_of(
        *(
            outcome(logged=said(ttft_s=0.001 * n, wait_s=0.002), ttft_s=0.0015 * n, queued_s=0.003)
            for n in range(1, 101)
        )
    )
    ttft = rows["all", "TTFT p50"]
    assert (ttft.logged, ttft.simulated) == (pytest.approx(50.0, 0.01), pytest.approx(75.0, 0.01))
    assert ttft.error == pytest.approx(50.0, abs=0.5) and ttft.requests == 100
    assert rows["all", "TTFT p90"].logged == pytest.approx(90.0, 0.01)
    assert rows["all", "TTFT p99"].simulated == pytest.approx(148.5, 0.01)
    tpot = rows["all", "TPOT p50"]
    assert (tpot.logged, tpot.simulated) == (pytest.approx(10.0, 0.01), pytest.approx(20.0, 0.01))
    wait = rows["all", "wait p90"]
    assert (wait.logged, wait.simulated) == (pytest.approx(2.0, 0.01), pytest.approx(3.0, 0.01))
    hits = rows["all", "hit rate"]
    assert (hits.logged, hits.simulated) == (pytest.approx(50.0, 0.01), 0.0)
    assert hits.error == pytest.approx(-50.0, abs=0.1) and hits.error_text.endswith(" pt")


def test_the_first_half_does_not_count() -> None:
    early = [outcome(99.9, logged=said(ttft_s=9.0)) for _ in range(100)]
    late = [outcome(100.0, logged=said()) for _ in range(REQUESTS_MIN)]
    rows = rows_of(*early, *late)
    assert rows["all", "TTFT p99"].logged == pytest.approx(100.0, 0.01)
    assert rows["all", "TTFT p50"].requests == REQUESTS_MIN


def test_what_the_log_did_not_answer_does_not_count() -> None:
    failed = [outcome(logged=said(reason="ttft_timeout")) for _ in range(100)]
    unknown = [outcome(logged=None) for _ in range(100)]
    assert rows_of(*failed, *unknown) == {}


def test_what_the_simulation_does_not_answer_is_slower_than_all() -> None:
    lost = [outcome(logged=said(), reason=Reason.REPLICA_RESET) for _ in range(20)]
    rows = rows_of(*lost, *(outcome(logged=said()) for _ in range(80)))
    assert rows["all", "TTFT p90"].simulated == inf
    assert rows["all", "TTFT p90"].error is None
    assert rows["all", "TTFT p50"].simulated == pytest.approx(200.0, 0.01)


def test_a_request_counts_for_the_group_that_it_went_to_on_each_side() -> None:
    """In the log the requests went to the large replicas, in the simulation to the small ones."""
    moved = [outcome(logged=said(replica="gpu-b"), replica="r0") for _ in range(50)]
    stayed = [
        outcome(logged=said(replica=f"gpu-{name}"), replica=replica)
        for name, replica in (("a", "r0"), ("b", "r1"))
        for _ in range(50)
    ]
    rows = rows_of(*moved, *stayed)
    assert rows["group 2: large", "TTFT p50"].requests == 100
    assert rows["group 1: small", "TTFT p50"].requests == 50


def row(
    logged: float | None,
    simulated: float | None,
    figure: str = "TTFT",
    q: float | None = 0.5,
    part: str = "all",
) -> Row:
    return Row(part, figure, q, logged, simulated, 100)


@pytest.mark.parametrize(
    ("q", "simulated", "is_off"),
    [
        (0.5, 120.0, False),
        (0.5, 120.1, True),
        (0.5, 80.0, False),
        (0.5, 79.9, True),
        (0.9, 130.0, False),
        (0.9, 130.1, True),
        (0.9, 69.9, True),
        (0.99, 1000.0, False),  # this error is only reported
        (0.5, inf, True),  # the simulation did not answer the requests
        (0.5, None, True),
    ],
)
@pytest.mark.parametrize("figure", ["TTFT", "TPOT"])
def test_the_largest_errors_that_are_trusted(
    figure: str, q: float, simulated: float | None, is_off: bool
) -> None:
    found = trust_of([row(100.0, simulated, figure, q)])
    assert bool(found.off) is is_off
    assert found.is_judged and found.is_trusted is not is_off


@pytest.mark.parametrize(
    ("simulated", "is_off"), [(73.0, False), (72.9, True), (103.0, False), (None, True)]
)
def test_hits_are_judged_in_points(simulated: float | None, is_off: bool) -> None:
    found = trust_of([row(88.0, simulated, "hit rate", None), row(10.0, 10.0)])
    assert bool(found.off) is is_off
    if simulated == 72.9:
        assert found.lines()[0] == "all: the error of hit rate is −15.1 pt (allowed: 15 pt)"


def test_times_below_the_resolution_are_the_same() -> None:
    assert trust_of([row(1.0, 1.9)]).is_trusted
    assert not trust_of([row(1.0, 2.1)]).is_trusted


def test_without_figures_nothing_is_trusted_and_nothing_refused() -> None:
    found = trust_of([])
    assert not found.is_judged and not found.is_trusted and not found.off
    assert found.lines()[0].startswith("Not compared")


def test_the_figure_that_is_off_is_named() -> None:
    off = row(100.0, 400.0, "TPOT", 0.9, "class high")
    lines = trust_of([row(100.0, 110.0), off]).lines()
    assert lines == [
        "class high: the error of TPOT p90 is +300.0 % (allowed: 30 %)",
        "This engine model is not accurate enough to rank candidates.",
    ]


def test_candidates_that_differ_by_less_than_the_error_cannot_be_ranked() -> None:
    rows = [row(100.0, 110.0), row(10.0, 10.1, "TPOT"), row(100.0, 400.0, part="class high")]
    near = {("TTFT", 0.5): 200.0, ("TPOT", 0.5): 20.0}
    lines = not_ranked(
        rows,
        {
            "a": near,
            "b": {("TTFT", 0.5): 215.0, ("TPOT", 0.5): 30.0},
            "c": {("TTFT", 0.5): 300.0, ("TPOT", 0.5): 20.1},
        },
    )
    assert lines == [
        "a and b cannot be ranked by TTFT p50 (difference 7.5 %, error 10.0 %).",
        "a and c cannot be ranked by TPOT p50 (difference 0.5 %, error 1.0 %).",
    ]


def test_what_never_came_is_ranked_below_all() -> None:
    figures = {"a": {("TTFT", 0.5): 100.0}, "b": {("TTFT", 0.5): inf}, "c": {("TTFT", 0.5): None}}
    assert not_ranked([row(100.0, 119.0)], figures) == []


def test_many_pairs_are_summarised_in_few_lines() -> None:
    figures = {f"policy {n}": {("TTFT", 0.5): 100.0} for n in range(20)}
    lines = not_ranked([row(100.0, 105.0)], figures)
    assert len(lines) == 11 and "180 more pairs" in lines[-1]
