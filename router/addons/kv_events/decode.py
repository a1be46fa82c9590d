"""Decodes the messages of a KV event publisher into typed events. The functions are pure.

A message has the frames `[topic][seq: 8 bytes big-endian][msgpack]`; the msgpack payload is
`[ts, events, rank]`.
Events are positional arrays (vLLM up to 0.23, SGLang up to 0.5.18) or maps with `type` (later
versions). Versions add fields at the end, so unknown keys and further elements are ignored. Hashes
are unsigned (vLLM), signed (SGLang, vLLM up to 0.10) or bytes
(VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0). This module converts all hashes to unsigned 64-bit numbers,
which may only be compared for equality.

A publisher may send anything, and one byte of MessagePack can become an object of 64 bytes. So the
numbers of events, hashes and token IDs are limited, and the bytes of all other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from xxhash import xxh3_64_intdigest

from router.addons.kv_events.chains import pack

GPU: Final = "GPU"
END_OF_REPLAY: Final = (1 << 64) - 1  # the seq of the message that ends a replay: eight 0xff bytes
# Kinds of attention whose KV cache groups hold every token of a prompt. Groups of other kinds hold
# only a window of tokens, or a state, so they do not show which prefix is cached
# (vllm/v1/kv_cache_interface.py, KVCacheSpecKind).
FULL_KINDS: Final = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
# maximum number of events of one message; SGLang 0.5 sends an event for each page of tokens
EVENTS_MOST: Final = 65_536
TOKENS_MOST: Final = 1 << 20  # maximum token IDs of one event: a prompt of a million tokens
HASHES_MOST: Final = TOKENS_MOST // 16  # maximum hashes of one event: blocks of 16 tokens
_FIELDS_MOST: Final = 64  # maximum number of fields of a payload or a long event
_KEYS_BYTES: Final = 1024 * 1024  # maximum bytes of `extra_keys`
# maximum bytes of any other value, such as a name or a cache salt; a longer event is a long event
_SHORT_BYTES: Final = 64 * 1024
_MASK = (1 << 64) - 1
_MAX_BLOCK = 1 << 20  # maximum tokens of a block; real blocks have 1 to a few hundred


class BlockStored(msgspec.Struct, gc=False):
    """Consecutive blocks that a replica holds now."""

    hashes: list[int]
    # the engine's hash of the block before the first one; None: the prompt begins here
    parent: int | None
    # packed token IDs, `block_size` of them for each block; b"": the event has no token IDs (for
    # media other than the GPU)
    tokens: bytes
    block_size: int
    lora: str = ""
    salt: str = ""  # the cache salt of the whole prompt; only sent if `parent` is None
    medium: str = GPU
    # for each block: other data that separates caches, such as an image's hash, or b""
    extras: list[bytes] | None = None
    group: int | None = None
    full: bool | None = None  # whether the KV cache group has full attention; None: unknown

    def pieces(self, most: int) -> Iterator[BlockStored]:
        """Return the same blocks as events of at most `most` blocks, in the order to apply."""
        if len(self.hashes) <= most:
            yield self
            return
        step = self.block_size * 4
        for at in range(0, len(self.hashes), most):
            yield BlockStored(
                self.hashes[at : at + most],
                self.hashes[at - 1] if at else self.parent,
                self.tokens[at * step : (at + most) * step],
                self.block_size,
                self.lora,
                self.salt,
                self.medium,
                self.extras[at : at + most] if self.extras else None,
                self.group,
                self.full,
            )


class BlockRemoved(msgspec.Struct, gc=False):
    """Blocks that a replica does not hold any more."""

    hashes: list[int]
    medium: str = GPU
    group: int | None = None

    def pieces(self, most: int) -> Iterator[BlockRemoved]:
        """Return the same blocks as events of at most `most` blocks."""
        if len(self.hashes) <= most:
            yield self
            return
        for at in range(0, len(self.hashes), most):
            yield BlockRemoved(self.hashes[at : at + most], self.medium, self.group)


class AllBlocksCleared(msgspec.Struct, gc=False):
    """The replica's KV cache is now empty, on every medium."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class Message(msgspec.Struct, gc=False):
    """One message: its number, its payload, and a checksum that distinguishes two payloads."""

    seq: int
    payload: bytes
    mark: int


class Batch(msgspec.Struct, gc=False):
    events: list[Event]
    rank: int | None = None  # the data-parallel rank of the publisher
    garbage: int = 0  # number of events (or 1 for the whole payload) that could not be read
    unknown: int = 0  # number of events of an unknown type


def read_message(frames: Sequence[bytes]) -> Message | None:
    """Read the frames `[topic][seq][payload]`, or `[seq][payload]` of old replays; else `None`."""
    if len(frames) not in (2, 3):
        return None
    seq, payload = frames[-2], frames[-1]
    if len(seq) != 8:
        return None
    return Message(int.from_bytes(seq, "big"), payload, xxh3_64_intdigest(payload))


def read_replay(frames: Sequence[bytes]) -> Message | None:
    """Read a reply of a replay socket, as a ZMQ DEALER socket receives it: an empty frame, then a
    message.

    The number of frames shows the form: `["", seq, payload]` (vLLM up to 0.24, SGLang 0.5.21) or
    `["", topic, seq, payload]`. The last message of a replay has the seq END_OF_REPLAY.
    """
    if len(frames) not in (3, 4) or frames[0]:
        return None
    return read_message(frames[1:])


class Garbage(ValueError):
    """Raised for bytes that are not a valid message or event."""


_Fields = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=_FIELDS_MOST)]
_Named = Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=_FIELDS_MOST)]
_fields = msgspec.msgpack.Decoder(_Fields).decode
_events = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=EVENTS_MOST)]
).decode
_fields_of_event: Any = msgspec.msgpack.Decoder(_Fields | _Named).decode
_token_ids = msgspec.msgpack.Decoder(
    Annotated[list[int], msgspec.Meta(max_length=TOKENS_MOST)]
).decode
_block_hashes = msgspec.msgpack.Decoder(
    Annotated[list[int | bytes], msgspec.Meta(max_length=HASHES_MOST)]
).decode


def split(payload: bytes) -> tuple[list[msgspec.Raw], int | None]:
    """Return the events of a payload, each still undecoded, and the data-parallel rank of the
    payload.

    This call is cheap, so that a large payload can be decoded event by event. Raises Garbage, also
    if there are more than EVENTS_MOST events.
    """
    try:
        outer = _fields(payload)
        events = _events(outer[1])
        rank = _value(outer[2]) if len(outer) > 2 else None
    except _BAD as err:
        raise Garbage(str(err)) from None
    return events, _number(rank)


def read_event(raw: bytes | msgspec.Raw) -> Event | None:
    """Decode one event; `None`: its type is unknown. Raises Garbage."""
    try:
        short = len(raw) <= _SHORT_BYTES
        return _event(msgspec.msgpack.decode(raw) if short else _long_event(raw))
    except _BAD as err:
        raise Garbage(str(err)) from None


def decode(payload: bytes) -> Batch:
    """Decode all events of a payload."""
    batch = Batch([])
    try:
        raws, batch.rank = split(payload)
    except Garbage:
        batch.garbage = 1
        return batch
    for raw in raws:
        try:
            event = read_event(raw)
        except Garbage:
            batch.garbage += 1
            continue
        if event is None:
            batch.unknown += 1
        else:
            batch.events.append(event)
    return batch


_BAD = (
    *(ValueError, TypeError, OverflowError, LookupError, AttributeError, RecursionError),
    *(MemoryError, msgspec.MsgspecError),
)

# The order of the fields in the array form of an event (fields were only added at the end).
_STORED = (
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"),
    *("lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"),
)
_REMOVED = ("block_hashes", "medium", "group_idx")


def _value(raw: msgspec.Raw, most: int = _SHORT_BYTES) -> Any:
    """Decode a value of any type, of at most `most` bytes."""
    if len(raw) > most:
        raise ValueError("a value is too long")
    return msgspec.msgpack.decode(raw)


def _extra_keys(raw: msgspec.Raw) -> Any:
    return _value(raw, _KEYS_BYTES)


# How each field of a long event is decoded.
_DECODERS: Final[dict[str, Callable[[msgspec.Raw], Any]]] = {
    **dict.fromkeys(("type", *_STORED, *_REMOVED, "cache_salt", "locality"), _value),
    "block_hashes": _block_hashes,
    "token_ids": _token_ids,
    "extra_keys": _extra_keys,
}


def _long_event(raw: bytes | msgspec.Raw) -> Any:
    """Decode an event, each field within its limit. Unknown fields are left out."""
    values = _fields_of_event(raw)
    if isinstance(values, dict):
        return {name: _DECODERS[name](values[name]) for name in values.keys() & _DECODERS.keys()}
    kind = _value(values[0])
    names = _STORED if kind == "BlockStored" else _REMOVED
    fields = zip(names, values[1:], strict=False)
    return [kind, *[_DECODERS[name](value) for name, value in fields]]


def _event(raw: Any) -> Event | None:
    """Convert one event; `None`: its type is unknown. Raises one of the exceptions in _BAD."""
    if isinstance(raw, dict):
        kind, fields = raw["type"], raw
    elif isinstance(raw, list):
        kind = raw[0]
        names = _STORED if kind == "BlockStored" else _REMOVED
        fields = dict(zip(names, raw[1:], strict=False))
        last = fields.get("lora_name")
        if isinstance(last, dict):  # SGLang 0.5.18 has a map as the last element
            fields["lora_name"] = None
            fields["cache_salt"] = last.get("cache_salt")
    else:
        raise TypeError("neither a map nor an array")
    if kind == "BlockStored":
        return _stored(fields)
    if kind == "BlockRemoved":
        return BlockRemoved(_hashes(fields), _medium(fields), _number(fields.get("group_idx")))
    if kind == "AllBlocksCleared":
        return AllBlocksCleared()
    if isinstance(kind, str):
        return None
    raise TypeError("an event without a type")


def _stored(fields: dict[str, Any]) -> BlockStored:
    hashes = _hashes(fields)
    medium = _medium(fields)
    tokens = pack(fields["token_ids"])
    size = fields["block_size"]
    if tokens or medium == GPU:
        if type(size) is not int or not 0 < size <= _MAX_BLOCK:
            raise ValueError("no block size")
        if not hashes or len(tokens) != 4 * size * len(hashes):
            raise ValueError("the number of token IDs does not match the number of blocks")
    parent = fields.get("parent_block_hash")
    kind = fields.get("kv_cache_spec_kind")
    event = BlockStored(
        hashes,
        None if parent is None else _hash(parent),
        tokens,
        size if type(size) is int else 0,
        _lora(fields),
        _text(fields.get("cache_salt")),
        medium,
        None,
        _number(fields.get("group_idx")),
        None if kind is None else kind in FULL_KINDS,
    )
    extra_keys = fields.get("extra_keys")
    if extra_keys is not None:
        _read_extras(event, extra_keys)
    return event


def _hashes(fields: dict[str, Any]) -> list[int]:
    raw = fields["block_hashes"]
    if not isinstance(raw, list):
        raise TypeError("block_hashes is not a list")
    return [_hash(item) for item in raw]


def _hash(raw: Any) -> int:
    if type(raw) is int:
        return raw & _MASK
    if isinstance(raw, bytes):
        # the number that vLLM itself would send for this hash
        return int.from_bytes(raw[-8:], "big")
    raise TypeError("no block hash")


def _medium(fields: dict[str, Any]) -> str:
    medium = fields.get("medium")
    if medium is None:
        medium = GPU
    elif not isinstance(medium, str):
        raise TypeError("no medium")
    # vLLM 0.29+: a block that another machine holds is not a hit on this replica's GPU.
    return f"remote {medium}" if fields.get("locality") == "REMOTE" else medium


def _lora(fields: dict[str, Any]) -> str:
    name = fields.get("lora_name")
    if name is not None:
        return _text(name)
    # Engine versions without `lora_name` report only their own number of the adapter. That number
    # separates caches, but requests cannot be matched to it.
    number = fields.get("lora_id")
    return "" if number is None else f"\0{number}"


def _text(raw: Any) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise TypeError("no text")
    return raw


def _number(raw: Any) -> int | None:
    return raw if type(raw) is int else None


def _read_extras(event: BlockStored, raw: Any) -> None:
    """Store the cache salt and the other `extra_keys` in the event, without its adapter's name.

    `raw`: for each block, a list of keys or null. The keys have no tags. vLLM's order is: adapter,
    images, salt (first block only), embeddings.
    """
    if not isinstance(raw, list):
        raise TypeError("extra_keys is not a list")
    if not any(raw):
        return
    rest: list[bytes] = []
    for index, keys in enumerate(raw[: len(event.hashes)]):
        left = list(keys) if keys else []
        if event.lora and event.lora in left:
            left.remove(event.lora)
        if index == 0 and event.parent is None and not event.salt:
            salt = next((key for key in left if isinstance(key, str)), None)
            if salt is not None:
                left.remove(salt)
                event.salt = salt
        rest.append(msgspec.msgpack.encode(left) if left else b"")
    if any(rest):
        rest.extend([b""] * (len(event.hashes) - len(rest)))
        event.extras = rest
