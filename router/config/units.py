"""Parses durations and sizes: `250ms`, `10m`, `1h30m`; `64KiB`, `1.5GiB`, `512MB`.

A duration without a unit is in seconds, and a size without a unit is in bytes. `decode` calls these
functions for settings whose type is a duration or a size.
"""

from __future__ import annotations

import re
from typing import Final

DURATION: Final = "duration"
SIZE: Final = "size"

_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_NUMBER: Final = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
_PART: Final = re.compile(rf"{_NUMBER} ?(ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_NUMBER} ?(?:ms|s|m|h|d) ?)+\Z")
_SIZE: Final = re.compile(rf"{_NUMBER} ?({'|'.join(_BYTES)})\Z")
_BARE: Final = re.compile(rf"{_NUMBER}\Z")


def seconds(text: str) -> float | None:
    """Return the seconds of a duration such as `1h30m`; `None` if the text is not a duration."""
    text = text.strip()
    if _BARE.match(text):
        return float(text)
    if not _DURATION.match(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size such as `64MiB`.

    Returns `None` if the text is not a size, or not a whole number of bytes.
    """
    text = text.strip()
    found = _SIZE.match(text)
    if found is not None:
        amount = float(found[1]) * _BYTES[found[2]]
    elif _BARE.match(text):
        amount = float(text)
    else:
        return None
    return int(amount) if amount == int(amount) else None


def duration_text(amount_s: float) -> str:
    """Formats a duration in the largest unit that gives a whole number: `10m` for 600.0 seconds."""
    if amount_s == 0.0:
        return "0s"
    for unit in ("d", "h", "m", "s"):
        count = amount_s / _SECONDS[unit]
        if count == int(count):
            return f"{int(count)}{unit}"
    count = amount_s * 1000.0
    return f"{count:.15g}ms" if amount_s < 1.0 else f"{amount_s:.15g}s"


def size_text(amount: int) -> str:
    """Formats a size in the largest binary unit that gives a whole number: `64KiB` for 65536."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if amount and amount % _BYTES[unit] == 0:
            return f"{amount // _BYTES[unit]}{unit}"
    return f"{amount}B"


def amount_text(amount: float, unit: str | None) -> str:
    """Formats a number in its unit: DURATION, SIZE, or None for a number without a unit."""
    if unit == DURATION:
        return duration_text(amount)
    if unit == SIZE:
        return size_text(int(amount))
    return f"{amount:.15g}"
