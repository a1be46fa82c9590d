from random import Random
from unittest.mock import patch

import pytest

from policies.contract import Context, make_policy
from tests.policies.helpers import VIEW, context, fleet, trickle


def test_each_gets_its_share_whatever_the_load() -> None:
    candidates = fleet(1, 2, 5)
    candidates[2].inflight = 1000
    picked = trickle(make_policy("random"), candidates, 8000, context())
    shares = [picked[id] / 8000 for id in "abc"]
    assert shares == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.02)


def test_rounding_at_the_very_end_still_picks_one() -> None:
    """0.1 + 0.2 + … summed and subtracted again may differ from 0."""
    rng = Random()
    with patch.object(rng, "random", return_value=1.0):
        pick = make_policy("random").pick(VIEW, fleet(0.1, 0.2, 0.3), Context(rng))
    assert pick.candidate.id == "c"
