from __future__ import annotations

import pytest

import bench.rivals  # noqa: F401  (registers the policies)
from policies.contract import Candidate, make_policy
from router.core.kv_estimate import report_kv
from router.core.lease import Lease
from router.core.replica_load import ReplicaLoad
from tests.policies.helpers import burst, context, loaded, picks


def using(*usages: float | None, load: int = 4) -> list[Candidate]:
    return [
        Candidate(chr(ord("a") + i), inflight=load, kv_usage=usage, kv_tokens=100_000)
        for i, usage in enumerate(usages)
    ]


def test_the_emptiest_cache_is_taken() -> None:
    assert picks(make_policy("kv_occupancy"), using(0.7, 0.2, 0.5)) == {"b"}


def test_a_cache_twice_as_free_carries_twice_the_load() -> None:
    """Llumnix' freeness: free room per running request."""
    picked = burst(make_policy("kv_occupancy"), using(0.2, 0.6, load=0), 300, context())
    assert picked["a"] / 300 == pytest.approx(2 / 3, abs=0.01)


def test_what_was_sent_since_the_poll_takes_room() -> None:
    candidates = [ReplicaLoad("a"), ReplicaLoad("b")]
    for candidate in candidates:
        candidate.kv_tokens = 100_000
        report_kv(candidate, 0.2, 0)
    leases = [Lease(candidates[0], 50_000), Lease(candidates[1], 10_000)]
    assert picks(make_policy("kv_occupancy"), candidates) == {"b"}
    for lease in leases:
        lease.release()
    assert picks(make_policy("kv_occupancy"), candidates) == {"a", "b"}


def test_what_was_sent_since_the_poll_counts_once() -> None:
    """`kv_usage` includes requests sent since the poll; `pending_tokens` must not be added."""
    candidates = using(0.2, 0.3)
    candidates[0].pending_tokens = 50_000
    assert picks(make_policy("kv_occupancy"), candidates) == {"a"}


def test_full_is_full_and_then_the_load_decides() -> None:
    """Freeness as a quotient would prefer the larger batch where the room is negative."""
    candidates = using(1.0, 1.0)
    candidates[0].load, candidates[1].load = 30, 3
    assert picks(make_policy("kv_occupancy"), candidates) == {"b"}


def test_an_unknown_usage_is_like_the_others_mean() -> None:
    candidates = using(0.2, None, 0.8)
    assert picks(make_policy("kv_occupancy"), candidates) == {"a"}
    assert picks(make_policy("kv_occupancy"), candidates[1:]) == {"b", "c"}
    candidates[2].load = 5
    assert picks(make_policy("kv_occupancy"), candidates[1:]) == {"b"}


def test_without_reported_usage_it_equals_least_load() -> None:
    assert picks(make_policy("kv_occupancy"), loaded(3, 1, 2)) == {"b"}


def test_between_two_polls_a_burst_spreads() -> None:
    """Usage does not change for a second; the emptiest replica must not get all requests."""
    picked = burst(make_policy("kv_occupancy"), using(0.10, 0.12, 0.12, 0.12), 400, context())
    assert max(picked.values()) < 110
