"""The messages of routers that share a fleet.

Each message has absolute values that only its sender writes, so a lost message does no lasting
harm: a later one replaces it. A message is at most `MOST_BYTES` long.

Must never: contain a prompt, a credential, or a time of the sender's clock.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON

VERSION: Final = 1
MOST_BYTES: Final = 256 * 1024
MOST_ROWS: Final = 4096  # rows and placements of one message
MOST_BLOCKS: Final = 4096  # blocks of one placement


class Row(msgspec.Struct, frozen=True, array_like=True):
    """The load that a router has at one replica; lower numbers than 0 are never sent."""

    replica: str
    load: int  # requests that use the GPU
    waiting: int  # those of them without content
    tokens: int  # uncached prompt tokens of those that wait


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """A prompt that was sent to a replica, as a chain of block hashes."""

    replica: str
    blocks: tuple[int, ...]
    held: int  # leading blocks that the replica held already


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What one router tells all others."""

    version: int
    router: str  # the sender, unique for each of its lives
    number: int  # rises with each message
    rows: tuple[Row, ...]  # those that have changed, or all that are not zero (`is_whole`)
    is_whole: bool  # replicas without a row have no load of this router
    placements: tuple[Placement, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encoded(message: Message) -> bytes:
    return _encoder.encode(message)


def decoded(data: bytes) -> Message | None:
    """The message; None: it is not from a router of this version, or out of bounds."""
    if len(data) > MOST_BYTES:
        return None
    try:
        message = _decoder.decode(data)
    except NOT_JSON:
        return None
    if message.version != VERSION or not message.number >= 0:
        return None
    if len(message.rows) > MOST_ROWS or len(message.placements) > MOST_ROWS:
        return None
    if any(min(row.load, row.waiting, row.tokens) < 0 for row in message.rows):
        return None
    if any(len(placement.blocks) > MOST_BLOCKS for placement in message.placements):
        return None
    return message
