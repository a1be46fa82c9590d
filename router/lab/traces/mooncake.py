"""Reads Mooncake's traces: JSON lines with a time in ms, two lengths and the IDs of the prompt's
blocks.

Source: Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST'25, and the format
of its published traces: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (one per 512
tokens of the prompt; the last one may stand for a partial block, which is never shared).

NVIDIA Dynamo and AIPerf write the same format, with an additional `session_id`. Their rows may have
a `delay` after the end of another request instead of a time. Files with such rows are refused,
because their arrival times depend on the speed of the fleet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.lab.simulator.traffic import Arrival
from router.lab.traces.blocks import chained
from router.lab.traces.format import (
    TOKENS_MAX,
    Format,
    ReadOptions,
    bad_json,
    bad_length,
    keys_of,
)
from router.lab.traces.lines import Lines

_NEEDED: Final = {"timestamp", "input_length", "output_length"}


class _Row(msgspec.Struct, gc=False):
    input_length: int
    output_length: int
    timestamp: float | None = None  # arrival in milliseconds
    hash_ids: list[int] | None = None
    session_id: str | int | None = None


def matches(line: bytes) -> bool:
    keys = keys_of(line)
    return keys >= _NEEDED and "chat_id" not in keys


def read(lines: Lines, options: ReadOptions) -> Iterator[Arrival]:
    decode = msgspec.json.Decoder(_Row).decode
    size = options.block_tokens
    has_blocks: bool | None = None  # whether all rows have hash_ids; None: no row has been read
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
        if row.timestamp is None:
            raise lines.error(
                "missing timestamp (rows with a delay after another request are not supported)"
            )
        ids = row.hash_ids
        if (ids is not None) is not has_blocks:
            if has_blocks is not None:
                raise lines.error("only some rows have hash_ids; all rows or none must have them")
            has_blocks = ids is not None
        if ids is None:
            blocks: tuple[int, ...] = ()
        else:
            if (len(ids) - 1) * size >= prompt:
                raise lines.error(too_many(len(ids), prompt, size))
            blocks = chained(ids[: prompt // size])
        session = row.session_id
        yield Arrival(
            lines.number,
            row.timestamp / 1000.0,
            prompt,
            output,
            blocks,
            session=None if session is None else str(session),
        )
    if has_blocks is None:
        raise lines.error("empty file")


def too_many(count: int, prompt: int, size: int) -> str:
    """The error text for a prompt with more blocks than its tokens allow."""
    return (
        f"{count} hash_ids of {size} tokens are too many for a prompt of {prompt} tokens: "
        "should block_tokens be smaller?"
    )


MOONCAKE: Final = Format(
    name="mooncake",
    description="JSON lines with timestamp, input_length, output_length and hash_ids",
    matches=matches,
    read=read,
    block_tokens=512,
    grid_s=3.0,
)
