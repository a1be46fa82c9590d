"""Describes a calibration in sentences: the coefficients, their basis, and their limitations.

All functions are pure.
"""

from __future__ import annotations

from typing import Final

from router.lab.emulator.core.timing import PROFILES, Timing
from router.lab.replay.calibration.fit import Fit
from router.lab.replay.calibration.parts import PrefillFit

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
