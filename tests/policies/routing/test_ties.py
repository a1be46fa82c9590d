"""The cheapest of many, and the draw among equals."""

from collections import Counter
from random import Random

import pytest

from policies.routing.ties import draw
from tests.policies.helpers import fleet


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (2.0, 2.0), (1.0, 3.0), (0.5, 0.25, 0.25)])
def test_a_draw_is_by_weight(weights: tuple[float, ...]) -> None:
    tied, rng = fleet(*weights), Random(1)
    drawn = Counter(draw(tied, rng).id for _ in range(6000))
    for one in tied:
        assert drawn[one.id] / 6000 == pytest.approx(one.weight / sum(weights), abs=0.03)
