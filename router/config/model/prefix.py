"""Declares the section `prefix`: what is remembered about prompts in KV caches."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import IS_SIZE, Count, Frozen, SecondsOrOff


class Prefix(Frozen, frozen=True):
    """What the router remembers about prompt prefixes in replicas' KV caches."""

    enabled: bool = True  # Hash prompt prefixes and remember which replica received them.
    # Size of the blocks into which a prompt is divided for hashing.
    block_bytes: Annotated[int, msgspec.Meta(ge=64, le=65536), IS_SIZE] = 512
    blocks: Count = 512  # Maximum number of blocks at the beginning of a prompt that are hashed.
    # Maximum number of remembered pairs of block and replica, with about 150 bytes of memory each.
    entries: Count = 1_000_000
    kv_tokens: Count = 500_000  # KV cache size in tokens of a replica that does not report it.
    # Use a remembered prefix only for requests of the same API key (or the same client address).
    isolate_tenants: bool = False
    # Use the engines' KV cache events and token IDs instead of estimates, where the events are
    # complete. This needs the optional packages `kv-events`.
    exact: bool = False
    tokenizers: dict[str, str] = {}  # For `exact`: each model's tokenizer folder or file.
    tokens_wait_s: SecondsOrOff = 0.02  # For `exact`: maximum wait for a prompt's token IDs.
