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

`PrefillFit`: fits the two parts of an engine model: prefill (coefficients a, b, c) and decode (d0,
d1, d2).

Must never: fit to fewer than `SAMPLES_MIN` samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from router.lab.emulator.core.timing import Timing
from router.lab.extras import MissingExtra
from router.lab.replay.calibration.samples import DecodeSample, PrefillSample

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


SAMPLES_MIN: Final = 30
# Maximum rounds of the decode fit; each uses the constant time of a step from the last.
_SWEEPS: Final = 3
_B, _C, _D0 = 1, 2, 0  # columns of the coefficients b, c and d0; b and d0 are the anchors


@dataclass(frozen=True, slots=True)
class PrefillFit:
    fit: Fit  # the coefficients a, b, c
    idle: bool  # the samples are streams that arrived at an idle replica
    counted: bool  # the engine reported prompt tokens and cached tokens of all samples


def fit_prefill(
    idle: Sequence[PrefillSample],
    busy: Sequence[PrefillSample],
    base: Timing,
    step_tokens: int,
) -> PrefillFit | None:
    """Fit the prefill to streams that arrived at an idle replica.

    If there are too few of these streams, streams that overlapped only decoding sequences are
    added. Returns None if there are still too few samples. Raises MissingExtra.
    """
    ratios = (base.prefill_s, base.prefill_token_s, base.prefill_square_s)
    samples, counted = _best(idle)
    if len(samples) >= SAMPLES_MIN:
        rows = [(ceil(s.tokens / step_tokens), s.tokens, s.squares) for s in samples]
        found = fit(rows, [s.seconds for s in samples], ratios, _B)
        return PrefillFit(found, True, counted)
    samples, counted = _best([*idle, *busy])
    if len(samples) < SAMPLES_MIN:
        return None
    # A stream at a busy replica waits for half a decode step on average, and then shares one step
    # with the decoding sequences. The fit cannot separate the constant time of these steps from
    # that of the prefill.
    found = fit(
        [(1.0, s.tokens, s.squares, 1.5 * s.sequences, 1.5 * s.context) for s in samples],
        [s.seconds for s in samples],
        (*ratios, base.decode_sequence_s, base.decode_context_s),
        _B,
    )
    # The fitted constant covers one and a half steps; `most` is the constant time of one step.
    most = found.values[0] / 1.5
    found = replace(found, values=(most, *found.values[1:3]), tied=(True, *found.tied[1:3]))
    return PrefillFit(found, False, counted)


def bounded(prefill: PrefillFit, samples: Sequence[PrefillSample], step_tokens: int) -> PrefillFit:
    """Return the fit with its quadratic term limited by the fastest of the longest prompts.

    A tied quadratic term comes from a profile and may be too large for prompts that are longer than
    the samples of the fit. Other load only makes prefills slower, so any sample gives a limit.
    """
    a, b, c = prefill.fit.values
    longest = sorted(samples, key=lambda s: -s.squares)[: max(len(samples) // 10, SAMPLES_MIN)]
    if not prefill.fit.tied[_C] or len(longest) < SAMPLES_MIN:
        return prefill
    rest = sorted(
        (s.seconds - a * ceil(s.tokens / step_tokens) - b * s.tokens) / s.squares for s in longest
    )
    most = max(rest[len(rest) // 20], 0.0)
    return replace(prefill, fit=replace(prefill.fit, values=(a, b, min(c, most))))


def fit_decode(samples: Sequence[DecodeSample], timing: Timing, base: Timing) -> Fit | None:
    """Fit the decode coefficients to the streams' times per token.

    `timing`: has the fitted prefill, for steps with both prefill and decode. Returns None if there
    are too few samples. Raises MissingExtra.
    """
    ratios = (base.decode_s, base.decode_sequence_s, base.decode_context_s)
    found: Fit | None = None
    d0 = timing.prefill_s
    for _ in range(_SWEEPS):
        # A step with both prefill and decode has only the larger of the two constant times.
        more = max(timing.prefill_s - d0, 0.0)
        rows, times = [], []
        for s in samples:
            seconds = s.seconds - s.prefill_s - more * s.prefills
            if seconds > 0.0:
                rows.append((1.0, s.sequences, s.context))
                times.append(seconds / s.steps)
        if len(rows) < SAMPLES_MIN:
            return None
        found = fit(rows, times, ratios, _D0)
        if d0 == found.values[_D0] or timing.prefill_s <= min(d0, found.values[_D0]):
            break
        d0 = found.values[_D0]
    return found


def with_constant(prefill: PrefillFit, decode: Fit | None, base: Timing) -> PrefillFit:
    """Return the fit with the constant time of a prefill step estimated from the decode fit.

    A fit to idle replicas is returned unchanged, because it determines the constant. Otherwise the
    constant is proportional to that of a decode step, because a step of either kind reads all
    weights once. The constant is at most the fitted value.
    """
    if prefill.idle or decode is None or base.decode_s <= 0.0:
        return prefill
    most, b, c = prefill.fit.values
    a = min(most, decode.values[_D0] * base.prefill_s / base.decode_s)
    return replace(prefill, fit=replace(prefill.fit, values=(a, b, c)))


def with_prefill(base: Timing, prefill: Fit) -> Timing:
    """Return `base` with the fitted prefill, and with the decode scaled by the ratio of the times
    per prompt token.
    """
    a, b, c = prefill.values
    scale = b / base.prefill_token_s if base.prefill_token_s > 0.0 else 1.0
    scaled = base.scaled(scale)
    return replace(scaled, prefill_s=a, prefill_token_s=b, prefill_square_s=c)


def with_decode(timing: Timing, decode: Fit) -> Timing:
    d0, d1, d2 = decode.values
    return replace(timing, decode_s=d0, decode_sequence_s=d1, decode_context_s=d2)


def scaled_to_decode(base: Timing, decode: Fit) -> Timing:
    """Return `base` scaled to the speed of the fitted decode."""
    d0 = decode.values[_D0]
    return base.scaled(d0 / base.decode_s) if base.decode_s > 0.0 else base


def _best(samples: Sequence[PrefillSample]) -> tuple[list[PrefillSample], bool]:
    """Return the samples with the engine's token counts and True, if they are enough.

    Otherwise return all samples and False. Samples without a duration are left out.
    """
    counted = [s for s in samples if s.counted and s.seconds > 0.0]
    if len(counted) >= SAMPLES_MIN:
        return counted, True
    return [s for s in samples if s.seconds > 0.0], False
