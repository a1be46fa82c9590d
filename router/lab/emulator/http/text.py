"""The emulator's tokenizer (four bytes are a token), and the text that it generates.

The length of every generated word, with the space or full stop that follows it, is a multiple of
four bytes. So generated text has the same tokens when a client sends it back in a later prompt, and
its cached KV blocks are used again.

The next token depends only on the text before it, as with a model at temperature 0. So the same
prompt gets the same answer from every emulated engine, whatever its name, load or history. A prompt
followed by the first k tokens of its answer gets exactly the rest of that answer.

An answer consists of whole sentences. A hash of all text before a sentence chooses the sentence.
Every sentence has a rank. After a sentence of rank r comes a sentence of rank r - 1; the answer
ends after a sentence of rank 0. So the last sentence of a text shows how much of the answer is
missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import NamedTuple

import xxhash

TOKEN_BYTES = 4


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Each word has 3 or 7 letters; the last word of a sentence has 6 letters.
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
_FIRST_WORD = b"The "
# Minimum and maximum number of sentences of an answer that no limit cuts.
_SHORTEST, _LONGEST = 4, 16
_PER_RANK = 32


def pad(data: bytes) -> bytes:
    """Pad with spaces to whole tokens."""
    return data + b" " * (-len(data) % TOKEN_BYTES)


def token_ids(data: bytes) -> tuple[int, ...]:
    """The token IDs of text that was padded to whole tokens."""
    return struct.unpack(f"<{len(data) // TOKEN_BYTES}I", data)


def from_token_ids(ids: Iterable[int]) -> bytes:
    """The text of these token IDs. An ID outside the vocabulary is replaced by an ID inside it."""
    return b"".join((i & 0xFFFFFFFF).to_bytes(TOKEN_BYTES, "little") for i in ids)


class _Story(NamedTuple):
    ranks: list[list[bytes]]  # the sentences of each rank
    rank_of: dict[bytes, int]
    longest: int  # length of the longest sentence in bytes


@cache
def _story() -> _Story:
    rng = Random(4)
    rank_of: dict[bytes, int] = {}
    ranks: list[list[bytes]] = [[] for _ in range(_LONGEST)]
    while len(rank_of) < _LONGEST * _PER_RANK:
        words = (
            "The",
            rng.choice(_ADJECTIVES),
            rng.choice(_NOUNS),
            rng.choice(_VERBS),
            "the",
            rng.choice(_ADJECTIVES),
            rng.choice(_ENDS),
        )
        sentence = " ".join(words).encode() + b". "
        if sentence not in rank_of:
            rank = len(rank_of) % _LONGEST
            rank_of[sentence] = rank
            ranks[rank].append(sentence)
    return _Story(ranks, rank_of, max(map(len, rank_of)))


def seed_of(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


class Answer(NamedTuple):
    output: bytes  # whole tokens
    ended: bool  # True: the answer ended with a sentence of rank 0, not at the limit


def answer(
    prompt: bytes, limit: int, at_least: int = 0, is_endless: bool = False, choice: int = 0
) -> Answer:
    """The answer to a prompt, or the rest of an answer that the prompt ends with.

    It has at most `limit` tokens and at least `at_least` tokens; `is_endless` means exactly `limit`
    tokens. Choices other than 0 are other answers to the same prompt. If a prompt contains the
    beginning of such an answer, choice 0 continues it differently.
    """
    story = _story()
    size = limit * TOKEN_BYTES
    least = size if is_endless else at_least * TOKEN_BYTES
    sentence, done = _open_sentence(prompt, choice)
    out = bytearray(sentence[done:])
    rank = story.rank_of.get(sentence, 0) if sentence else _rank_before(prompt, len(prompt))
    chain = xxhash.xxh3_64(prompt)
    chain.update(out)
    while len(out) < size:
        if rank == 0 and (out or sentence or _ends_whole(prompt)) and len(out) >= least:
            return Answer(bytes(out), True)
        following, rank = _choose(chain.intdigest() + choice, rank)
        out += following
        chain.update(following)
    ended = len(out) == size and rank == 0 and not is_endless and size >= least
    return Answer(bytes(out[:size]), ended)


def _choose(seed: int, rank: int) -> tuple[bytes, int]:
    """The sentence that follows a sentence of rank `rank`, and the following sentence's rank.

    After rank 0 a new answer begins.
    """
    seed = seed_of(seed.to_bytes(16, "little"))
    if rank:
        following = rank - 1
    else:
        following = _SHORTEST - 1 + (seed >> 32) % (_LONGEST - _SHORTEST + 1)
    return _story().ranks[following][seed % _PER_RANK], following


def _open_sentence(text: bytes, choice: int) -> tuple[bytes, int]:
    """The complete form of the unfinished sentence at the end of `text`, and the number of its
    bytes that `text` contains.

    The result is (b"", 0) if `text` does not end inside a known sentence.
    """
    end = len(text)
    floor = max(0, end - _story().longest)
    for at in range(end - TOKEN_BYTES, floor - 1, -TOKEN_BYTES):
        if text[at : at + TOKEN_BYTES] == _FIRST_WORD:
            seed = xxhash.xxh3_64_intdigest(memoryview(text)[:at]) + choice
            sentence, _ = _choose(seed, _rank_before(text, at))
            done = end - at
            is_open = done < len(sentence) and sentence.startswith(text[at:])
            return (sentence, done) if is_open else (b"", 0)
    return b"", 0


def _rank_before(text: bytes, end: int) -> int:
    """Rank of the complete sentence that ends at `end`; 0 if no known sentence ends there."""
    story = _story()
    floor = max(0, end - story.longest)
    for at in range(end - TOKEN_BYTES, floor - 1, -TOKEN_BYTES):
        if text[at : at + TOKEN_BYTES] == _FIRST_WORD:
            return story.rank_of.get(text[at:end], 0)
    return 0


def _ends_whole(text: bytes) -> bool:
    """Whether `text` ends with a complete known sentence."""
    at = text.rfind(_FIRST_WORD, max(0, len(text) - _story().longest))
    return at >= 0 and text[at:] in _story().rank_of


def block_hashes(data: bytes, block_size: int, seed: str = "") -> list[int]:
    """Chained hashes of the full blocks of a text; each hash also represents all text before it."""
    step = block_size * TOKEN_BYTES
    chain = xxhash.xxh3_64(seed.encode())
    hashes = []
    view = memoryview(data)
    for at in range(step, len(data) + 1, step):
        chain.update(view[at - step : at])
        hashes.append(chain.intdigest())
    return hashes
