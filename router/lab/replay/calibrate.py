"""Fits the engine model (`emulator/core/timing.py`) to a log: `hedgerow replay --calibrate`.

The engine model has two parts, which are fitted separately:

- Prefill: the time to first token depends on the number of computed prompt tokens. The fit uses
  streams that did not wait for another prefill.
- Decode: the time per output token depends on the number of decoding sequences and their total
  context.

Times are measured at the router, so they include the network, HTTP and the tokenizer.

If the log does not determine a coefficient, its ratio to a fitted coefficient is taken from a given
profile, and the report says so. Must never: return a number without its basis in the report.

`lines`: describes a calibration in sentences: the coefficients, their basis, and their limitations.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from router.lab.audit.residency import Progress, Reading, Row, Stay, stay_of, sweep
from router.lab.emulator.core.timing import PROFILES, Timing
from router.lab.replay.calibration.fit import (
    SAMPLES_MIN,
    Fit,
    PrefillFit,
    bounded,
    fit_decode,
    fit_prefill,
    scaled_to_decode,
    with_constant,
    with_decode,
    with_prefill,
)
from router.lab.replay.calibration.samples import DecodePass, PrefillPass

_NAMES: Final = {
    "prefill": ("per step", "per token", "per token squared"),
    "decode": ("per step", "per sequence", "per token of context"),
}
# The traffic that determines the coefficients of each part.
_NEEDED: Final = {
    "prefill": "streams that arrive at an idle replica, with prompts from about a hundred to many "
    "thousands of tokens",
    "decode": "streams that decode alone and together with many others, after short and long "
    "prompts",
}
# A replica counts as full if it had at least this share of the maximum number of sequences, or of
# context tokens, while requests waited. With less it was slow, not full.
_FULL: Final = 0.8
_POOR: Final = 0.25  # a fit with a larger mean error is reported as poor


def lines(
    timing: Timing,
    prefill: PrefillFit | None,
    decode: Fit | None,
    base: Timing,
    models: list[str],
    sequences: tuple[int, int],
    contexts: tuple[int, int],
) -> tuple[str, ...]:
    """Return the lines of the report.

    `sequences`, `contexts`: the maximum at one replica, and the maximum while a replica was full.
    """
    whose = f"the profile {profile}" if (profile := _profile(base)) else "the given profile"
    a, b, c = timing.prefill_s, timing.prefill_token_s, timing.prefill_square_s
    d0, d1, d2 = timing.decode_s, timing.decode_sequence_s, timing.decode_context_s
    found = [
        f"prefill: {_ms(a)} + {_ms(b)} per token + {_ms(c)} per token squared; "
        + (_quality(prefill.fit, _met(prefill)) if prefill else f"scaled from {whose}"),
        f"decode: {_ms(d0)} per step + {_ms(d1)} per sequence + {_ms(d2)} per token of context; "
        + (_quality(decode, "streams") if decode else f"scaled from {whose}"),
    ]
    for part, one in (("prefill", prefill.fit if prefill else None), ("decode", decode)):
        tied = (
            [n for n, is_tied in zip(_NAMES[part], one.tied, strict=True) if is_tied] if one else []
        )
        if tied:
            found.append(
                f"{part}: this log does not determine {' and '.join(tied)}; the values have the "
                f"ratios of {whose}, limited by the measured times; a log of {_NEEDED[part]} would "
                "determine them"
            )
        if one and one.error > _POOR:
            found.append(
                f"{part}: the mean error of {one.error:.0%} is large; does the log mix different "
                "machines or models, or was there load that is not in the log?"
            )
    if prefill and not prefill.counted:
        found.append(
            "prefill: this log has no counts of cached prompt tokens; if engines had cache hits, "
            "the time per token is too low"
        )
    if len(models) > 1:
        found.append(f"one engine model for {', '.join(models[:5])}{' ...' if models[5:] else ''}")
    most, full = sequences
    context, full_context = contexts
    if full >= _FULL * most > 0 or full_context >= _FULL * context > 0:
        found.append(
            f"a replica was full with {full:,} sequences and {full_context:,} tokens of context: "
            "one of these is about its max_num_seqs or its KV size"
        )
    elif most:
        found.append(
            f"no replica was full: max_num_seqs is at least {most:,}, the KV size at least "
            f"{context:,} tokens"
        )
    return tuple(found)


def _met(prefill: PrefillFit) -> str:
    if prefill.idle:
        return "streams that arrived at an idle replica"
    return "streams that overlapped decoding sequences only"


def _quality(fit: Fit, of: str) -> str:
    return f"{fit.samples:,} {of}, R² {fit.r2:.3f}, mean error {fit.error:.1%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _profile(base: Timing) -> str:
    return next((name for name, timing in PROFILES.items() if timing == base), "")


__all__ = ["Calibration", "CalibrationError", "calibrate"]

STEP_TOKENS: Final = 8192  # prompt tokens of one engine step, vLLM's max_num_batched_tokens
_BASE: Final = PROFILES["realistic"]


class CalibrationError(ValueError):
    """The log has too few samples for a fit."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted engine model, and the samples and measurements that it is based on.

    `prefill` or `decode` is None if the log had too few samples for this part.
    """

    timing: Timing
    prefill: Fit | None
    decode: Fit | None
    # The maximum number of decoding sequences at one replica, and of their context tokens.
    sequences_peak: int
    context_peak: int
    # The same maxima at a replica that was full: requests waited and none was prefilled. 0: no
    # replica was full.
    sequences_full: int
    context_full: int
    report: tuple[str, ...]  # sentences about the coefficients and their basis


def calibrate(
    *paths: str,
    base: Timing = _BASE,
    model: str | None = None,
    until: float | None = None,
    replicas: Container[str] | None = None,
    step_tokens: int = STEP_TOKENS,
    on_progress: Progress | None = None,
) -> Calibration:
    """Fit the engines' timing to an access log, or to the logs of several routers.

    - `base`: the profile for ratios of coefficients that the logs do not determine.
    - `model`, `replicas`: use only requests of this model, and those answered by these replicas.
    - `until`: use only requests that arrived before this time (seconds since 1970).
    - `step_tokens`: the prompt tokens of one engine step.

    Raises CalibrationError if neither part can be fitted, TraceError for a file that is not an
    access log, OSError, and MissingExtra without numpy and scipy.
    """

    latest = inf if until is None else until

    def is_wanted(row: Row) -> bool:
        return (
            row.ts < latest
            and (model is None or row.model == model)
            and (replicas is None or row.replica in replicas)
        )

    def stays_of(place: Callable[[Stay], None]) -> Callable[[Iterable[Row]], Iterator[Stay]]:
        def stays(rows: Iterable[Row]) -> Iterator[Stay]:
            for row in rows:
                stay = stay_of(row) if is_wanted(row) else None
                if stay is not None:
                    place(stay)
                    yield stay

        return stays

    def half(number: int) -> Progress | None:
        if on_progress is None:
            return None
        return lambda share: on_progress((number + share) / 2)

    first = PrefillPass()
    with Reading(paths, half(0)) as reading:
        for now, what, stay in sweep(reading.stays(stays_of(lambda _: None))):
            first.event(now, what, stay)
    prefill = fit_prefill(first.idle.kept, first.busy.kept, base, step_tokens)
    if prefill is not None:
        prefill = bounded(prefill, first.all.kept, step_tokens)
    known = base if prefill is None else with_prefill(base, prefill.fit)
    tpot_s = first.tpot.quantile(0.5) or 0.0

    def work_s(stay: Stay) -> float:
        return known.step_s(stay.uncached, stay.prompt**2 - stay.cached**2, 0, 0) - known.prefill_s

    def place(stay: Stay) -> None:
        stay.place(work_s(stay) + known.prefill_s * ceil(stay.uncached / step_tokens), tpot_s)

    second = DecodePass(work_s)
    with Reading(paths, half(1)) as reading:
        for now, what, stay in sweep(reading.stays(stays_of(place), first.longest_s)):
            second.event(now, what, stay)
    decode = fit_decode(second.samples.kept, known, base)
    if on_progress is not None:
        on_progress(1.0)
    if prefill is None and decode is None:
        raise CalibrationError(
            f"{', '.join(paths)}: too few samples to fit an engine model. Of {first.streams:,} "
            f"answered streams, {first.idle.seen + first.busy.seen:,} overlapped no other prefill, "
            f"and {second.samples.seen:,} have a count of output tokens and decoded mostly without "
            f"other prefills; {SAMPLES_MIN} of either kind are needed"
        )
    timing = base
    if prefill is not None:
        prefill = with_constant(prefill, decode, base)
        timing = with_prefill(base, prefill.fit)
    elif decode is not None:
        timing = scaled_to_decode(base, decode)
    if decode is not None:
        timing = with_decode(timing, decode)
    return Calibration(
        timing=timing,
        prefill=None if prefill is None else prefill.fit,
        decode=decode,
        sequences_peak=second.sequences_peak,
        context_peak=round(second.context_peak),
        sequences_full=second.full_sequences,
        context_full=round(second.full_context),
        report=lines(
            timing,
            prefill,
            decode,
            base,
            [name for name, _ in first.models.most_common()],
            (second.sequences_peak, second.full_sequences),
            (round(second.context_peak), round(second.full_context)),
        ),
    )
