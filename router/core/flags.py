"""Reads a decoded JSON value as a boolean, as the engines do.

vLLM, SGLang and TensorRT-LLM validate bodies with pydantic, which also accepts 0, 1 and some words
in any case (pydantic 2, "Conversion Table").

Must never: raise, whatever the value is.
"""

from __future__ import annotations

from typing import Final

_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "off", "f", "false", "n", "no"})


def flag_of(value: object) -> bool | None:
    """Return a value as a boolean; `None`: it is no boolean."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE else False if word in _FALSE else None
    if isinstance(value, (int, float)) and value in (0, 1):
        return value == 1
    return None
