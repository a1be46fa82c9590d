"""KV events as bytes: the maps of a real vLLM, field for field, and SGLang's."""

import json
from typing import Any

import msgspec
import pytest

from router.lab.emulator.core.kv_events import Cleared, Removed, Stored
from router.lab.emulator.http.kv_wire import sglang_payload, vllm_payload
from tests.places import DATA

RECORDED = DATA / "vllm-0.32"


def recorded_payloads() -> list[bytes]:
    lines = (RECORDED / "kv_events.jsonl").read_text().splitlines()
    frames = [json.loads(line) for line in lines]
    frames.append(json.loads((RECORDED / "kv_event_removed.json").read_text()))
    return [bytes.fromhex(frame["payload_hex"]) for frame in frames]


def event_of(told: dict[str, Any]) -> Stored | Removed:
    if told["type"] == "BlockStored":
        return Stored(
            told["block_hashes"], told["parent_block_hash"], told["token_ids"], told["block_size"]
        )
    (value,) = told["block_hashes"]
    return Removed(value)


@pytest.mark.parametrize("payload", recorded_payloads())
def test_what_vllm_said_is_said_in_the_same_bytes(payload: bytes) -> None:
    timestamp, told, rank = msgspec.msgpack.decode(payload)
    assert rank == 0
    ours = vllm_payload([event_of(one) for one in told], timestamp)
    assert msgspec.msgpack.decode(ours) == [timestamp, told, rank]
    assert len(ours) == len(payload)


def test_a_salt_is_an_extra_key_of_the_first_block() -> None:
    payload = vllm_payload([Stored([1, 2], None, [1, 2, 3, 4], 2, "mine")], 1.5)
    assert msgspec.msgpack.decode(payload)[1][0]["extra_keys"] == [["mine"], None]


def test_a_cleared_cache_has_no_fields() -> None:
    for payload in (vllm_payload([Cleared()], 1.5), sglang_payload([Cleared()], 1.5)):
        assert msgspec.msgpack.decode(payload) == [1.5, [{"type": "AllBlocksCleared"}], 0]


def test_sglang_tells_blocks_one_by_one_with_signed_hashes() -> None:
    events = [Stored([2**63, 5], 2**64 - 1, [1, 2, 3, 4], 2, "mine"), Removed(2**63 + 1)]
    _, told, _ = msgspec.msgpack.decode(sglang_payload(events, 1.5))
    first, second, removed = told
    assert (first["block_hashes"], first["parent_block_hash"]) == ([-(2**63)], -1)
    assert (first["token_ids"], first["cache_salt"]) == ([1, 2], "mine")
    assert (second["block_hashes"], second["parent_block_hash"]) == ([5], -(2**63))
    assert (second["token_ids"], "cache_salt" in second) == ([3, 4], False)
    assert removed == {
        "type": "BlockRemoved",
        "block_hashes": [-(2**63) + 1],
        "medium": "GPU",
    }
