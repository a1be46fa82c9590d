"""The messages of routers that share a fleet.

Each message has absolute values that only its sender writes, so a lost message does no lasting
harm: a later one replaces it. A message is at most `MOST_BYTES` long, and out of bounds if a router
could not have sent it: a program that writes anything else to the channel must not make a replica
look full.

Must never: contain a prompt, a credential, or a time of the sender's clock.
"""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

from policies.queueing.ticket import CLASSES
from router.core.unreadable import NOT_JSON

VERSION: Final = 3
MOST_BYTES: Final = 1024 * 1024
MOST_NAME: Final = 256  # characters of a name
MOST_ROWS: Final = 4096  # rows of one message
MOST_PLACEMENTS: Final = 1024  # of one message; each costs more time than a row
MOST_BLOCKS: Final = 24_000  # blocks of all placements of one message
MOST_LOAD: Final = 1_000_000  # requests of one row
MOST_ACCOUNTS: Final = 32  # accounts of one class that wait
MOST_CHARGE: Final = 1e12  # of one account, in tokens or whatever else the order policy charges
MOST_WEIGHT: Final = 1e6
MOST_AGE_MS: Final = 10 * 86_400_000
MOST_TOKENS: Final = 1_000_000_000  # tokens of one row
MOST_USES: Final = 1024  # rows of tenants of one message
MOST_USED: Final = 10**15  # requests or tokens of one tenant since its row began
MOST_ROUTERS: Final = 256
LOST_S: Final = 3.0  # seconds of silence until a router counts as gone


Served = tuple[float, float, float, float, float]  # by class


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


class Waits(msgspec.Struct, frozen=True, array_like=True):
    """The requests of one model and class that wait for a replica."""

    model: str
    urgency: int  # 0 critical to 4 batch
    age_ms: int  # of the oldest one
    # Their accounts and weights, those that were served least first; none if the order policy does
    # not share by account.
    accounts: tuple[tuple[str, float], ...]


class Charge(msgspec.Struct, frozen=True, array_like=True):
    """What an order policy has charged to an account, since this router began its row."""

    model: str  # a model of the queue
    urgency: int
    account: str
    weight: float
    generation: int  # of the row: another one begins at 0 again
    sum: float


class Queues(msgspec.Struct, frozen=True, array_like=True):
    """What a router tells of its queues; see `order.py`."""

    waits: tuple[Waits, ...] = ()  # all that waits
    charges: tuple[Charge, ...] = ()  # those that have changed, or all (`is_whole`)
    levels: tuple[tuple[str, float], ...] = ()  # by a model of each queue: its headroom, above 0
    # By a model of each queue: what each class was served here, in the unit of its pass
    # (`waiting/stride.py`), since the queue began.
    served: tuple[tuple[str, Served], ...] = ()


class Use(msgspec.Struct, frozen=True, array_like=True):
    """What a router has granted to one tenant since the row began; see `limits_told.py`."""

    tenant: str  # the name of its key
    generation: int  # the number of the message in which the row began
    requests: int  # not of class batch
    tokens: int  # of them, corrected when they end; may be negative
    all_requests: int  # of all classes
    all_tokens: int
    running: int  # requests at replicas now that are not of class batch
    batch: int  # batch requests at replicas now
    waiting: int  # requests that the limit of running ones blocks, without class batch
    waited_s: float  # the time that the oldest one of them has waited


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What one router tells all others."""

    version: int
    router: str  # the sender, unique for each of its lives
    number: int  # rises with each message
    rows: tuple[Row, ...]  # those that have changed, or all that are not zero (`is_whole`)
    is_whole: bool  # replicas without a row have no load of this router
    placements: tuple[Placement, ...]
    queues: Queues = Queues()
    uses: tuple[Use, ...] = ()  # those that have changed, or all


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
    rows, placements = message.rows, message.placements
    is_ours = message.version == VERSION and message.number >= 0
    if not is_ours or len(message.router) > MOST_NAME:
        return None
    if len(rows) > MOST_ROWS or len(placements) > MOST_PLACEMENTS:
        return None
    if not _are_queues(message.queues):
        return None
    if not all(map(_is_load, rows)) or not all(map(_is_placement, placements)):
        return None
    if sum(len(placement.blocks) for placement in placements) > MOST_BLOCKS:
        return None
    if len(message.uses) > MOST_USES or not all(_is_use(use, message) for use in message.uses):
        return None
    return message


def _is_load(row: Row) -> bool:
    return 0 <= row.waiting <= row.load <= MOST_LOAD and 0 <= row.tokens <= MOST_TOKENS


def _is_use(use: Use, message: Message) -> bool:
    used = (use.requests, use.tokens, use.all_requests, use.all_tokens)
    return (
        len(use.tenant) <= MOST_NAME
        and 0 <= use.generation <= message.number
        and -MOST_USED <= min(used) <= max(used) <= MOST_USED
        and 0 <= use.running <= MOST_LOAD
        and 0 <= use.batch <= MOST_LOAD
        and 0 <= use.waiting <= MOST_LOAD
        and 0.0 <= use.waited_s < inf  # not NaN
    )


def _is_placement(placement: Placement) -> bool:
    return 0 <= placement.held <= len(placement.blocks) and min(placement.blocks, default=0) >= 0


def _are_queues(queues: Queues) -> bool:
    return (
        max(map(len, (queues.waits, queues.charges, queues.levels, queues.served))) <= MOST_ROWS
        and all(map(_is_waiting, queues.waits))
        and all(map(_is_charge, queues.charges))
        and all(len(name) <= MOST_NAME and 0.0 < level <= 1.0 for name, level in queues.levels)
        and all(len(name) <= MOST_NAME and _are_sums(sums) for name, sums in queues.served)
    )


def _is_waiting(row: Waits) -> bool:
    return (
        0 <= row.urgency < CLASSES
        and 0 <= row.age_ms <= MOST_AGE_MS
        and len(row.model) <= MOST_NAME
        and len(row.accounts) <= MOST_ACCOUNTS
        and all(len(name) <= MOST_NAME and _is_weight(weight) for name, weight in row.accounts)
    )


def _is_charge(row: Charge) -> bool:
    return (
        0 <= row.urgency < CLASSES
        and max(len(row.model), len(row.account)) <= MOST_NAME
        and _is_weight(row.weight)
        and abs(row.sum) <= MOST_CHARGE
    )


def _are_sums(sums: tuple[float, ...]) -> bool:
    return all(0.0 <= value <= MOST_CHARGE for value in sums)


def _is_weight(weight: float) -> bool:
    return 1.0 / MOST_WEIGHT <= weight <= MOST_WEIGHT
