"""Fits the engine model (`emulator/core/timing.py`) to a log: `hedgerow replay --calibrate`.

Prefill: time to the first token over the tokens computed, of streams in whose way nothing was.
Decode: time per token over how many decoded together and how much context they had. Both are what
the router saw: network, HTTP and tokenizer are in them, as they are in what clients see.

What a log cannot tell keeps its ratio to what it can in a given profile, and the report says so.
Must never: give a number without saying what it rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from router.audit.reading import Progress, Reading
from router.audit.residency import Stay, stay_of
from router.audit.rows import Row
from router.audit.sweep import sweep
from router.emulator.core.timing import PROFILES, Timing
from router.replay.calibration.fit import Fit, MissingExtra
from router.replay.calibration.parts import (
    SAMPLES_MIN,
    fit_decode,
    fit_prefill,
    scaled_to_decode,
    with_constant,
    with_decode,
    with_prefill,
    within,
)
from router.replay.calibration.report import lines
from router.replay.calibration.samples import DecodePass, PrefillPass

__all__ = ["Calibration", "CalibrationError", "MissingExtra", "calibrate"]

STEP_TOKENS: Final = 8192  # prompt tokens of one step, vLLM's max_num_batched_tokens
_BASE: Final = PROFILES["realistic"]


class CalibrationError(ValueError):
    """A log that shows too little to fit anything to."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted model and what it rests on. None: that part could not be fitted at all."""

    timing: Timing
    prefill: Fit | None
    decode: Fit | None
    sequences_peak: int  # most that decoded at once at one replica
    context_peak: int  # ... and most tokens of context they had
    sequences_full: int  # ... while others waited and none was prefilled; 0: that never was
    context_full: int  # ... tokens of context then
    report: tuple[str, ...]  # for people


def calibrate(
    *paths: str,
    base: Timing = _BASE,
    model: str | None = None,
    until: float | None = None,
    replicas: Container[str] | None = None,
    step_tokens: int = STEP_TOKENS,
    on_progress: Progress | None = None,
) -> Calibration:
    """The timing of the engines behind a log, or behind the logs of several routers.

    `base`: whose ratios fill what the log cannot tell; `model`: only this one's requests; `until`:
    only of what arrived before (seconds since 1970); `replicas`: only what these answered.
    Raises CalibrationError if neither part can be fitted, TraceError for what is no access log,
    OSError, and MissingExtra without numpy and scipy.
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
            first.happens(now, what, stay)
    prefill = fit_prefill(first.idle.kept, first.busy.kept, base, step_tokens)
    if prefill is not None:
        prefill = within(prefill, first.everybody.kept, step_tokens)
    known = base if prefill is None else with_prefill(base, prefill.fit)
    pace_s = first.tpot.quantile(0.5) or 0.0

    def work_s(stay: Stay) -> float:
        return known.step_s(stay.uncached, stay.prompt**2 - stay.cached**2, 0, 0) - known.prefill_s

    def place(stay: Stay) -> None:
        stay.place(work_s(stay) + known.prefill_s * ceil(stay.uncached / step_tokens), pace_s)

    second = DecodePass(work_s)
    with Reading(paths, half(1)) as reading:
        for now, what, stay in sweep(reading.stays(stays_of(place), first.longest_s)):
            second.happens(now, what, stay)
    decode = fit_decode(second.samples.kept, known, base)
    if on_progress is not None:
        on_progress(1.0)
    if prefill is None and decode is None:
        raise CalibrationError(
            f"{', '.join(paths)}: too little to fit an engine model to: of {first.streams:,} "
            f"answered streams {first.idle.seen + first.busy.seen:,} met no other prefill and "
            f"{second.samples.seen:,} had output tokens counted and decoded mostly undisturbed; "
            f"{SAMPLES_MIN} of either are needed"
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
