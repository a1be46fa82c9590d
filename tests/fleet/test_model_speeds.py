"""A replica that is new begins with the speed that the other replicas of its model have learned."""

import pytest

from router.config.model import Health, Replica as ReplicaConfig
from router.core.lease import Lease
from router.core.speed_learner import LEAST
from router.fleet.model_speeds import MODELS_MAX, ModelSpeeds
from router.fleet.replica import Replica


def replica(id: str, model: str = "m") -> Replica:
    return Replica(ReplicaConfig(url="http://127.0.0.1:9", id=id, models=(model,)), Health(), None)


def serve(place: Replica, ttft_s: float, streams: int = LEAST) -> None:
    for number in range(streams):
        lease = Lease(place, 1000)
        learner = place.learned.speeds
        sample = learner.dispatched(place, 1000, 0, -1.0, float(number))
        lease.begun()
        learner.shown(place, sample, ttft_s, True, number + ttft_s)
        lease.release()
        learner.ended(place, sample, 20, True, number + 2.0 * ttft_s)


def predicted(place: Replica) -> float:
    return place.speed.ttft_s(0, 1000, 0, 0)


def test_a_new_replica_takes_over_what_its_model_has_taught() -> None:
    speeds, old, new, other = ModelSpeeds(), replica("a"), replica("b"), replica("c", "n")
    serve(old, 0.02)
    for one in (old, new, other):
        speeds.share(one)
    assert new.speed.is_known
    assert predicted(new) == pytest.approx(predicted(old))
    assert new.speed.tpot_s(1, 1000) == pytest.approx(old.speed.tpot_s(1, 1000), rel=0.2)
    assert not other.speed.is_known


def test_own_answers_are_kept() -> None:
    speeds, fast, slow = ModelSpeeds(), replica("a"), replica("b")
    serve(fast, 0.02)
    serve(slow, 0.2)
    before = predicted(slow)
    for _ in range(10):
        speeds.share(fast)
        speeds.share(slow)
    assert predicted(slow) == before


def test_every_replica_of_the_model_teaches() -> None:
    speeds, fast, slow, new = ModelSpeeds(), replica("a"), replica("b"), replica("c")
    serve(fast, 0.02)
    serve(slow, 0.2)
    for _ in range(200):
        speeds.share(fast)
        speeds.share(slow)
    speeds.share(new)
    assert predicted(fast) < predicted(new) < predicted(slow)


def test_memory_is_bounded() -> None:
    speeds = ModelSpeeds()
    for number in range(MODELS_MAX + 10):
        one = replica(f"r{number}", f"m{number}")
        serve(one, 0.02)
        speeds.share(one)
    last, forgotten = replica("new", f"m{MODELS_MAX + 9}"), replica("old", "m0")
    speeds.share(last)
    speeds.share(forgotten)
    assert last.speed.is_known and not forgotten.speed.is_known


def test_changed_settings_of_a_replica_keep_its_speed() -> None:
    old, new = replica("a"), replica("a")
    serve(old, 0.02)
    new.continues(old)
    assert predicted(new) == pytest.approx(predicted(old))
