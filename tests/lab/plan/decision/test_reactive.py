"""The reactive rule."""

import pytest

from router.lab.plan.decision.reactive import Scaled, reactive
from router.lab.plan.types_file import Reactive

RULE = Reactive(up=0.8, down=0.4)


def scaled(now: int, load: float, low: int = 0, high: int = 100) -> int:
    return reactive([Scaled("gpu", now, load, 1.0, low, high)], RULE)["gpu"]


@pytest.mark.parametrize(
    ("now", "load", "count"),
    [
        (4, 3.2, 4),  # exactly at the upper threshold
        (4, 3.3, 5),
        (4, 8.0, 10),  # a jump is followed at once
        (4, 1.6, 4),  # exactly at the lower threshold
        (4, 1.5, 3),
        (10, 0.1, 9),  # one at a time
        (1, 0.3, 1),  # none less would do
        (1, 0.0, 0),
        (0, 2.0, 3),
        (0, 0.0, 0),
    ],
)
def test_the_replicas(now: int, load: float, count: int) -> None:
    assert scaled(now, load) == count


def test_the_cheapest_type_is_started_and_the_dearest_stopped() -> None:
    def counts(cheap: int, dear: int, tokens: float, high: int = 100) -> dict[str, int]:
        pools = [
            Scaled("cheap", cheap, tokens / 10.0, 1.0, 0, high),
            Scaled("dear", dear, tokens / 20.0, 4.0),
        ]
        return dict(reactive(pools, RULE))

    assert counts(1, 1, 40.0) == {"cheap": 3, "dear": 1}
    assert counts(1, 1, 80.0, high=2) == {"cheap": 2, "dear": 4}
    assert counts(3, 1, 10.0) == {"cheap": 3, "dear": 0}
