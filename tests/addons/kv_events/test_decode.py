"""Payloads of every version of vLLM and SGLang, recorded ones, and invalid ones."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.addons.kv_events.chains import pack
from router.addons.kv_events.decode import (
    END_OF_REPLAY,
    EVENTS_MOST,
    HASHES_MOST,
    TOKENS_MOST,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    decode,
    read_message,
    read_replay,
)
from tests.addons.kv_events.events import CLEARED, payload, removed, stored
from tests.places import DATA

DATA = DATA / "kv_events"
BIG = 2**63 + 5


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def only(raw: Any) -> Any:
    batch = decode(payload(raw))
    assert (batch.garbage, batch.unknown) == (0, 0)
    (event,) = batch.events
    return event


IDS = list(range(1, 9))


@pytest.mark.parametrize(
    ("raw", "more"),
    [
        pytest.param([], {}, id="vllm 0.9"),
        pytest.param(["GPU"], {}, id="vllm 0.11"),
        pytest.param(["CPU"], {"medium": "CPU"}, id="vllm 0.11, another medium"),
        pytest.param(["GPU", None, [None, None]], {}, id="vllm 0.18"),
        pytest.param(["GPU", "ad", [["ad"], ["ad"]]], {"lora": "ad"}, id="vllm 0.18, adapter"),
        pytest.param(["GPU", None, [["s"], None]], {"salt": "s"}, id="vllm 0.18, salt"),
        pytest.param(
            ["GPU", "ad", [["ad", "s"], ["ad"]]], {"lora": "ad", "salt": "s"}, id="vllm 0.18, both"
        ),
        pytest.param(["GPU", None, None, 2], {"group": 2}, id="vllm 0.19"),
        pytest.param(
            ["GPU", None, None, 0, "full_attention", None],
            {"group": 0, "full": True},
            id="vllm 0.23",
        ),
        pytest.param(
            ["GPU", None, None, 1, "sliding_window", 512, "further", {}],
            {"group": 1, "full": False},
            id="vllm of the future",
        ),
        pytest.param(["GPU", {"cache_salt": "s"}], {"salt": "s"}, id="sglang 0.5.18, salt"),
        pytest.param(["CPU_PINNED"], {"medium": "CPU_PINNED"}, id="sglang, host memory"),
    ],
)
def test_arrays_of_every_generation(raw: list[Any], more: dict[str, Any]) -> None:
    event = only(["BlockStored", [11, BIG], None, IDS, 4, None, *raw])
    assert event == BlockStored([11, BIG], None, pack(IDS), 4, **more)


@pytest.mark.parametrize(
    ("raw", "more"),
    [
        pytest.param({}, {}, id="vllm 0.24, defaults left out"),
        pytest.param({"kv_cache_spec_kind": "mla_attention"}, {"full": True}, id="mla"),
        pytest.param({"kv_cache_spec_kind": "mamba", "group_idx": 1}, {"full": False, "group": 1}),
        pytest.param({"locality": "LOCAL", "session_id": "x"}, {}, id="vllm 0.29"),
        pytest.param({"locality": "REMOTE"}, {"medium": "remote GPU"}, id="held elsewhere"),
        pytest.param({"cache_salt": "s", "session_id": None}, {"salt": "s"}, id="sglang 0.5.20"),
        pytest.param({"lora_id": 3}, {"lora": "\0003"}, id="an adapter's number only"),
    ],
)
def test_maps(raw: dict[str, Any], more: dict[str, Any]) -> None:
    event = {"block_size": 4, "token_ids": IDS, "block_hashes": [1, 2], **raw}
    assert only({**event, "type": "BlockStored"}) == BlockStored([1, 2], None, pack(IDS), 4, **more)


def test_hashes_of_every_kind_are_one_kind() -> None:
    digest = bytes(range(24)) + BIG.to_bytes(8)
    event = only(stored([BIG, BIG - 2**64, digest], [*IDS, *IDS[:4]], parent=digest[16:]))
    assert event.hashes == [BIG] * 3  # vLLM's number is the end of its digest
    assert event.parent == BIG


@pytest.mark.parametrize("raw", [["BlockRemoved", [9, 10]], ["BlockRemoved", [9, 10], "GPU", None]])
def test_removals_of_every_generation(raw: list[Any]) -> None:
    assert only(raw) == BlockRemoved([9, 10])
    assert only(removed([9], "CPU", group_idx=1)) == BlockRemoved([9], "CPU", 1)
    assert only(["AllBlocksCleared"]) == only(CLEARED) == AllBlocksCleared()


def test_images_set_blocks_apart() -> None:
    keys = [["s", ["image", 3]], [["image", -1]], None]
    event = only(stored([1, 2, 3], [*IDS, *IDS[:4]], extra_keys=keys))
    assert event.salt == "s"
    assert event.extras == [
        msgspec.msgpack.encode([["image", 3]]),
        msgspec.msgpack.encode([["image", -1]]),
        b"",
    ]


def test_the_recorded_events() -> None:
    frames = recorded("vllm-0.32.jsonl")
    batches = [decode(bytes.fromhex(frame["payload_hex"])) for frame in frames]
    assert [len(batch.events) for batch in batches] == [1, 1, 1, 1]
    first, second = batches[0].events[0], batches[1].events[0]
    assert isinstance(first, BlockStored) and isinstance(second, BlockStored)
    assert (first.block_size, first.group, first.full, first.parent) == (32, 0, True, None)
    assert second.parent == first.hashes[-1]

    (frame,) = recorded("vllm-0.32-removed.jsonl")
    batch = decode(bytes.fromhex(frame["payload_hex"]))
    kinds = [type(event) for event in batch.events]
    assert kinds == [*[BlockRemoved] * 20, BlockStored]
    assert (batch.garbage, batch.unknown, batch.rank) == (0, 0, 0)


def test_one_bad_event_spoils_no_other() -> None:
    bad = [
        17,
        [],
        {},
        ["BlockStored"],
        ["BlockStored", [1], None, [1, 2, 3], 4],  # three IDs are less than a block of four
        ["BlockStored", [1], None, [1, 2, 3, 2**32], 4],
        ["BlockStored", [1], None, [1, 2, 3, -1], 4],
        ["BlockStored", [1], None, [1, 2, 3, "4"], 4],
        ["BlockStored", [1.5], None, [1, 2, 3, 4], 4],
        ["BlockStored", [1], "parent", [1, 2, 3, 4], 4],
        ["BlockStored", [], None, [], 4],
        ["BlockStored", [1], None, [], 0],
        ["BlockRemoved", 7],
        ["BlockRemoved", [1], 7],
        stored([1], IDS[:4], extra_keys=7),
        stored([1], IDS[:4], lora_name=7),
    ]
    batch = decode(payload(*bad, CLEARED, ["Surprise", 1], {"type": "Surprise"}))
    assert batch.events == [AllBlocksCleared()]
    assert (batch.garbage, batch.unknown) == (len(bad), 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x81\x80\x01",
        b"\xa1\xff",
        b"\x07",
    ]
    + [msgspec.msgpack.encode(raw) for raw in ([], [1.5], [1.5, 7], {"a": 1}, ["LoadStat", 1])],
)
def test_bad_payloads_are_counted(data: bytes) -> None:
    batch = decode(data)
    assert (batch.events, batch.garbage) == ([], 1)


@given(
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4),
    st.integers(0, 5000),
)
def test_bytes_flipped_and_cut_never_raise(
    which: int, flips: list[tuple[int, int]], end: int
) -> None:
    data = bytearray.fromhex(recorded("vllm-0.32.jsonl")[which]["payload_hex"])
    for at, value in flips:
        data[at % len(data)] = value
    for event in decode(bytes(data[:end])).events:
        if isinstance(event, BlockStored):
            assert len(event.tokens) in (0, 4 * event.block_size * len(event.hashes))


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.lists(st.lists(JSONISH, max_size=10), max_size=3))
def test_any_fields_never_raise(events: list[list[Any]]) -> None:
    raw = [["BlockStored", *fields] for fields in events]
    raw += [["BlockRemoved", *fields] for fields in events]
    batch = decode(payload(*raw))
    assert len(batch.events) + batch.garbage == len(raw)


def array(count: int, item: bytes = b"\x90") -> bytes:
    """A MessagePack array of equal items; the default item is an empty array."""
    return b"\xdd" + count.to_bytes(4) + item * count


def event_of(kind: str, *fields: bytes) -> bytes:
    parts = [msgspec.msgpack.encode(kind), *fields]
    return b"\xdc" + len(parts).to_bytes(2) + b"".join(parts)


def holding(*events: bytes) -> bytes:
    return b"\x93\x01" + b"\xdc" + len(events).to_bytes(2) + b"".join(events) + b"\x00"


NONE, ONE = b"\xc0", b"\x91\x01"
MEBI = 1 << 20


def test_the_largest_event_is_read() -> None:
    hashes, ids = array(HASHES_MOST, b"\x07"), array(TOKENS_MOST, b"\x09")
    size = msgspec.msgpack.encode(TOKENS_MOST // HASHES_MOST)
    batch = decode(
        holding(
            event_of("BlockStored", hashes, NONE, ids, size),
            event_of("BlockRemoved", hashes, msgspec.msgpack.encode("GPU")),
        )
    )
    kept, gone = batch.events
    assert isinstance(kept, BlockStored) and isinstance(gone, BlockRemoved)
    assert kept.hashes == gone.hashes == [7] * HASHES_MOST
    assert kept.tokens == pack([9]) * TOKENS_MOST
    cleared = msgspec.msgpack.encode(["AllBlocksCleared"])
    assert len(decode(b"\x93\x01" + array(EVENTS_MOST, cleared) + NONE).events) == EVENTS_MOST
    many = decode(b"\x93\x01" + array(EVENTS_MOST + 1, cleared) + NONE)
    assert (many.events, many.garbage) == ([], 1)


def test_a_long_event_is_read_like_a_short_one() -> None:
    count = 8192
    hashes, ids = list(range(count)), list(range(70_000, 70_000 + 4 * count))
    keys = [["s", ["image", n]] for n in range(count)]
    more = {"extra_keys": keys, "group_idx": 2, "session_id": "x" * MEBI}
    event = only(stored(hashes, ids, parent=5, lora_name="ad", **more))
    assert event == only(["BlockStored", hashes, 5, ids, 4, None, "GPU", "ad", keys, 2])
    assert (event.hashes, event.tokens, event.parent) == (hashes, pack(ids), 5)
    assert (event.lora, event.group, len(event.extras)) == ("ad", 2, count)
    salted = only(["BlockStored", hashes, None, ids, 4, None, "GPU", {"cache_salt": "s"}])
    assert (salted.salt, salted.lora) == ("s", "")
    assert only(removed(hashes, locality="REMOTE")) == BlockRemoved(hashes, "remote GPU")
    batch = decode(payload(["Surprise", hashes], {"type": "Surprise", "block_hashes": hashes}))
    assert (batch.unknown, batch.garbage) == (2, 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x93\x01" + array(MEBI) + b"\x00", id="events"),
        pytest.param(array(MEBI), id="fields of the payload"),
        pytest.param(b"\x93\x01" + holding()[2:5] + array(MEBI), id="the rank"),
        pytest.param(holding(array(MEBI)), id="fields of an event"),
        pytest.param(holding(event_of("BlockRemoved", array(MEBI))), id="no hashes"),
        pytest.param(holding(event_of("BlockRemoved", array(MEBI, b"\x01"))), id="hashes"),
        pytest.param(holding(event_of("BlockRemoved", ONE, array(MEBI))), id="the medium"),
        pytest.param(
            holding(event_of("BlockStored", ONE, NONE, array(MEBI), b"\x01")), id="no IDs"
        ),
        pytest.param(
            holding(event_of("BlockStored", ONE, NONE, array(MEBI + 1, b"\x01"), b"\x01")), id="IDs"
        ),
        pytest.param(
            holding(event_of("BlockStored", ONE, NONE, ONE, b"\x01", *[NONE] * 3, array(MEBI))),
            id="extra keys",
        ),
    ],
)
def test_memory_for_hostile_payloads_is_bounded(data: bytes) -> None:
    tracemalloc.start()
    try:
        batch = decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (batch.events, batch.garbage) == ([], 1)
    assert peak < MEBI


def test_frames_of_a_message() -> None:
    seq = (7).to_bytes(8)
    message = read_message([b"kv", seq, b"data"])
    assert message is not None and (message.seq, message.payload) == (7, b"data")
    other = read_message([b"kv", seq, b"datA"])
    assert other is not None and other.mark != message.mark
    assert read_message([b"kv", b"\7", b"data"]) is None
    assert read_message([b"data"]) is None
    assert read_message([b"", b"kv", seq, b"data"]) is None


@pytest.mark.parametrize("topic", [[], [b"kv"]], ids=["vllm 0.24", "vllm 0.25"])
def test_frames_of_a_replay(topic: list[bytes]) -> None:
    message = read_replay([b"", *topic, (7).to_bytes(8), b"data"])
    assert message is not None and (message.seq, message.payload) == (7, b"data")
    end = read_replay([b"", *([b""] if topic else []), b"\xff" * 8, b""])
    assert end is not None and end.seq == END_OF_REPLAY
    assert read_replay([b"x", *topic, (7).to_bytes(8), b"data"]) is None
    assert read_replay([b"", b"data"]) is None


def test_pieces_are_the_whole() -> None:
    tokens = list(range(40))
    keys = [[["image", index]] for index in range(10)]
    event = only(stored(list(range(100, 110)), tokens, parent=99, extra_keys=keys))
    parts = list(event.pieces(4))
    assert [part.hashes for part in parts] == [[*range(100, 104)], [*range(104, 108)], [108, 109]]
    assert [part.parent for part in parts] == [99, 103, 107]
    assert b"".join(part.tokens for part in parts) == event.tokens
    assert [key for part in parts for key in part.extras] == event.extras
    assert list(event.pieces(10)) == [event]
    gone = only(removed(list(range(10)), "CPU", group_idx=1))
    assert list(gone.pieces(4)) == [
        BlockRemoved(hashes, "CPU", 1) for hashes in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])
    ]
    assert list(gone.pieces(10)) == [gone]
