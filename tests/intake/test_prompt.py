"""Block hashes of prompts: a conversation extends its own chain; no other prompt matches."""

import base64
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st
from xxhash import xxh3_64_intdigest

from router.core.errors import RouterError
from router.intake.body import read_fields
from router.intake.fields import NAMES, Fields
from router.intake.prompt import GENERATES, bounded_bytes, prompt_blocks
from router.intake.routes import KINDS, POSTS
from tests.examples import examples
from tests.intake.members import found

PATHS = {
    "chat": b"/v1/chat/completions",
    "completions": b"/v1/completions",
    "responses": b"/v1/responses",
    "messages": b"/v1/messages",
    "generate": b"/invocations",
    "embeddings": b"/v1/embeddings",
}
BLOCK = 64


def fields_of(body: Any, kind: str = "chat", **dumps: Any) -> Fields:
    raw = body if isinstance(body, bytes) else json.dumps(body, **dumps).encode()
    return read_fields(POSTS[PATHS[kind]], [raw], len(raw), b"application/json", None)


def blocks_of(
    body: Any, kind: str = "chat", *, most: int = 10_000, tenant: bytes = b"", **dumps: Any
) -> tuple[int, ...]:
    return prompt_blocks(kind, fields_of(body, kind, **dumps), BLOCK, most, tenant)[0]


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Common leading blocks. No later block is common, because the hashes are chained."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    assert not set(one[count:]) & set(other[count:])
    return count


def chat(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **members}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


SYSTEM = {"role": "system", "content": "You answer briefly. " * 10}
LONG = "All happy families are alike; each unhappy family is unhappy in its own way. " * 20
IMAGE = "data:image/png;base64," + base64.b64encode(Random(1).randbytes(60_000)).decode()


# -- the definition ---------------------------------------------------------------------------


def test_the_chain_is_what_it_says() -> None:
    body = b'{"model": "org/m", "messages": [{"role": "user", "content": "%b"}]}' % (b"x" * 200)
    text = body[body.index(b"[") : body.rindex(b"]")]
    expected = []
    seed = xxh3_64_intdigest(b"org/m")
    for at in range(0, len(text) - BLOCK + 1, BLOCK):
        seed = xxh3_64_intdigest(text[at : at + BLOCK], seed)
        expected.append(seed)
    blocks, size = prompt_blocks("chat", fields_of(body), BLOCK, 10_000)
    assert blocks == tuple(expected)
    assert len(blocks) == 3
    assert size == len(text)


# -- conversations ----------------------------------------------------------------------------

TURNS: list[dict[str, Any]] = [
    SYSTEM,
    user("Schreib mir etwas über Züge, 短い詩を, 🚂!" * 5),
    {"role": "assistant", "content": 'Gern: "Der Zug"\n\tfährt\\ab.' * 9},
    user(
        [{"type": "text", "text": "and this picture?"}, {"type": "image_url", "image_url": IMAGE}]
    ),
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"where": "in \\"it\\""}' * 4},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "a train " * 30},
    user([{"type": "text", "text": "thanks"}]),
    {"role": "assistant", "content": ""},
    user("one more"),
]


@pytest.mark.parametrize(
    "dumps",
    [
        {},
        {"ensure_ascii": False},
        {"separators": (",", ":")},
        {"indent": 2},
        {"indent": 4, "ensure_ascii": False},
    ],
    ids=str,
)
def test_each_turn_extends_the_whole_conversation(dumps: dict[str, Any]) -> None:
    before: tuple[int, ...] = ()
    for count in range(1, len(TURNS) + 1):
        body = chat(*TURNS[:count], stream=True)
        blocks, size = prompt_blocks("chat", fields_of(body, **dumps), BLOCK, 10_000)
        assert blocks[: len(before)] == before
        assert len(blocks) >= len(before)
        if count == 3:
            # not only the first message: another second turn differs from there on
            other = chat(*TURNS[: count - 1], {"role": "assistant", "content": "No." * 50})
            assert shared(blocks, blocks_of(other, **dumps)) >= len(before) - 1
        before = blocks
        assert size > 0
    assert len(before) > 80_000 / BLOCK  # the image is part of the blocks


def test_a_turn_that_ends_with_a_block_is_extended_all_the_same() -> None:
    for filler in range(BLOCK):
        first = [user("x" * (100 + filler))]
        for dumps in ({}, {"indent": 1}):
            one = blocks_of(chat(*first), **dumps)
            two = blocks_of(chat(*first, user("and then")), **dumps)
            assert two[: len(one)] == one


def test_different_images_give_different_hashes() -> None:
    def asking(image: str) -> tuple[int, ...]:
        part = {"type": "image_url", "image_url": {"url": image}}
        return blocks_of(chat(SYSTEM, user([part, {"type": "text", "text": LONG}])))

    other = IMAGE[:50_000] + ("A" if IMAGE[50_000] != "A" else "B") + IMAGE[50_001:]
    assert asking(IMAGE) == asking(IMAGE)
    part_at = shared(asking(IMAGE), asking(other))
    assert 50_000 // BLOCK <= part_at <= 51_000 // BLOCK


# -- the seed of a chain ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "is_bounded"),
    [
        ("chat", {"messages": [user("text")]}, True),
        ("chat", {"messages": [user(IMAGE)]}, True),
        ("chat", {"prompt": "text"}, False),
        ("responses", {"input": [user("text")]}, True),
        ("completions", {"prompt": "text"}, True),
        ("completions", {"prompt": ["one", "two"]}, False),
        ("completions", {"prompt": [101, 102, 103]}, False),
        ("generate", {"prompt": ["one"]}, False),
        ("generate", {"messages": [user("text")]}, True),
        ("embeddings", {"input": "text"}, False),
    ],
)
def test_the_bytes_bound_the_tokens_of_one_text(
    kind: str, body: dict[str, Any], is_bounded: bool
) -> None:
    fields = fields_of(body, kind)
    assert bounded_bytes(kind, fields, 7) == (7 if is_bounded else 0)
    assert bounded_bytes(kind, fields, 0) == 0


def test_different_seeds_give_different_hashes() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    variants = [
        blocks_of(chat(user(LONG))),
        blocks_of({**chat(user(LONG)), "model": "other"}),
        blocks_of({"messages": [user(LONG)]}),
        blocks_of(chat(user(LONG), tools=tools)),
        blocks_of(chat(user(LONG), tools=[*tools, *tools])),
        blocks_of(chat(user(LONG), cache_salt="a")),
        blocks_of(chat(user(LONG), cache_salt="b")),
        blocks_of(chat(user(LONG)), tenant=b"a"),
        blocks_of(chat(user(LONG)), tenant=b'"a"'),
        blocks_of(chat(user(LONG), cache_salt="a"), tenant=b"a"),
    ]
    for index, one in enumerate(variants):
        assert len(one) > 20
        for other in variants[:index]:
            assert shared(one, other) == 0


def test_tools_count_as_text_and_all_or_nothing() -> None:
    tools = [{"type": "function", "function": {"name": f"f{n}", "x": "y" * 100}} for n in range(9)]
    one, one_size = prompt_blocks("chat", fields_of(chat(user("a"), tools=tools)), BLOCK, 10_000)
    two, _ = prompt_blocks("chat", fields_of(chat(user("b"), tools=tools)), BLOCK, 10_000)
    less, _ = prompt_blocks("chat", fields_of(chat(user("a"), tools=tools[:-1])), BLOCK, 10_000)
    assert one_size == len(json.dumps(tools)) + len(json.dumps([user("a")])) - 1
    assert shared(one, two) == len(json.dumps(tools) + '[{"role": "user", "content": "') // BLOCK
    assert shared(one, less) == 0


# -- kinds of routes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "head", "list_name"),
    [("responses", "instructions", "input"), ("messages", "system", "messages")],
)
def test_instructions_come_before_the_turns(kind: str, head: str, list_name: str) -> None:
    first = {"model": "m", head: LONG, list_name: [user("a" * 500)]}
    second = {"model": "m", list_name: [user("a" * 500), user("b" * 500)], head: LONG}
    other_head = {**first, head: "x" + LONG}
    no_head = {"model": "m", list_name: [user("a" * 500)]}
    one, size = prompt_blocks(kind, fields_of(first, kind), BLOCK, 10_000)
    assert size == len(json.dumps(LONG)) + len(json.dumps([user("a" * 500)])) - 1
    assert blocks_of(second, kind)[: len(one)] == one
    assert shared(one, blocks_of(other_head, kind)) == 0
    assert len(blocks_of(no_head, kind)) > 5
    if kind == "responses":
        as_text = blocks_of({"model": "m", head: LONG, list_name: "hello " * 100}, kind)
        assert shared(one, as_text) == len(json.dumps(LONG)) // BLOCK
    else:
        parts = {**first, head: [{"type": "text", "text": LONG}]}
        assert len(blocks_of(parts, kind)) >= len(one)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - GENERATES))
def test_kinds_without_a_prefix_cache_have_no_blocks(kind: str) -> None:
    fields = fields_of({"model": "m", "input": LONG, "messages": [user(LONG)], "prompt": LONG})
    # An upload's bytes are not text, and /tokenize causes no prefill.
    expected = 1234 if kind in ("embeddings", "rerank", "score", "pooling") else 0
    assert prompt_blocks(kind, fields, BLOCK, 10_000, body_bytes=1234) == ((), expected)


# -- media ------------------------------------------------------------------------------------


def size_of(body: Any, kind: str = "chat") -> int:
    return prompt_blocks(kind, fields_of(body, kind), BLOCK, 10_000, has_media=True)[1]


def test_media_are_not_in_the_size() -> None:
    part = {"type": "image_url", "image_url": {"url": IMAGE}}
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE.partition(",")[2]}
    without = len(json.dumps([user([part])])) - len(IMAGE)
    assert abs(size_of(chat(user([part]))) - without) < 50
    assert abs(size_of(chat(user([part] * 7))) - 7 * without) < 7 * 100
    anthropic = chat(
        user([{"type": "image", "source": source}, {"type": "text", "text": LONG}] * 3)
    )
    assert 3 * len(LONG) < size_of(anthropic, "messages") < 3 * len(LONG) + 999


def test_very_many_media_items_are_scanned_once() -> None:
    many = chat(user(";base64," * 200_000), user(['";base64,"'] * 100_000))
    assert 0 < size_of(many) <= len(json.dumps(many))


# -- any input --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 3, True, {}, [], "", {"a": [1]}, [[]], [None], "null"])
@pytest.mark.parametrize("kind", sorted(GENERATES))
def test_odd_prompts_have_no_blocks(value: object, kind: str) -> None:
    every = dict.fromkeys(("messages", "prompt", "input", "instructions", "system"), value)
    blocks, size = prompt_blocks(kind, fields_of({"model": "m", **every}, kind), BLOCK, 10_000)
    assert blocks == ()
    assert 0 <= size < 32


def test_a_prompt_that_reads_null_is_a_prompt() -> None:
    body = {"prompt": "null", "tools": [1]}
    assert size_of(body, "completions") == len("null") + len("[1]")


RAW_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=40)
    | st.text(min_size=1, max_size=5).map(lambda part: part * 100),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@examples(200)
@given(
    st.dictionaries(
        st.sampled_from(["prompt", "input", "messages", "text"]) | st.sampled_from(NAMES),
        RAW_JSON,
        max_size=4,
    ),
    st.sampled_from(KINDS),
    st.integers(64, 300),
    st.integers(1, 5),
    st.booleans(),
)
def test_any_body(body: dict[str, Any], kind: str, block: int, most: int, pretty: bool) -> None:
    try:
        fields = fields_of(body, indent=2 if pretty else None)
    except RouterError:
        return
    before = found(fields)
    blocks, size = prompt_blocks(kind, fields, block, most, b"t", 10)
    assert len(blocks) <= most
    assert len(blocks) * block <= size or not blocks
    assert all(0 <= h < 1 << 64 for h in blocks)
    assert (blocks, size) == prompt_blocks(kind, fields, block, most, b"t", 10)
    assert found(fields) == before
