"""ARIMA by statsmodels."""

import sys
from random import Random

import pytest

from router.lab.extras import MissingExtra
from router.lab.plan.forecasts.arima import ORDER, Arima


def test_newer_values_are_used_without_a_new_fit() -> None:
    values = [float(n) for n in range(100)]
    fitted = Arima().fit(values)
    assert fitted.predict([*values, *range(100, 120)], 1) == pytest.approx([120.0], rel=0.05)
    assert fitted.predict([*values, *[50.0] * 20], 1) == pytest.approx([50.0], rel=0.1)


@pytest.mark.filterwarnings("ignore")  # of an optimizer that stops after 50 iterations
def test_a_forecast_equals_that_of_statsmodels() -> None:
    from statsmodels.tsa.arima.model import ARIMA

    rng = Random(1)
    values = [100.0]
    for _ in range(599):
        values.append(0.9 * values[-1] + 10.0 + rng.gauss(0.0, 5.0))
    predicted = Arima().fit(values[:500]).predict(values, 6)
    scale = sum(values[:500]) / 500
    model = ARIMA(
        [value / scale for value in values[:500]], order=ORDER, enforce_stationarity=False
    )
    result = model.fit(method_kwargs={"maxiter": 50, "disp": 0})
    newer = result.apply([value / scale for value in values])
    assert predicted == pytest.approx([scale * one for one in newer.forecast(6)], rel=1e-4)


def test_a_forecast_that_diverges_becomes_the_last_value() -> None:
    values = [1.2**n for n in range(100)]
    predicted = Arima().fit(values).predict(values, 50)
    assert max(predicted) <= 10.0 * max(values)
    assert predicted[-1] == values[-1]


def test_a_series_of_zeros_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="the series is 0"):
        Arima().fit([0.0] * 100)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    monkeypatch.setitem(sys.modules, "statsmodels.tsa.arima.model", None)
    with pytest.raises(MissingExtra, match=r"statsmodels.*\[lab\]"):
        Arima().fit([1.0] * 100)
