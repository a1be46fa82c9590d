"""The two fits of an engine model: prefill (a, b, c) and decode (d0, d1, d2).

Must never: fit to fewer than `SAMPLES_MIN` samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from router.emulator.core.timing import Timing
from router.replay.calibration.fit import Fit, fit
from router.replay.calibration.samples import DecodeSample, PrefillSample

SAMPLES_MIN: Final = 30
_ROUNDS: Final = 3  # rounds of the decode fit, which needs the fitted constant time of a step
_B, _C, _D0 = 1, 2, 0  # columns; b and d0 are the anchors


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
    """Fit the prefill to streams that arrived at an idle replica. If these streams are too few, add
    streams that overlapped decoding sequences only.

    None: there are too few samples. Raises MissingExtra.
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
    # These streams wait for half a decode step on average, and then share one with the decoding
    # sequences. The fit cannot separate the constant time of these steps from that of the prefill.
    found = fit(
        [(1.0, s.tokens, s.squares, 1.5 * s.sequences, 1.5 * s.context) for s in samples],
        [s.seconds for s in samples],
        (*ratios, base.decode_sequence_s, base.decode_context_s),
        _B,
    )
    # The fitted constant covers one and a half steps; this is the constant of one step.
    most = found.values[0] / 1.5
    found = replace(found, values=(most, *found.values[1:3]), tied=(True, *found.tied[1:3]))
    return PrefillFit(found, False, counted)


def bounded(prefill: PrefillFit, samples: Sequence[PrefillSample], step_tokens: int) -> PrefillFit:
    """The fit with its quadratic term limited by the fastest of the longest prompts.

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
    """Fit the decode to streams' times per token.

    `timing`: has the fitted prefill, for steps with both prefill and decode. None: there are too
    few samples. Raises MissingExtra.
    """
    ratios = (base.decode_s, base.decode_sequence_s, base.decode_context_s)
    found: Fit | None = None
    d0 = timing.prefill_s
    for _ in range(_ROUNDS):
        # A step with both prefill and decode costs the larger of the two constants once.
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
    """The fit with the constant of a prefill step estimated from the decode fit.

    A fit to idle replicas is returned unchanged, because it determines the constant. Otherwise the
    constant is proportional to that of a decode step, because both read all weights once. It is
    limited by the fitted value.
    """
    if prefill.idle or decode is None or base.decode_s <= 0.0:
        return prefill
    most, b, c = prefill.fit.values
    a = min(most, decode.values[_D0] * base.prefill_s / base.decode_s)
    return replace(prefill, fit=replace(prefill.fit, values=(a, b, c)))


def with_prefill(base: Timing, prefill: Fit) -> Timing:
    """`base` with the fitted prefill and a decode that is scaled in proportion."""
    a, b, c = prefill.values
    scale = b / base.prefill_token_s if base.prefill_token_s > 0.0 else 1.0
    scaled = base.scaled(scale)
    return replace(scaled, prefill_s=a, prefill_token_s=b, prefill_square_s=c)


def with_decode(timing: Timing, decode: Fit) -> Timing:
    d0, d1, d2 = decode.values
    return replace(timing, decode_s=d0, decode_sequence_s=d1, decode_context_s=d2)


def scaled_to_decode(base: Timing, decode: Fit) -> Timing:
    """`base` scaled to the speed of the fitted decode."""
    d0 = decode.values[_D0]
    return base.scaled(d0 / base.decode_s) if base.decode_s > 0.0 else base


def _best(samples: Sequence[PrefillSample]) -> tuple[list[PrefillSample], bool]:
    """Enough samples with the engine's token counts, and True; otherwise all samples, and False.

    Samples without a duration are left out.
    """
    counted = [s for s in samples if s.counted and s.seconds > 0.0]
    if len(counted) >= SAMPLES_MIN:
        return counted, True
    return [s for s in samples if s.seconds > 0.0], False
