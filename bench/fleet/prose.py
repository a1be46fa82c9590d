"""Generated text of a wanted length, cheap to make and different from its very first word."""

from __future__ import annotations

from random import Random

from bench.fleet.script import TOKEN_BYTES
from bench.overhead.shapes import filler

_PAGE = filler(1 << 18)


def text(rng: Random, tokens: int, title: str) -> str:
    """`tokens` tokens that begin with `title`: two titles share no prefix.

    Text without a title's number (`title` the same twice) may still differ behind it.
    """
    size = tokens * TOKEN_BYTES
    start = rng.randrange(len(_PAGE) - size) if size < len(_PAGE) else 0
    return f"{title}: {_PAGE[start : start + size]}"[:size]
