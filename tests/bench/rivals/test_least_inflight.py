from __future__ import annotations

import pytest

import bench.rivals  # noqa: F401  (registers the policies)
from policies.contract import Candidate, make_policy
from tests.policies.helpers import VIEW, burst, context, fleet, picks, trickle


@pytest.mark.parametrize(
    ("inflight", "weights", "expected"),
    [
        ((3, 1, 2), (1, 1, 1), "b"),
        ((1, 3, 2), (1, 1, 1), "a"),
        ((3, 2, 1), (1, 1, 1), "c"),
        ((3, 4, 4), (1, 2, 1), "b"),  # 3, 2, 4 for each unit of weight
        ((0, 1, 1), (0.01, 9, 9), "a"),
    ],
)
def test_the_least_for_its_weight_is_taken(
    inflight: tuple[int, ...], weights: tuple[float, ...], expected: str
) -> None:
    candidates = fleet(*weights)
    for candidate, count in zip(candidates, inflight, strict=True):
        candidate.inflight = count
    for seed in range(10):
        pick = make_policy("least_inflight").pick(VIEW, candidates, context(seed))
        assert pick.candidate.id == expected


def test_ties_are_drawn_evenly_wherever_they_stand() -> None:
    """A random start and a first minimum would favour c, which follows a busy replica."""
    candidates = fleet(1, 1, 1, 1, 1)
    candidates[0].inflight = candidates[1].inflight = 1
    picked = trickle(make_policy("least_inflight"), candidates, 9000, context())
    assert set(picked) == {"c", "d", "e"}
    assert all(count == pytest.approx(3000, abs=200) for count in picked.values())


def test_ties_go_by_weight() -> None:
    picked = trickle(make_policy("least_inflight"), fleet(1, 2, 5), 8000, context())
    assert [picked[id] / 8000 for id in "abc"] == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.02)


def test_a_busy_replica_gets_nothing_until_the_others_have_caught_up() -> None:
    candidates = fleet(1, 1, 1)
    candidates[0].inflight = 10
    picked = burst(make_policy("least_inflight"), candidates, 20, context())
    assert picked == {"b": 10, "c": 10}


def test_what_others_sent_does_not_count() -> None:
    ours, theirs = Candidate("ours", inflight=3), Candidate("theirs", inflight=0, load=4)
    assert picks(make_policy("least_inflight"), [ours, theirs]) == {"theirs"}
