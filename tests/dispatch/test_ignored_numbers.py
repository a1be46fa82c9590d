"""Ignored priority numbers: one warning per model, none before its engines are detected."""

from __future__ import annotations

import pytest

from router.dispatch.attempts.engine_priority import PATIENCE_S, IgnoredNumbers
from router.fleet.dialects import MIXED, NONE, UNKNOWN

MODELS = {"m", "n"}


def warned(caplog: pytest.LogCaptureFixture) -> list[tuple[object, object]]:
    fields = [record.__dict__["fields"] for record in caplog.records]
    return [(one["model"], one["dialect"]) for one in fields]


def test_one_warning_a_model(caplog: pytest.LogCaptureFixture) -> None:
    numbers = IgnoredNumbers()
    for _ in range(3):
        numbers.ignored("m", MODELS, MIXED, 1.0)
        numbers.ignored("n", MODELS, NONE, 1.0)
    assert warned(caplog) == [("m", MIXED), ("n", NONE)]


def test_an_engine_has_time_to_be_detected(caplog: pytest.LogCaptureFixture) -> None:
    numbers = IgnoredNumbers()
    numbers.ignored("m", MODELS, UNKNOWN, 100.0)
    numbers.ignored("m", MODELS, UNKNOWN, 100.0 + 0.9 * PATIENCE_S)
    assert warned(caplog) == []
    numbers.ignored("m", MODELS, UNKNOWN, 100.0 + PATIENCE_S)
    assert warned(caplog) == [("m", UNKNOWN)]


def test_names_of_clients_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    numbers = IgnoredNumbers()
    for n in range(1000):
        numbers.ignored(f"invented-{n}", MODELS, UNKNOWN, 1.0)
        numbers.ignored(f"invented-{n}", MODELS, MIXED, 1.0)
    assert warned(caplog) == [(None, MIXED)]
    assert len(numbers._warned) == 1 and not numbers._since
