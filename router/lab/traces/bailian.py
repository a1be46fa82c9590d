"""Reads Qwen-Bailian's traces: JSON lines with an arrival time, a chat ID and the ID of the
previous chat.

Source: Wang et al., "KVCache Cache in the Wild", USENIX ATC'25, and the published description of
the data: `chat_id`, `parent_chat_id` (-1: first turn of a conversation), `timestamp` (s),
`input_length`, `output_length`, `type`, `turn`, `hash_ids` (one per 16 tokens; the last one may
cover fewer).

The session ID of a conversation is its first `chat_id`. To find it, the reader remembers at least
the latest `PARENTS` chats, and at most twice as many. A turn whose parent is older counts as the
beginning of a conversation.
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
from router.lab.traces.mooncake import too_many

PARENTS: Final = 1 << 19
_NEEDED: Final = {"chat_id", "timestamp", "input_length", "output_length", "hash_ids"}
_ROOT: Final = -1


class _Row(msgspec.Struct, gc=False):
    chat_id: int
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]
    parent_chat_id: int = _ROOT


def matches(line: bytes) -> bool:
    return keys_of(line) >= _NEEDED


def read(lines: Lines, options: ReadOptions) -> Iterator[Arrival]:
    decode = msgspec.json.Decoder(_Row).decode
    size = options.block_tokens
    # Maps a chat ID to the first chat ID of its conversation. When `young` is full, it replaces
    # `old`, so that the memory is bounded.
    young: dict[int, int] = {}
    old: dict[int, int] = {}
    is_empty = True
    for line in lines:
        is_empty = False
        try:
            row = decode(line)
        except NOT_JSON as err:
            raise bad_json(lines, err) from None
        prompt, output = row.input_length, row.output_length
        if not 1 <= prompt <= TOKENS_MAX:
            raise bad_length(lines, "input_length", prompt, 1)
        if not 0 <= output <= TOKENS_MAX:
            raise bad_length(lines, "output_length", output, 0)
        ids = row.hash_ids
        if (len(ids) - 1) * size >= prompt:
            raise lines.error(too_many(len(ids), prompt, size))
        parent = row.parent_chat_id
        if parent == _ROOT:
            first = row.chat_id
        else:
            first = young[parent] if parent in young else old.get(parent, parent)
        if len(young) >= PARENTS:
            young, old = {}, young
        young[row.chat_id] = first
        yield Arrival(
            lines.number,
            row.timestamp,
            prompt,
            output,
            chained(ids[: prompt // size]),
            session=str(first),
        )
    if is_empty:
        raise lines.error("empty file")


BAILIAN: Final = Format(
    name="bailian",
    description="JSON lines with chat_id, timestamp, input_length, output_length and hash_ids",
    matches=matches,
    read=read,
    block_tokens=16,
)
