"""A robust, non-negative fit of times to what was done in them, that knows what it cannot tell.

time = sum of coefficient * amount, each coefficient >= 0. Errors are taken to be a share of the
time, as they are on real engines, so each sample is weighed by one over its fitted time. Outliers
(a stall, load the log does not show) lose weight as Huber has it (P. J. Huber, "Robust estimation
of a location parameter", Annals of Mathematical Statistics 35, 1964).

A coefficient whose standard error is too large a share of it, because the samples hardly differ in
its amount, is *tied*: it keeps the ratio to the anchor coefficient that it has in a given profile,
and the fit is repeated. One stays what it is if that ratio is more than two standard errors off, or
if it is surely next to nothing.

scipy and numpy are imported when a fit is asked for. Raises MissingExtra where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_ERROR_MAX: Final = 0.35  # standard error of a coefficient, as a share of it, from which it is tied
_NOTHING: Final = 0.03  # share of a usual time: what is surely below adds nothing
_HUBER: Final = 1.345  # standard deviations; 95 % as efficient as least squares on normal errors
_MAD: Final = 1.4826  # a normal distribution's standard deviation over its median deviation
_ROUNDS: Final = 12
_SINGULAR: Final = 1e-9  # of the largest singular value, rounding
_WEIGHT_MIN: Final = 1e-6


class MissingExtra(RuntimeError):
    """A package that fits need is not installed."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients, in the order of the columns, and how well they do."""

    values: tuple[float, ...]
    tied: tuple[bool, ...]
    samples: int
    r2: float  # share of the variance of the times that is explained
    error: float  # mean of |fitted - seen| / seen


def fit(
    rows: Sequence[Sequence[float]], times: Sequence[float], base: Sequence[float], anchor: int
) -> Fit:
    """Coefficients of the amounts in `rows` that give `times` (seconds, all above 0).

    `base` are a profile's coefficients, for ratios to that of the column `anchor`, which is never
    tied. Raises MissingExtra.
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
            if column == anchor or (value + 2.0 * error) * most[index] < _NOTHING * usual:
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
    """Coefficients and their standard errors."""
    scale = np.maximum(np.abs(x).max(axis=0), 1e-300)  # columns of like size: squares are huge
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
    # Columns that make each other up say nothing of themselves, which the pseudo-inverse hides.
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
            f"a fit needs {err.name or 'numpy and scipy'}: pip install '.[replay]'"
        ) from None
    return numpy, nnls
