"""The interface of a forecast method. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class Fitted:
    """A method that was fitted to the beginning of a series."""

    def predict(self, history: Sequence[float], steps: int) -> list[float]:
        """The next `steps` values after `history`, each at least 0.

        `history` begins where the fitted series began, and is at least as long.
        """
        raise NotImplementedError


class Method:
    """A way to forecast. `least`: the number of values that a fit needs."""

    name: str
    least: int

    def fit(self, history: Sequence[float]) -> Fitted:
        """Fit to at least `least` values. Raises MissingExtra, and ValueError if it cannot."""
        raise NotImplementedError
