"""Token counts that stand anywhere in an answer, found by their names while the answer passes.

`usage.py` looks where engines usually write their counts: in an object at the end. This module
finds the others: counts before large members (vLLM writes `prompt_logprobs` behind `usage`,
TensorRT-LLM its `prompt_token_ids`), and the native words of SGLang (`meta_info`), Ollama
(`eval_count`) and TGI (`details`).

A quote inside of a JSON string is escaped, so text never looks like a member.

A name may occur more than once: the largest number counts, so that an object which the client has
made the model write cannot lower it. In a list of answers (SGLang, for a list of prompts, and its
/vertex_generate) the numbers are added up.

Pure: bytes in, numbers out. The cost is linear in the bytes; at most `_CARRY` bytes are kept.
"""

from __future__ import annotations

import re
from typing import Final

# Every name that is looked for ends in one of these.
_NEEDLES: Final = (b'_tokens"', b'eval_count"', b'_n"')
_COUNT: Final = re.compile(
    rb'"(prompt_tokens|completion_tokens|cached_tokens|input_tokens|output_tokens'
    rb"|cache_read_input_tokens|cache_creation_input_tokens|generated_tokens"
    rb'|prompt_eval_count|eval_count|prompt_n|predicted_n|cache_n)"'
    rb"[ \t\r\n]{0,4}:[ \t\r\n]{0,4}([0-9]{1,14})[,}\] \t\r\n]"
)
_LISTS: Final = (b"[", b'{"predictions":[', b'{"predictions": [')  # how a list of answers begins
_BEGINNING: Final = max(map(len, _LISTS))  # bytes
_CARRY: Final = 64  # bytes; no match is longer


class Numbers:
    """The counts of one answer, given piece by piece."""

    __slots__ = ("_adds", "_carry", "_found", "_has_begun")

    def __init__(self) -> None:
        self._adds = False  # the answer is a list of answers
        self._has_begun = False
        self._carry = b""
        self._found: dict[bytes, int] = {}

    def feed(self, data: bytes) -> None:
        looked = self._carry + data if self._carry else data
        end = 0
        if not self._has_begun:
            first = looked[: 2 * _CARRY].lstrip()
            self._has_begun = len(first) >= _BEGINNING
            self._adds = first.startswith(_LISTS)
        if _NEEDLES[0] in looked or _NEEDLES[1] in looked or _NEEDLES[2] in looked:
            found = self._found
            for count in _COUNT.finditer(looked):
                name, value = count.group(1), int(count.group(2))
                had = found.get(name, 0)
                found[name] = had + value if self._adds else max(had, value)
                end = count.end()
                self._has_begun = True
        self._carry = looked[max(end, len(looked) - _CARRY) :]

    def get(self, name: bytes) -> int | None:
        """The count of that name; None: the answer tells none."""
        return self._found.get(name)

    def most(self, *names: bytes) -> int | None:
        """The largest of the counts of these names, which mean the same; None: there is none."""
        most: int | None = None
        for name in names:
            count = self._found.get(name)
            if count is not None and (most is None or count > most):
                most = count
        return most

    @property
    def is_of_one(self) -> bool:
        """Whether these are the counts of one answer, and not of a list of answers."""
        return not self._adds
