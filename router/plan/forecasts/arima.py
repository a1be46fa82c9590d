"""ARIMA(3,1,2), the model that SageServe uses (arXiv 2502.14617), from statsmodels.

The parameters are estimated by `fit`; `predict` only filters the newer values through the same
model, which takes milliseconds. statsmodels is imported at the first fit. Must never: print a
warning of the library.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

from router.core.extras import MissingExtra
from router.plan.forecasts.method import Fitted, Method

ORDER: Final = (3, 1, 2)
_LEAST: Final = 60  # minimum number of values, for five parameters and a variance
# Number of the newest values that are used; older ones hardly matter to so few parameters.
_MOST: Final = 1500


class Arima(Method):
    name = "ARIMA(3,1,2)"
    least = _LEAST

    def fit(self, history: Sequence[float]) -> Fitted:
        begin = max(0, len(history) - _MOST)
        scale = sum(history[begin:]) / (len(history) - begin)
        if scale <= 0.0:
            raise ValueError("the series is 0")
        model = _arima()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = model(
                    [value / scale for value in history[begin:]],
                    order=ORDER,
                    enforce_stationarity=False,
                    enforce_invertibility=False,
                ).fit(method_kwargs={"maxiter": 50, "disp": 0})
            except Exception as err:  # numpy's LinAlgError, and several exceptions of statsmodels
                raise ValueError(f"ARIMA cannot be fitted: {err}") from None
        return _FittedArima(result, begin, scale)


class _FittedArima(Fitted):
    def __init__(self, result: Any, begin: int, scale: float) -> None:
        self._result = result
        self._begin = begin
        self._scale = scale

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        newest = [value / self._scale for value in history[self._begin :]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self._result.apply(newest).forecast(steps)
        last = history[-1]
        # A model that is not stationary can diverge. Then the last value of the history is the
        # forecast.
        most = 10.0 * max(history[self._begin :])
        return [
            max(0.0, value) if isfinite(value) and value <= most else last
            for value in (self._scale * float(one) for one in found)
        ]


def _arima() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from statsmodels.tsa.arima.model import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
                ARIMA,
            )
    except ImportError as err:
        raise MissingExtra(
            f"ARIMA needs {err.name or 'statsmodels'}: pip install '.[plan]'"
        ) from None
    return ARIMA
