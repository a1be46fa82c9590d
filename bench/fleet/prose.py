"""Generates text of a given length with little CPU. Two texts differ from the first word on."""

from __future__ import annotations

from random import Random

from bench.fleet.script import TOKEN_BYTES
from router.lab.overhead.shapes import filler

_PAGE = filler(1 << 18)


def text(rng: Random, tokens: int, title: str) -> str:
    """Return `tokens` tokens of text that begins with `title`. Different titles share no prefix.

    Two texts with the same `title` may still differ after the title.
    """
    size = tokens * TOKEN_BYTES
    start = rng.randrange(len(_PAGE) - size) if size < len(_PAGE) else 0
    return f"{title}: {_PAGE[start : start + size]}"[:size]
