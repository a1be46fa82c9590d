"""The interface of a forecast method. All methods are pure."""

from __future__ import annotations

from collections.abc import Sequence


class Fitted:
    """A forecast method that was fitted to the beginning of a series."""

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        """Return the next `steps` values after `history`, each at least 0.

        `history` begins where the fitted series began, and is at least as long as that series.
        """
        raise NotImplementedError


class Method:
    """A forecast method. `least`: the minimum number of values for a fit."""

    name: str
    least: int

    def fit(self, history: Sequence[float]) -> Fitted:
        """Fit the method to at least `least` values.

        Raises MissingExtra, and ValueError if the method cannot be fitted.
        """
        raise NotImplementedError
