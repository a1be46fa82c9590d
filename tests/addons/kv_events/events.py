"""KV events as an engine publishes them, and prompts to look for."""

from typing import Any

import msgspec

from router.addons.kv_events.chains import TokenChains, pack


def stored(
    hashes: list[Any], tokens: list[int], *, parent: Any = None, size: int = 4, **more: Any
) -> dict[str, Any]:
    """A BlockStored event in the map form."""
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **more,
    }


def removed(hashes: list[Any], medium: str | None = "GPU", **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium, **more}


CLEARED = {"type": "AllBlocksCleared"}


def payload(*events: Any, rank: int | None = 0, ts: float = 1.5) -> bytes:
    return msgspec.msgpack.encode([ts, list(events), rank])


def prompt(*ids: int) -> TokenChains:
    """A prompt of these tokens and one more, because the last token is never a cache hit."""
    return TokenChains(pack([*ids, 0]))
