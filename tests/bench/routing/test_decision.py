"""The µs of one decision, which the bench of the routing policies prints."""

from __future__ import annotations

import gc
from random import Random

import pytest

from bench.routing.measure import decision_us
from bench.routing.traffic import MIX, Fleet


@pytest.mark.parametrize("policy", ["kv_aware", "least_load"])
def test_a_decision_takes_time(policy: str) -> None:
    try:
        assert decision_us(Fleet(4, Random(1)), policy, MIX, 1) > 0.0
    finally:
        gc.unfreeze()
