"""Encodes KV events as msgpack maps, as published by vLLM since 0.24 and SGLang since 0.5.20.

A payload is `[timestamp, events, data-parallel rank]`. The order of the fields, and the set of
fields that are sent even when they are null, are as recorded from vLLM 0.32.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from router.lab.emulator.core.kv_events import Cleared, KvEvent, Removed, Stored

_RANK = 0


class _Stored(msgspec.Struct, tag_field="type", tag="BlockStored"):
    block_hashes: Sequence[int]
    parent_block_hash: int | None
    token_ids: Sequence[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class _VllmStored(_Stored, tag_field="type", tag="BlockStored"):
    extra_keys: list[list[str] | None]
    group_idx: int = 0
    kv_cache_spec_kind: str = "full_attention"


class _SglangStored(_Stored, tag_field="type", tag="BlockStored", omit_defaults=True):
    cache_salt: str | None = None


class _Removed(msgspec.Struct, tag_field="type", tag="BlockRemoved"):
    block_hashes: Sequence[int]
    medium: str = "GPU"


class _VllmRemoved(_Removed, tag_field="type", tag="BlockRemoved"):
    group_idx: int = 0


class _Cleared(msgspec.Struct, tag_field="type", tag="AllBlocksCleared"):
    pass


_encode = msgspec.msgpack.Encoder().encode


def vllm_payload(events: Sequence[KvEvent], timestamp: float) -> bytes:
    """The payload that vLLM sends: hashes are unsigned 64-bit numbers, and blocks that are stored
    together are one event.
    """
    return _encode([timestamp, [_vllm(event) for event in events], _RANK])


def sglang_payload(events: Sequence[KvEvent], timestamp: float) -> bytes:
    """The payload that SGLang sends: hashes are signed 64-bit numbers, and a block is an event."""
    told: list[msgspec.Struct] = []
    for event in events:
        told += _sglang(event)
    return _encode([timestamp, told, _RANK])


def _vllm(event: KvEvent) -> msgspec.Struct:
    if isinstance(event, Stored):
        extra: list[list[str] | None] = [None] * len(event.hashes)
        if event.salt is not None:
            extra[0] = [event.salt]
        return _VllmStored(
            block_hashes=event.hashes,
            parent_block_hash=event.parent,
            token_ids=event.tokens,
            block_size=event.block_size,
            lora_id=None,
            medium="GPU",
            lora_name=None,
            extra_keys=extra,
        )
    if isinstance(event, Removed):
        return _VllmRemoved([event.hash])
    return _Cleared()


def _sglang(event: KvEvent) -> list[msgspec.Struct]:
    if isinstance(event, Removed):
        return [_Removed([_signed(event.hash)])]
    if isinstance(event, Cleared):
        return [_Cleared()]
    told: list[msgspec.Struct] = []
    parent = None if event.parent is None else _signed(event.parent)
    size = event.block_size
    for index, value in enumerate(event.hashes):
        signed = _signed(value)
        told.append(
            _SglangStored(
                block_hashes=[signed],
                parent_block_hash=parent,
                token_ids=event.tokens[index * size : (index + 1) * size],
                block_size=size,
                lora_id=None,
                medium="GPU",
                lora_name=None,
                cache_salt=event.salt if index == 0 else None,
            )
        )
        parent = signed
    return told


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
