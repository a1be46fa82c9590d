"""ARIMA(3,1,2), the model that SageServe uses (arXiv 2502.14617).

statsmodels estimates the parameters in `fit`. A forecast needs only these parameters and the newest
values: `predict` computes the errors of the model's one-step forecasts, and continues the
differences with them. That takes less than a millisecond; a filter of statsmodels takes eight.
statsmodels is imported at the first fit. Must never: print a warning of the library.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Any, Final

from router.lab.extras import MissingExtra
from router.lab.plan.forecasts.method import Fitted, Method

ORDER: Final = (3, 1, 2)
_LEAST: Final = 60  # minimum number of values, for five parameters and a variance
# Number of the newest values that are used; older ones hardly matter to so few parameters.
_MOST: Final = 1500
# Number of the newest differences from which the errors are computed; the first error is unknown
# and taken as 0.
_FILTERED: Final = 200


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
                ).fit(method_kwargs={"maxiter": 50, "disp": 0})
            except Exception as err:  # numpy's LinAlgError, and several exceptions of statsmodels
                raise ValueError(f"ARIMA cannot be fitted: {err}") from None
        autoregressive, average = result.arparams.tolist(), result.maparams.tolist()
        return _FittedArima(autoregressive, average, begin)


class _FittedArima(Fitted):
    """`autoregressive`, `average`: factors of the last differences and of the last errors, the
    newest first. `begin`: number of the first value that is used.

    The model is invertible, so the influence of the first error vanishes.
    """

    def __init__(
        self, autoregressive: Sequence[float], average: Sequence[float], begin: int
    ) -> None:
        self._autoregressive = autoregressive
        self._average = average
        self._begin = begin

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        newest = history[max(self._begin, len(history) - _FILTERED - 1) :]
        changes: list[float] = []
        errors: list[float] = []
        for before, after in pairwise(newest):
            change = after - before
            errors.append(change - self._next(changes, errors))
            changes.append(change)
        last = value = history[-1]
        # A model that is not stationary can diverge. Then the last value of the history is the
        # forecast.
        most = 10.0 * max(history[self._begin :])
        found = []
        for _ in range(steps):
            change = self._next(changes, errors)
            changes.append(change)
            errors.append(0.0)
            value += change
            found.append(max(0.0, value) if isfinite(value) and value <= most else last)
        return found

    def _next(self, changes: Sequence[float], errors: Sequence[float]) -> float:
        """Return the expected next difference."""
        found = 0.0
        for factors, values in ((self._autoregressive, changes), (self._average, errors)):
            for back, factor in enumerate(factors[: len(values)], start=1):
                found += factor * values[-back]
        return found


def _arima() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from statsmodels.tsa.arima.model import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
                ARIMA,
            )
    except ImportError as err:
        raise MissingExtra(
            f"ARIMA needs {err.name or 'statsmodels'}: pip install '.[lab]'"
        ) from None
    return ARIMA
