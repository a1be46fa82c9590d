"""A long base64 string is one medium, in any member and on any route."""

import json
import struct
from base64 import b64encode, urlsafe_b64encode
from random import Random
from time import process_time
from typing import Any

import pytest

from router.intake.media import MEDIA_MIN, UNKNOWN_TOKENS, media_in

LEAST, MOST = 256, 16_384
MIB = 1024 * 1024


def noise(size: int) -> bytes:
    return Random(1).randbytes(size)


def png(width: int, height: int, size: int = 9_000) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + noise(size)


def jpeg(width: int, height: int, before: int = 0) -> bytes:
    head = b"\xff\xd8\xff\xe1" + struct.pack(">H", before + 2) + b"\0" * before
    return head + b"\xff\xc0\0\x11\x08" + struct.pack(">HH", height, width) + noise(9_000)


def wav(seconds: float, rate: int = 16_000) -> bytes:
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16)
    return b"RIFF\0\0\0\0WAVEfmt " + form + b"data" + noise(int(seconds * 2 * rate))


def webp(form: bytes, head: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + form + b"\0\0\0\0" + head + noise(9_000)


GIF = b"GIF89a" + struct.pack("<HH", 784, 1_000) + noise(9_000)


def tokens_of(data: bytes) -> int:
    body = json.dumps({"data": b64encode(data).decode()}).encode()
    found = media_in([body], len(body), "chat")
    assert found.count == 1
    return found.tokens


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        (png(784, 1_000), 1_000),
        (png(1, 1), LEAST),
        (png(60_000, 60_000), MOST),
        (jpeg(784, 1_000), 1_000),
        (jpeg(784, 1_000, before=30_000), 1_000),
        (GIF, 1_000),
        (webp(b"VP8X", b"\0" * 4 + struct.pack("<I", 783)[:3] + struct.pack("<I", 999)[:3]), 1_000),
        (webp(b"VP8 ", b"\0" * 6 + struct.pack("<HH", 784, 1_000)), 1_000),
        (webp(b"VP8L", b"\x2f" + struct.pack("<I", 783 | 999 << 14)), 1_000),
        (wav(44.7), 1_117),
        (wav(44.7, rate=48_000), 1_117),
        (wav(0.1), 25),
        (b"ID3" + noise(80_000), 250),
        (b"OggS" + noise(80_000), 250),
        (b"fLaC" + noise(640_000), 250),
        (b"%PDF-1.7" + noise(640_000), 10_000),
        (b"\0\0\0\x20ftypisom" + noise(640_000), 10_000),
        (noise(640_000), 10_000),
        (noise(9 * MIB), MOST),
        # The size that an image states does not hide its bytes.
        (png(1, 1, 784_000), 2_000),
    ],
    ids=lambda value: str(value[:12]) if isinstance(value, bytes) else str(value),
)
def test_tokens_of_a_medium(data: bytes, tokens: int) -> None:
    assert tokens_of(data) == pytest.approx(tokens, rel=0.02)


IMAGE = b64encode(png(784, 1_000)).decode()
URL = "data:image/png;base64," + IMAGE
# The same image on the routes of several APIs.
BODIES: list[tuple[str, Any]] = [
    ("chat", {"messages": [{"content": [{"image_url": {"url": URL}}]}]}),
    ("chat", {"messages": [{"role": "tool", "content": json.dumps({"png": IMAGE})}]}),
    ("chat", {"messages": [{"content": f"see {URL} and say what it is"}]}),
    ("messages", {"messages": [{"content": [{"source": {"type": "base64", "data": IMAGE}}]}]}),
    ("responses", {"input": [{"content": [{"type": "input_image", "image_url": URL}]}]}),
    ("generate", {"text": "what is it?", "image_data": [IMAGE]}),
    ("embeddings", {"input": [IMAGE]}),
    ("rerank", {"query": URL, "documents": ["a"]}),
    ("pooling", {"data": {"b": IMAGE}}),
    ("other", {"prompt": "a cat", "image": IMAGE}),  # an edit of an image
    ("audio", {"input": "hello", "ref_audio": IMAGE}),
]


@pytest.mark.parametrize(("kind", "body"), BODIES)
@pytest.mark.parametrize("size", [70, 4_099, 6_001, MIB])
def test_a_medium_is_found_anywhere(kind: str, body: Any, size: int) -> None:
    data = json.dumps(body).encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    found = media_in(pieces, len(data), kind)
    assert (found.count, found.tokens) == (1, 1_000)
    assert 0 <= found.bytes - len(IMAGE) <= 1  # an escape may follow


def test_other_ways_to_write_base64() -> None:
    image = png(784, 1_000)
    lines = b64encode(image)
    lines = b"\\r\\n".join([lines[at : at + 76] for at in range(0, len(lines), 76)])
    slashes = b64encode(image).replace(b"/", b"\\/")
    for text in (lines, slashes, urlsafe_b64encode(image)):
        found = media_in([b'{"data":"%b"}' % text], len(text), "chat")
        assert (found.count, found.tokens, found.bytes) == (1, 1_000, len(text))


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("chat", {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}),
        ("chat", {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}),
        ("chat", {"video_url": {"url": "https://example.com/a.mp4"}}),
        ("responses", {"type": "input_image", "image_url": "https://example.com/a.png"}),
        ("messages", {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}}),
        ("messages", {"type": "image", "source": {"type": "base64", "data": "iVBORw0K"}}),
    ],
)
def test_each_reference_is_a_medium(kind: str, part: Any) -> None:
    data = json.dumps({"messages": [{"content": [part] * 50}]}).encode()
    assert media_in([data], len(data), kind).tokens == 50 * UNKNOWN_TOKENS


def test_a_reference_with_its_bytes_counts_once() -> None:
    data = json.dumps([{"image_url": {"url": URL}}, {"image_url": {"url": "https://a"}}]).encode()
    assert media_in([data], len(data), "chat").tokens == 1_000 + UNKNOWN_TOKENS


@pytest.mark.parametrize(
    "text",
    [
        "Some words of a prompt, with a data:image/png;base64, and more. " * 900,
        '{\\"image_url\\":1}' * 4_000,
        "x" * 100_000,
        noise(50_000).hex(),
        "größe" * 9_000,
        "a_long_name_of_a_function" * 4_000,
        IMAGE[: MEDIA_MIN // 2] + ". " + IMAGE[: MEDIA_MIN // 2],
    ],
)
def test_text_is_text(text: str) -> None:
    data = f'{{"prompt":"{text}"}}'.encode()
    found = media_in([data], len(data), "chat")
    assert (found.count, found.bytes, found.tokens) == (0, 0, 0)


@pytest.mark.parametrize(
    "unit", [b'"%b",' % b64encode(jpeg(9, 9)[:1_700]), b'"image_url":', b"A1b " * 16, b'{"a":1},']
)
def test_the_time_is_bounded(unit: bytes) -> None:
    data = unit * (8 * MIB // len(unit))
    began = process_time()
    media_in([data], len(data), "chat")
    assert process_time() - began < 1.0  # measured: at most 0.03 s
