"""Requests prefer replicas that need not load their adapter, and spot replicas or others."""

from collections import Counter
from typing import Any

import pytest

from router.config.model import Health, Replica as ReplicaConfig
from router.core.urgency import BATCH, CLASSES, CRITICAL
from router.dispatch.preferences import preferred_by_class, preferred_for
from router.fleet.replica import Replica
from tests.dispatch.driven import Driven, World


def made(
    id: str, *adapters: str, load: int = 0, slots: int = 1, spot: bool = False, waiting: int = 0
) -> Replica:
    replica = Replica(ReplicaConfig(url=f"http://{id}", id=id, spot=spot), Health(), None)
    replica.waiting = waiting
    replica.loaded_adapters.reported((), slots)
    for name in adapters:
        replica.loaded_adapters.use(name)
    replica.load = load
    return replica


def test_first_those_that_have_it_then_those_with_space() -> None:
    has, full, free = made("has", "sql"), made("full", "fr"), made("free")
    assert preferred_for("sql", [has, full, free], {}) == [has]
    assert preferred_for("sql", [full, free], {}) == [free]
    assert preferred_for("sql", [full], {}) == [full]
    assert preferred_for("de", [has, full], {}) == [has, full]


def test_a_cached_prefix_counts_like_the_adapter() -> None:
    has, full, free = made("has", "sql"), made("full", "fr"), made("free")
    assert preferred_for("sql", [has, full, free], {full: 3}) == [has, full]


def test_the_preference_ends_near_the_mean_load() -> None:
    busy, idle = made("busy", "sql", load=3), made("idle")
    assert preferred_for("sql", [busy, idle], {}) == [idle]
    busy.load = 2
    assert preferred_for("sql", [busy, idle], {}) == [busy]
    twice = made("twice", "sql", load=3)
    twice.weight = 2.0
    assert preferred_for("sql", [twice, made("x"), made("y")], {}) == [twice]
    busy.load = 40
    others = [made(f"r{n}", load=36) for n in range(7)]
    assert preferred_for("sql", [busy, *others], {}) == [busy]


class Fleet(World):
    """Replicas of `m`, and of the adapters `sql` and `fr`; one adapter fits into the memory."""

    def __init__(self, replicas: int, **settings: Any) -> None:
        super().__init__(replicas, models=("m", "sql", "fr"), **settings)
        for replica in self.replicas:
            replica.listed.adapters = frozenset({"sql", "fr"})
            replica.loaded_adapters.reported((), 1)
        self.fleet.rebuild()

    def ends(self, request: Driven) -> None:
        (attempt,) = request.driver.state.live
        request.shows(attempt)
        request.whole(attempt)


def test_an_adapter_stays_where_it_is_and_no_request_piles_up() -> None:
    world = Fleet(3)
    places = Counter()
    for number in range(30):
        model = ("sql", "fr")[number % 2]
        request = world.arrives(f"q{number}", model=model)
        places[model, request.driver.state.live[0].at.id] += 1
        world.ends(request)
    assert len(places) == 2, "each adapter is loaded once"
    assert len({id for _, id in places}) == 2
    requests = [world.arrives(f"p{number}", model="sql") for number in range(30)]
    found = Counter(request.driver.state.live[0].at.id for request in requests)
    assert max(found.values()) <= 13, found


def test_requests_of_the_model_itself_have_no_preference() -> None:
    world = Fleet(2)
    world.ends(world.arrives("a", model="sql"))
    world.ends(world.arrives("b", model="m"))
    assert [r.loaded_adapters.holds("sql") for r in world.replicas] == [True, False]
    assert not any(r.loaded_adapters.holds("m") for r in world.replicas)


# Spot replicas.

FIXED, SPOT = made("fixed"), made("spot", spot=True)
BUSY_FIXED, BUSY_SPOT = made("bf", waiting=1), made("bs", spot=True, waiting=1)


@pytest.mark.parametrize(
    ("urgency", "candidates", "found"),
    [
        (BATCH, [FIXED, SPOT, BUSY_SPOT], [SPOT]),
        (CRITICAL, [FIXED, SPOT, BUSY_FIXED], [FIXED]),
        # A replica with a waiting request is not preferred to a replica without waiting requests.
        (BATCH, [FIXED, BUSY_SPOT], [FIXED, BUSY_SPOT]),
        (CRITICAL, [BUSY_FIXED, SPOT], [BUSY_FIXED, SPOT]),
        (BATCH, [FIXED], [FIXED]),
        (CRITICAL, [SPOT, BUSY_SPOT], [SPOT, BUSY_SPOT]),
    ],
)
def test_the_preference_of_a_class(
    urgency: int, candidates: list[Replica], found: list[Replica]
) -> None:
    assert preferred_by_class(candidates, urgency) == found


@pytest.mark.parametrize("urgency", range(CRITICAL + 1, BATCH), ids=CLASSES[1:-1])
def test_other_classes_have_none(urgency: int) -> None:
    candidates = [FIXED, SPOT]
    assert preferred_by_class(candidates, urgency) is candidates


@pytest.mark.parametrize("urgency", range(BATCH + 1), ids=CLASSES)
def test_no_request_is_left_without_a_replica(urgency: int) -> None:
    for only in (FIXED, SPOT, BUSY_FIXED, BUSY_SPOT):
        assert list(preferred_by_class([only], urgency)) == [only]
