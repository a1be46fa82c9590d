"""Fits the two parts of an engine model: prefill (coefficients a, b, c) and decode (d0, d1, d2).

Must never: fit to fewer than `SAMPLES_MIN` samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from router.lab.emulator.core.timing import Timing
from router.lab.replay.calibration.fit import Fit, fit
from router.lab.replay.calibration.samples import DecodeSample, PrefillSample

SAMPLES_MIN: Final = 30
# Maximum rounds of the decode fit; each uses the constant time of a step from the last.
_ROUNDS: Final = 3
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
    for _ in range(_ROUNDS):
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
