"""The settings that requests read: which classes have timeouts of their own."""

from __future__ import annotations

from router.config.model import (
    Classes,
    ClassSettings,
    ClassTimeouts,
    Config,
    HighClass,
    LowClass,
    Timeouts,
)
from router.dispatch.rules import Rules


def test_only_a_class_that_sets_timeouts_has_its_own() -> None:
    high = HighClass(timeouts=ClassTimeouts(whole_s=1.0))
    classes = Classes(high=high, low=LowClass(depth=5))
    rules = Rules(Config(classes=classes, timeouts=Timeouts(connect_s=3.0)))
    own = rules.times_of("high")
    assert (own.is_own, own.whole_s, own.connect_s) == (True, 1.0, 3.0)
    for name in ("critical", "normal", "low", "batch", ""):
        assert rules.times_of(name) is rules.times
    assert not rules.times.is_own


def test_a_request_without_a_class_has_the_timeouts_of_normal() -> None:
    classes = Classes(normal=ClassSettings(timeouts=ClassTimeouts(total_s=7.0)))
    assert Rules(Config(classes=classes)).times_of("").total_s == 7.0
