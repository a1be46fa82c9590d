"""Batch requests prefer spot replicas, critical requests avoid them, and all get a replica."""

from __future__ import annotations

import pytest

from router.config.model import Health
from router.config.model import Replica as ReplicaConfig
from router.core.urgency import BATCH, CLASSES, CRITICAL
from router.dispatch.spot_preference import preferred
from router.fleet.replica import Replica


def made(id: str, *, spot: bool, waiting: int = 0) -> Replica:
    replica = Replica(ReplicaConfig(url=f"http://{id}", id=id, spot=spot), Health(), None)
    replica.waiting = waiting
    return replica


FIXED, SPOT = made("fixed", spot=False), made("spot", spot=True)
BUSY_FIXED, BUSY_SPOT = made("bf", spot=False, waiting=1), made("bs", spot=True, waiting=1)


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
def test_the_preference(urgency: int, candidates: list[Replica], found: list[Replica]) -> None:
    assert preferred(candidates, urgency) == found


@pytest.mark.parametrize("urgency", range(CRITICAL + 1, BATCH), ids=CLASSES[1:-1])
def test_other_classes_have_none(urgency: int) -> None:
    candidates = [FIXED, SPOT]
    assert preferred(candidates, urgency) is candidates


@pytest.mark.parametrize("urgency", range(BATCH + 1), ids=CLASSES)
def test_no_request_is_left_without_a_replica(urgency: int) -> None:
    for only in (FIXED, SPOT, BUSY_FIXED, BUSY_SPOT):
        assert list(preferred([only], urgency)) == [only]
