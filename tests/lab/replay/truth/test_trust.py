"""Which errors are trusted, and which candidates cannot be ranked, by hand-made figures."""

from __future__ import annotations

from math import inf

import pytest

from router.lab.replay.truth.judged import Row, not_ranked, trust_of


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
