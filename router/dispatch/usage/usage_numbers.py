"""Finds token counts anywhere in an answer by their names, while the answer is relayed.

`token_counts.py` searches for an object near the end, where most engines write their counts. This
module finds all other counts:

- counts before large members (vLLM writes `prompt_logprobs` after `usage`, TensorRT-LLM its
  `prompt_token_ids`),
- the native fields of SGLang (`meta_info`), Ollama (`eval_count`) and TGI (`details`).

A quote inside a JSON string is escaped, so generated text never looks like a member.

If a name occurs more than once, the largest number is used. So a client cannot lower a count by
making the model write an object that contains this name. In a list of answers (of SGLang, for a
list of prompts or from /vertex_generate), the numbers are added up.

The code is pure: bytes in, numbers out. The cost is linear in the bytes; at most `_CARRY` bytes are
kept.
"""

from __future__ import annotations

import re
from typing import Final

# Every searched name ends with one of these needles.
_NEEDLES: Final = (b'_tokens"', b'eval_count"', b'_n"')
_COUNT: Final = re.compile(
    rb'"(prompt_tokens|completion_tokens|cached_tokens|input_tokens|output_tokens'
    rb"|cache_read_input_tokens|cache_creation_input_tokens|generated_tokens"
    rb'|prompt_eval_count|eval_count|prompt_n|predicted_n|cache_n|total_tokens)"'
    rb'[ \t\r\n]{0,4}:[ \t\r\n]{0,4}"?([0-9]{1,14})(?:\.[0-9]{0,9})?"?[,}\] \t\r\n]'
)
# The possible beginnings of a list of answers.
_LISTS: Final = (b"[", b'{"predictions":[', b'{"predictions": [')
# Bytes at the beginning of an answer that show whether it is a list.
_BEGINNING: Final = max(map(len, _LISTS))
_CARRY: Final = 80  # Number of bytes kept from one piece for the next; no match is longer.
# Size of a large piece in bytes; in a smaller piece, several searches cost little.
_LARGE: Final = 4096
# Mean distance of underscores in bytes, below which another way to search is faster.
_APART: Final = 256


class Numbers:
    """The counts of one answer, which is passed in pieces."""

    __slots__ = ("_adds", "_carry", "_found", "_has_begun")

    def __init__(self) -> None:
        # Whether the numbers are added up, because the answer is a list of answers.
        self._adds = False
        self._has_begun = False
        self._carry = b""
        self._found: dict[bytes, int] = {}

    def feed(self, data: bytes) -> None:
        carry = self._carry
        # A large piece is not joined with the carried bytes, which would copy it.
        if carry and len(data) > _LARGE:
            across = carry + data[:_CARRY]
            if not self._has_begun:
                self._begin(across)
            self._count(across, len(carry))
            looked = data
        else:
            looked = carry + data if carry else data
            if not self._has_begun:
                self._begin(looked)
        end = self._count(looked, len(looked))
        self._carry = looked[max(end, len(looked) - _CARRY) :]

    def _begin(self, looked: bytes) -> None:
        first = looked[: 2 * _CARRY].lstrip()
        self._has_begun = len(first) >= _BEGINNING
        self._adds = first.startswith(_LISTS)

    def _count(self, looked: bytes, before: int) -> int:
        """Take the counts that begin before the index `before`.

        Returns the index at which the last count ends.
        """
        end = 0
        if not _may_count(looked):
            return end
        found = self._found
        for count in _COUNT.finditer(looked):
            if count.start() >= before:
                break
            name, value = count.group(1), int(count.group(2))
            had = found.get(name, 0)
            found[name] = had + value if self._adds else max(had, value)
            end = count.end()
            self._has_begun = True
        return end

    def get(self, name: bytes) -> int | None:
        """Return the count of that name; `None` if the answer has no such count."""
        return self._found.get(name)

    def most(self, *names: bytes) -> int | None:
        """Return the largest count of these names, which mean the same; `None`: no such count."""
        most: int | None = None
        for name in names:
            count = self._found.get(name)
            if count is not None and (most is None or count > most):
                most = count
        return most

    @property
    def is_of_one(self) -> bool:
        """Whether the counts belong to one answer, not to a list of answers."""
        return not self._adds


def _may_count(data: bytes) -> bool:
    """Whether one of the needles is in the data.

    A search for one byte is about thirty times as fast as one for several. Each needle contains an
    underscore, which is rare in large answers.
    """
    at = 0
    if len(data) > _LARGE:
        hops = 16  # Number of underscores that are examined before their mean distance is checked.
        while True:
            at = data.find(b"_", at)
            if at < 0:
                return False
            if data.startswith(_BEHIND, at) and _is_needle(data, at):
                return True
            at += 1
            hops -= 1
            if hops < 0 and at < -hops * _APART:
                break
    tokens, evals, numbers = _NEEDLES
    return data.find(tokens, at) >= 0 or data.find(evals, at) >= 0 or data.find(numbers, at) >= 0


# The parts of the needles from their last underscore on.
_BEHIND: Final = (b'_tokens"', b'_count"', b'_n"')


def _is_needle(data: bytes, at: int) -> bool:
    return not data.startswith(b"_count", at) or data.startswith(_NEEDLES[1], max(0, at - 4))
