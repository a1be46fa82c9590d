"""Tokens and words: a tokenizer of four bytes a token, and readable text made of whole tokens.

Every word here, with the space or full stop that follows it, is a multiple of four bytes long. So
text that was generated counts, when it comes back in a later prompt, exactly the tokens that were
generated, and its KV blocks are hit again.

Generation is a function of the prompt alone: the same prompt gets the same answer from every
emulated engine, whatever its name, its load or its past.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from random import Random

import xxhash

TOKEN_BYTES = 4


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Each 3 or 7 letters long; a sentence's last word 6.
_ADJECTIVES = _words(
    "ancient distant crimson patient curious shining careful hopeful playful mottled "
    "old red shy wet dry big sly odd new"
)
_NOUNS = _words(
    "lantern sparrow captain painter compass dolphin panther weather "
    "fox owl cat sea ant bee elk hen jay ram"
)
_VERBS = _words("watches follows carries touches answers crosses gathers forgets saw met hid fed")
_ENDS = _words(
    "meadow harbor window garden valley bridge island forest orchid planet mirror candle temple "
    "desert canyon stream"
)
_SENTENCES = 512
_SHORTEST, _LONGEST = 4, 16  # sentences of an answer that nobody cuts short


def pad(data: bytes) -> bytes:
    """Filled with spaces to whole tokens."""
    return data + b" " * (-len(data) % TOKEN_BYTES)


def token_ids(data: bytes) -> list[int]:
    """The tokens of padded text, as numbers."""
    return [
        int.from_bytes(data[at : at + TOKEN_BYTES], "little")
        for at in range(0, len(data), TOKEN_BYTES)
    ]


def from_token_ids(ids: Iterable[int]) -> bytes:
    """Text of these tokens; a number that no token has is folded into one."""
    return b"".join((i & 0xFFFFFFFF).to_bytes(TOKEN_BYTES, "little") for i in ids)


@cache
def _story() -> tuple[bytes, list[int]]:
    """An endless text's one period, and where its sentences start, in tokens."""
    rng = Random(4)
    text = bytearray()
    starts = []
    for _ in range(_SENTENCES):
        starts.append(len(text) // TOKEN_BYTES)
        words = (
            "The",
            rng.choice(_ADJECTIVES),
            rng.choice(_NOUNS),
            rng.choice(_VERBS),
            "the",
            rng.choice(_ADJECTIVES),
            rng.choice(_ENDS),
        )
        text += " ".join(words).encode() + b". "
    return bytes(text), starts


def seed_of(prompt: bytes) -> int:
    return xxhash.xxh3_64_intdigest(prompt)


def natural_tokens(seed: int, at_least: int = 0) -> int:
    """How long the answer to this prompt would be if nothing cut it: whole sentences."""
    text, starts = _story()
    period = len(text) // TOKEN_BYTES
    first = seed % len(starts)
    wanted = _SHORTEST + (seed >> 32) % (_LONGEST - _SHORTEST + 1)
    last = first + wanted

    def start(index: int) -> int:
        turns, rest = divmod(index, len(starts))
        return turns * period + starts[rest]

    begin = start(first)
    if start(last) - begin < at_least:
        turns, rest = divmod(begin + at_least, period)
        last = turns * len(starts) + bisect_left(starts, rest)
    return start(last) - begin


def generate(seed: int, tokens: int) -> bytes:
    """The first `tokens` tokens of the answer."""
    text, starts = _story()
    begin = starts[seed % len(starts)] * TOKEN_BYTES
    size = tokens * TOKEN_BYTES
    out = text[begin : begin + size]
    while len(out) < size:
        out += text[: size - len(out)]
    return out


def block_hashes(data: bytes, block_size: int, seed: str = "") -> list[int]:
    """Chained hashes of the full blocks of this text; each stands for everything before it too."""
    step = block_size * TOKEN_BYTES
    chain = xxhash.xxh3_64(seed.encode())
    hashes = []
    view = memoryview(data)
    for at in range(step, len(data) + 1, step):
        chain.update(view[at - step : at])
        hashes.append(chain.intdigest())
    return hashes
