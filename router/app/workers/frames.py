"""The frames between the parent of workers and each worker.

A frame is its length, four bytes in network order, and a MessagePack value. The parent passes on
`Told`, `Ask` and `Answer` between workers; `Order` and `Present` are from the parent.

All processes of one parent run the same program, so frames have no version.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

HEADER_BYTES: Final = 4
MOST_BYTES: Final = 64 * 1024 * 1024
PARENT: Final = -1  # stands for the parent where a worker has its number

# The orders of the parent.
STOP: Final = "stop"  # drain; a second one stops at once
STOP_BY_HAND: Final = "stop by hand"  # the same after SIGINT
RELOAD: Final = "reload"
REOPEN: Final = "reopen"  # the access log
REPLACED: Final = "replaced"  # other processes serve; `names`: listeners that they do not use
FROZEN: Final = "frozen"  # another process has got the state of the fleet: refuse changes
THAWED: Final = "thawed"  # that process has failed, or gets changes now, too


class Told(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """A message of `router/share` to all workers, its sender included."""

    data: bytes


class Ask(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A question to all other workers. `asker` and `number` are repeated in the answers."""

    asker: int
    number: int
    what: str
    args: tuple[Any, ...]


class Answer(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """An answer. `problem`: why there is no value; "": there is one."""

    asker: int
    number: int
    value: Any
    problem: str


class Order(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """What a worker has to do, or what a worker wants the parent to order all workers."""

    what: str
    names: tuple[str, ...] = ()


class Present(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """How many other workers get a question now."""

    others: int


Frame = Told | Ask | Answer | Order | Present

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encoded(frame: Frame) -> bytes:
    data = _encoder.encode(frame)
    return len(data).to_bytes(HEADER_BYTES, "big") + data


def decoded(data: bytes | bytearray | memoryview) -> Frame:
    """Raises msgspec.MsgspecError."""
    return _decoder.decode(data)
