"""The decoding sequences over time: means over a stream's life, other clients, no streams."""

import pytest

from router.core.lease import Lease
from router.core.replica_load import ReplicaLoad
from router.core.speed_learner import DecodeLoad

TPOT_S = 0.1


def begin(load: DecodeLoad, place: ReplicaLoad, prompt: int, now: float) -> Lease:
    load.look(place, TPOT_S, now)
    lease = Lease(place, prompt)
    lease.begun()
    load.begins(prompt, prompt, now)
    load.look(place, TPOT_S, now)
    return lease


def end(
    load: DecodeLoad, place: ReplicaLoad, lease: Lease, prompt: int, began: float, now: float
) -> None:
    lease.release()
    load.look(place, TPOT_S, now)
    load.ends(prompt, began)
    load.look(place, TPOT_S, now)


def test_the_sums_give_the_mean_numbers_of_an_interval() -> None:
    load, place = DecodeLoad(), ReplicaLoad("r")
    first = begin(load, place, 1000, 100.0)
    assert (load.sequences, load.context) == (1.0, 1000.0)
    sequences, context = load.sequence_s, load.context_s
    second = begin(load, place, 3000, 102.0)
    # The first one has generated 20 tokens.
    assert (load.sequences, load.context) == pytest.approx((2.0, 4020.0))
    end(load, place, second, 3000, 102.0, 104.0)
    assert (load.sequences, load.context) == pytest.approx((1.0, 1040.0))
    assert (load.sequence_s - sequences) / 4.0 == pytest.approx(1.5)
    assert (load.context_s - context) / 4.0 == pytest.approx((1000 + 4020) / 2)
    end(load, place, first, 1000, 100.0, 105.0)
    assert (load.sequences, load.context) == (0.0, 0.0)


@pytest.mark.parametrize(("usage", "context"), [(0.5, 5000.0), (None, 0.0)])
def test_without_own_streams_the_cache_usage_counts(usage: float | None, context: float) -> None:
    load, place = DecodeLoad(), ReplicaLoad("r")
    place.load, place.kv_usage, place.kv_tokens = 2, usage, 10_000
    load.look(place, TPOT_S, 100.0)
    assert (load.sequences, load.context) == (2.0, context)
