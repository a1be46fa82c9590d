"""A robust, non-negative linear fit of durations to amounts of work.

The fitted formula is: time = sum of coefficient * amount, with each coefficient >= 0. Errors are
assumed to be proportional to the time, as on real engines, so the weight of a sample is one over
its fitted time. Outliers (a stall, or load that is not in the log) have lower weights, by Huber's
method (P. J. Huber, "Robust estimation of a location parameter", Annals of Mathematical Statistics
35, 1964).

If the samples hardly differ in an amount, its coefficient has a large relative standard error. Such
a coefficient is *tied*: it gets the ratio to the anchor coefficient that it has in a given profile,
and the fit is repeated. A coefficient is not tied in two cases: the tied value would differ by more
than two standard errors, or its contribution to the time is certainly negligible.

scipy and numpy are imported at the first fit. Raises MissingExtra if they are not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.lab.extras import MissingExtra

_ERROR_MAX: Final = 0.35  # a coefficient with a larger relative standard error is tied
_NEGLIGIBLE: Final = 0.03  # a contribution below this share of the median time is negligible
# Threshold of outliers in standard deviations; 95 % efficiency on normal errors.
_HUBER: Final = 1.345
# Standard deviation of a normal distribution, divided by its median absolute deviation.
_MAD: Final = 1.4826
_ROUNDS: Final = 12
_SINGULAR: Final = 1e-9  # singular values below this share of the largest are rounding errors
_WEIGHT_MIN: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted coefficients, one per column of the amounts, and the quality of the fit."""

    values: tuple[float, ...]
    tied: tuple[bool, ...]
    samples: int
    r2: float  # coefficient of determination, R²
    error: float  # mean of |fitted - measured| / measured


def fit(
    rows: Sequence[Sequence[float]], times: Sequence[float], base: Sequence[float], anchor: int
) -> Fit:
    """Fit coefficients of the amounts in `rows` to `times` (seconds, all above 0).

    `base`: a profile's coefficients, for the ratios of tied coefficients. `anchor`: the column that
    the ratios refer to; it is never tied. Raises MissingExtra.
    """
    np, nnls = _numeric()
    x = np.asarray(rows, dtype=float)
    y = np.asarray(times, dtype=float)
    tied: set[int] = set()
    while True:
        free = [column for column in range(x.shape[1]) if column not in tied]
        merged = x[:, free].copy()
        at = free.index(anchor)
        for column in tied:
            merged[:, at] += x[:, column] * _ratio(base, column, anchor)
        found, errors = _robust(np, nnls, merged, y)
        usual = float(np.median(y))
        most = np.quantile(merged, 0.95, axis=0)
        worst, doubt = -1, _ERROR_MAX
        for index, column in enumerate(free):
            value, error = float(found[index]), float(errors[index])
            if column == anchor or (value + 2.0 * error) * most[index] < _NEGLIGIBLE * usual:
                continue
            if abs(float(found[at]) * _ratio(base, column, anchor) - value) > 2.0 * error:
                continue
            share = error / value if value > 0.0 else float("inf")
            if share > doubt:
                worst, doubt = column, share
        if worst < 0:
            break
        tied.add(worst)
    values = [0.0] * x.shape[1]
    for index, column in enumerate(free):
        values[column] = float(found[index])
    for column in tied:
        values[column] = values[anchor] * _ratio(base, column, anchor)
    fitted = x @ np.asarray(values)
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - fitted) ** 2).sum())
    return Fit(
        values=tuple(values),
        tied=tuple(column in tied for column in range(x.shape[1])),
        samples=len(y),
        r2=1.0 - left / spread if spread > 0.0 else 0.0,
        error=float(np.mean(np.abs(fitted - y) / y)),
    )


def _robust(np: Any, nnls: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the coefficients and their standard errors."""
    # Scale the columns to similar size, because squares of tokens are huge.
    scale = np.maximum(np.abs(x).max(axis=0), 1e-300)
    x = x / scale
    weight = 1.0 / y
    found = nnls(x * weight[:, None], y * weight)[0]
    trust = np.ones(len(y))
    floor = 0.1 * np.median(y)
    for _ in range(_ROUNDS):
        weight = 1.0 / np.maximum(x @ found, floor)
        residual = (y - x @ found) * weight
        sigma = max(_MAD * float(np.median(np.abs(residual))), 1e-9)
        trust = np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(residual), 1e-12))
        root = np.sqrt(np.maximum(trust, _WEIGHT_MIN))
        before = found
        found = nnls(x * (weight * root)[:, None], y * weight * root)[0]
        if np.allclose(found, before, rtol=1e-6, atol=1e-15):
            break
    weighted = x * weight[:, None]
    residual = (y - x @ found) * weight
    variance = float((trust * residual**2).sum()) / max(len(y) - x.shape[1], 1)
    inverse = np.linalg.pinv((weighted * trust[:, None]).T @ weighted, hermitian=True)
    errors = np.sqrt(np.maximum(np.diag(inverse) * variance, 0.0))
    # Coefficients of linearly dependent columns are undetermined, so their errors are set to
    # infinity. The pseudo-inverse gives finite errors for them.
    _, sizes, directions = np.linalg.svd(weighted, full_matrices=False)
    for size, direction in zip(sizes, directions, strict=True):
        if size <= _SINGULAR * sizes[0]:
            errors = np.where(np.abs(direction) > _SINGULAR, np.inf, errors)
    return found / scale, errors / scale


def _ratio(base: Sequence[float], column: int, anchor: int) -> float:
    return base[column] / base[anchor] if base[anchor] > 0.0 else 0.0


def _numeric() -> tuple[Any, Any]:
    try:
        import numpy
        from scipy.optimize import nnls  # type: ignore[import-untyped,unused-ignore]
    except ImportError as err:
        raise MissingExtra(
            f"a fit needs {err.name or 'numpy and scipy'}: pip install '.[lab]'"
        ) from None
    return numpy, nnls
