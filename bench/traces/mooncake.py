"""Reads Mooncake's traces: JSON lines with a time in ms, two lengths and the IDs of the prompt's
blocks.

Source: Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST'25, and the format
of its published traces: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (one per 512
tokens of the prompt; the last one may stand for a partial block, which is never shared).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.lab.simulator.traffic import Arrival
from router.lab.traces.hedgerow import ODD
from router.lab.traces.lines import TOKENS_MAX, Lines, bad_json, bad_length

BLOCK_TOKENS: Final = 512
_64: Final = (1 << 64) - 1


class _Row(msgspec.Struct, gc=False):
    timestamp: float  # arrival in milliseconds
    input_length: int
    output_length: int
    hash_ids: list[int]


def read(lines: Lines) -> Iterator[Arrival]:
    decode = msgspec.json.Decoder(_Row).decode
    for line in lines:
        try:
            row = decode(line)
        except NOT_JSON as err:
            raise bad_json(lines, err) from None
        prompt, output = row.input_length, row.output_length
        if not 1 <= prompt <= TOKENS_MAX:
            raise bad_length(lines, "input_length", prompt, 1)
        if not 0 <= output <= TOKENS_MAX:
            raise bad_length(lines, "output_length", output, 0)
        blocks = chained(row.hash_ids[: prompt // BLOCK_TOKENS])
        yield Arrival(lines.number, row.timestamp / 1000.0, prompt, output, blocks)


def chained(ids: Sequence[int]) -> tuple[int, ...]:
    """Return one 64-bit hash per ID. Each hash depends on its own ID and on all IDs before it.

    The prefix index selects a shard by the highest bits, in which the IDs 0, 1, 2, ... do not
    differ. The common prefix of two prompts has as many hashes as IDs. The hashes are the same in
    every process.
    """
    hashes: list[int] = []
    before = 0
    for one in ids:
        mixed = ((before ^ one) + 1) * ODD & _64
        before = mixed ^ mixed >> 32
        hashes.append(before)
    return tuple(hashes)
