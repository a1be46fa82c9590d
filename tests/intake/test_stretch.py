"""Views of values in large bodies: equal to copied values, for all cuts."""

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.intake.body import DECODE_UP_TO, read_fields, watch
from router.intake.fields import Fields
from router.intake.prompt import bounded_bytes, prompt_blocks
from router.intake.routes import POSTS
from router.intake.stretch import Stretch, contains
from router.intake.values import bytes_of
from tests.intake.members import found, made

MARK, RARE = b";base64,", 0
CUTS = st.lists(st.integers(0, 60), max_size=8)


def cut(body: bytes, cuts: list[int]) -> list[bytes]:
    at, pieces = 0, []
    for size in cuts:
        pieces.append(body[at : at + size])
        at += size
    return [*pieces, body[at:]]


@given(st.binary(max_size=80), CUTS, st.data())
def test_any_part_is_what_the_body_has_there(
    body: bytes, cuts: list[int], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, len(body)))
    stretch = Stretch(cut(body, cuts), start, end)
    assert stretch.size == end - start
    assert stretch.whole() == body[start:end]
    first = data.draw(st.integers(0, stretch.size))
    last = data.draw(st.integers(first, stretch.size + 3))
    assert stretch.cut(first, last) == body[start:end][first:last]
    assert stretch.part(first, min(last, stretch.size)).whole() == body[start:end][first:last]


@given(st.text(" \t\r\nax", max_size=80), CUTS)
def test_the_space_around_a_part_is_left_out(text: str, cuts: list[int]) -> None:
    body = text.encode()
    stretch = Stretch(cut(body, cuts), 0, len(body))
    assert stretch.narrowed(0, len(body)).whole() == body.strip(b" \t\r\n")


@pytest.mark.parametrize("rare", [0, 5])
@pytest.mark.parametrize("text", [b";" * 5000, b"6;" * 5000, (b";" + b"x" * 600) * 100, b"x" * 9])
def test_texts_in_which_the_byte_is_frequent(text: bytes, rare: int) -> None:
    for whole, is_there in ((text, False), (text + MARK + text, True), (MARK[1:] + text, False)):
        assert contains(whole, MARK, rare, 0, len(whole)) is is_there


# -- large bodies ---------------------------------------------------------------------------------

WORDS = " ".join(Random(1).choices(["a", "red", "\\ fox", '"q"', "é", "jumps;", "\n"], k=30_000))
IMAGE = "data:image/png;base64," + "QUJD" * 30_000
PROMPTS: dict[str, Any] = {
    "text": [{"role": "user", "content": WORDS}],
    "image": [{"role": "user", "content": [{"url": IMAGE}, {"text": WORDS}]}],
    "two images": [{"role": "user", "content": [WORDS, {"url": IMAGE}, {"url": IMAGE}]}],
    "a string": WORDS,
    "an image in a string": WORDS + IMAGE,
}


def read_large(path: bytes, body: bytes, size: int) -> Fields:
    """Read a body that arrived in pieces."""
    route = POSTS[path]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    seen = watch(route, len(body), b"application/json")
    for piece in pieces:
        seen.feed(piece)
    return read_fields(route, pieces, len(body), b"application/json", None, seen)


def test_the_bytes_of_a_long_text_bound_its_tokens() -> None:
    body = json.dumps({"messages": PROMPTS["text"], "x": "x" * DECODE_UP_TO}).encode()
    fields = read_large(b"/v1/chat/completions", body, 65_536)
    assert isinstance(fields.messages, Stretch)
    assert bounded_bytes("chat", fields, 7) == 7


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize("piece", [4099, 65_536, 1 << 30])
@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize(
    ("kind", "path", "ahead", "member"),
    [
        ("chat", b"/v1/chat/completions", "tools", "messages"),
        ("completions", b"/v1/completions", "", "prompt"),
        ("responses", b"/v1/responses", "instructions", "input"),
        ("messages", b"/v1/messages", "system", "messages"),
    ],
)
def test_a_long_prompt_has_the_blocks_of_a_copy(
    kind: str, path: bytes, ahead: str, member: str, name: str, piece: int, pretty: bool
) -> None:
    prompt = PROMPTS[name]
    if kind == "messages" and "image" in name:
        prompt = [{"type": "base64", "data": "QUJD" * 30_000}, WORDS]
    for before in ({}, {ahead: ["x" * 700]}, {ahead: ["y" * 100_000, WORDS]}):
        asked = {"model": "m", **before, member: prompt, "cache_salt": "s"}
        asked.pop("", None)
        small = json.dumps(asked, indent=1 if pretty else None).encode()
        large = small[:-1] + b', "pad": "%b"}' % (b"x" * DECODE_UP_TO)
        copied = read_fields(POSTS[path], [small], len(small), b"application/json", None)
        long = read_large(path, large, piece)
        assert isinstance(getattr(long, member), Stretch)
        assert bytes_of(getattr(long, member)) == bytes_of(getattr(copied, member))
        for block, most in ((512, 512), (64, 7), (512, 0), (65_536, 3)):
            args = (block, most, b"t", 0, 5)
            assert prompt_blocks(kind, long, *args) == prompt_blocks(kind, copied, *args)


def test_a_medium_that_stands_before_the_text() -> None:
    fields, copied = made(model="m"), made(model="m")
    text = b'"' + b"A " * 50_000 + b'"'
    for one in (fields, copied):
        one.instructions = msgspec.Raw(json.dumps(IMAGE).encode())
    fields.input = Stretch([text], 0, len(text))
    copied.input = msgspec.Raw(text)
    args = (512, 512, b"", 0, 5)
    assert prompt_blocks("responses", fields, *args) == prompt_blocks("responses", copied, *args)


@pytest.mark.parametrize("value", [b"5", b"true", b"-1.5e9", b"null", b""])
def test_a_prompt_of_an_odd_type_is_none(value: bytes) -> None:
    spaces = b" " * 100_000
    body = b'{"model": "m", "messages":%b%b%b, "pad": "%b"}' % (
        spaces, value, spaces, b"x" * DECODE_UP_TO
    )  # fmt: skip
    fields = read_large(b"/v1/chat/completions", body, 9999)
    assert fields.messages is None
    assert prompt_blocks("chat", fields, 512, 512) == ((), 0)


def test_dropping_lets_the_pieces_go() -> None:
    body = json.dumps({"messages": "x" * 200_000, "pad": "x" * DECODE_UP_TO}).encode()
    fields = read_large(b"/v1/chat/completions", body, 65_536)
    assert isinstance(fields.messages, Stretch)
    fields.drop()
    assert found(fields) == {}
