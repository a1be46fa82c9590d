"""The rules of a queue from its configuration: aging, and promotion before a wait expires."""

from __future__ import annotations

from router.admission.rules import Rules
from router.config.model import Config
from tests.admission.world import config


def test_age_never_makes_anybody_more_urgent_than_high() -> None:
    rules = Rules(config(batch_becomes_normal_after_s=20.0))
    assert rules.aged(4.0, 20.0) == 2.0
    assert rules.aged(4.0, 1e9) == 1.0
    assert rules.aged(1.0, 1e9) == 1.0
    assert rules.aged(0.3, 1e9) == 0.3


def test_who_starves_is_promoted_while_there_is_time_left() -> None:
    for rules in Rules(Config()).classes:
        assert rules.promote_s < rules.bound_s <= rules.wait_s
