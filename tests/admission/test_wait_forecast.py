"""The predicted wait of a ticket: which estimator is used, and what it learns."""

import pytest

from router.admission.rules import Rules
from router.admission.turn_model import TurnModel
from router.admission.wait_forecast import (
    BY_CLASS_WAITS,
    BY_FLOW_WAITS,
    BY_TURNS,
    UNKNOWN_S,
    WaitForecast,
    WaitForecaster,
)
from router.admission.waiting.stride import Stride
from router.core.urgency import NORMAL
from tests.admission.world import config


def no_turns() -> TurnModel:
    rules = Rules(config())
    return TurnModel(rules, Stride(rules))


def begins(
    forecaster: WaitForecaster,
    in_class: int,
    in_flow: int = 0,
    *,
    turns: TurnModel | None = None,
    now: float = 0.0,
) -> WaitForecast:
    """A ticket of class normal begins to wait behind these tickets."""
    forecast = WaitForecast(0.1, 0.1)
    forecaster.begins(
        forecast, NORMAL, in_class, in_flow, no_turns() if turns is None else turns, now
    )
    return forecast


def test_nothing_is_known_before_a_ticket_has_waited() -> None:
    forecaster = WaitForecaster()
    first = begins(forecaster, 0)
    assert first.wait_s == UNKNOWN_S
    forecaster.sent(first, NORMAL, 2.0)
    assert begins(forecaster, 4).wait_s == pytest.approx(10.0)


def test_a_wait_follows_the_position_in_the_class() -> None:
    forecaster = WaitForecaster()
    for ahead in (1, 9, 4, 99, 30):
        forecaster.sent(begins(forecaster, ahead), NORMAL, 0.5 * (ahead + 1))
    assert begins(forecaster, 19).wait_s == pytest.approx(10.0)


def test_the_estimator_that_fits_is_used() -> None:
    """Flows share the service: a flow's waits follow its own tickets, not those of the class."""
    forecaster = WaitForecaster()
    for number in range(40):
        in_flow = number % 5
        in_class = 10 + 37 * number % 50
        forecaster.sent(begins(forecaster, in_class, in_flow), NORMAL, 3.0 * (in_flow + 1))
    errors = [one.error for one in forecaster.estimators[NORMAL]]
    assert errors[BY_FLOW_WAITS] < errors[BY_CLASS_WAITS]
    assert begins(forecaster, 50, 2).wait_s == pytest.approx(9.0, rel=0.01)


def test_the_turns_predict_before_a_ticket_was_sent() -> None:
    """The queue serves two requests per second, all of class normal."""
    turns = no_turns()
    turns.compute([0, 0, 9, 0, 0], [0.0] * 5, 2.0, 10.0)
    forecast = begins(WaitForecaster(), 9, turns=turns, now=10.0)
    assert forecast.chosen == BY_TURNS
    assert forecast.wait_s == pytest.approx(5.0, rel=0.15)
