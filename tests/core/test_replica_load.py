"""A new replica's load: all counts are 0, and unknown values are None."""

from __future__ import annotations

import pytest

from policies.facts import Candidate
from router.core.replica_load import UNLIMITED, ReplicaLoad

NOT_ZERO = {
    "id": "r",
    "weight": 1.0,
    "limit": UNLIMITED,
    "kv_reported": -1.0,
    "is_fit": True,
    # Unknown.
    "cadence_s": None,
    "kv_tokens": None,
    "kv_usage": None,
    "models": None,
    "slots": None,
    "ttft_s": None,
    "tpot_s": None,
}


def fields_of(load: ReplicaLoad) -> list[str]:
    return [name for name in dir(load) if not name.startswith("_")]


def test_a_new_load_is_empty_and_unknown() -> None:
    load = ReplicaLoad("r")
    names = fields_of(load)
    names.remove("speed")
    assert not load.speed.is_known
    assert NOT_ZERO.keys() < set(names)
    for name in names:
        assert getattr(load, name) == NOT_ZERO.get(name, 0), name


def test_no_attempt_reaches_the_default_limit() -> None:
    load = ReplicaLoad("r")
    load.inflight = 10**9
    assert load.inflight < load.limit


def test_loads_are_compared_and_hashed_by_identity() -> None:
    """Two replicas of one name may exist while a reload replaces one."""
    first, second = ReplicaLoad("r"), ReplicaLoad("r")
    assert first != second
    assert len({first: 1, second: 2}) == 2
    first.inflight = 5
    assert {first: 1}[first] == 1


def test_a_policy_sees_it_as_a_candidate() -> None:
    load = ReplicaLoad("r", weight=0.5)
    assert isinstance(load, Candidate)
    assert load.weight == 0.5


def test_the_weight_is_given_by_name() -> None:
    with pytest.raises(TypeError):
        ReplicaLoad("r", 2.0)  # type: ignore[misc]
