"""Hashes a prompt in blocks: prompts with a common beginning have the same first hashes.

The hashed text is the prompt as the client wrote it, including its JSON syntax, in blocks of a
fixed number of bytes. Nothing is decoded, tokenised or normalised, because a client repeats earlier
turns of a conversation in the same form. So hashing 16 KB takes only 4 µs. Each hash is the seed of
the next (xxh3, 64 bits). So a hash represents the whole prompt up to the end of its block.

- A list of messages is hashed without its closing bracket, because the next turn of the
  conversation appends to the list.
- The first seed depends on everything else that an engine's prefix cache depends on: model or
  adapter, tools, `cache_salt`, and the tenant if tenants do not share prefixes.
- Tools are also the beginning of the hashed text, because they are tokens of the prompt.
- Only full blocks are hashed. The rest of a prompt after the last full block has no hash.

The hashes are an approximation. The chat template and `chat_template_kwargs` are ignored. Two
prompts that differ only in the order of keys or in escapes have different hashes.

Must never: change a byte, raise because of a client's input, or keep a reference to the body's
bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, Final, cast

import msgspec
from xxhash import xxh3_64_intdigest

from router.intake.fields import Fields
from router.intake.media import media_in
from router.intake.stretch import Stretch
from router.intake.values import NULL, bytes_of, is_given, opening_of

# The kinds of routes whose prompts are hashed, because their engines cache prefixes. Engines that
# embed, rerank, score or classify attend in both directions, or process every text once. So they
# have no prefix cache that routing could use. /tokenize runs no model.
GENERATES: Final = frozenset({"chat", "completions", "responses", "messages", "generate"})
# The other kinds of routes whose body is mostly text. The size of the body estimates the prompt's.
_TEXTS: Final = frozenset({"embeddings", "rerank", "score", "pooling"})

_AT_ONCE: Final = 16  # number of blocks that are cut out of a text in one step
# Compiled code calls a `Final` without a search for its name.
_intdigest: Final[Any] = xxh3_64_intdigest

_BRACKET: Final = 0x5B
_QUOTE: Final = 0x22

Text = memoryview | bytes
_Part = msgspec.Raw | Stretch | None
_Parts = tuple[_Part, _Part]


def _parts(kind: str, fields: Fields) -> _Parts:
    """Return the two members of a body that form its prompt, in the engine's order."""
    if kind == "chat":
        return None, fields.messages
    if kind == "completions":
        return None, fields.prompt
    if kind == "responses":
        return fields.instructions, fields.input
    if kind == "messages":
        return fields.system, fields.messages
    # Several APIs share these paths (SageMaker's /invocations, Ollama's /api/generate, …).
    return fields.system, fields.messages if is_given(fields.messages) else fields.prompt


def prompt_seed(salt: str) -> int:
    """Return the secret seed of all prompt hashes, so that clients cannot construct collisions.

    `salt`: the salt of the access log, so that hashes of two runs can be compared; "": the seed is
    random.
    """
    return xxh3_64_intdigest(salt.encode() if salt else os.urandom(16), 1)


def prompt_blocks(
    kind: str,
    fields: Fields,
    block_bytes: int,
    most: int,
    tenant: bytes = b"",
    body_bytes: int = 0,
    seed: int = 0,
    has_media: bool = False,
) -> tuple[tuple[int, ...], int]:
    """Return the hashes of a prompt's first full blocks, at most `most`, and its size in bytes.

    The size includes all text that an engine prefills, and none of the media (`media.py`). It is
    used to estimate the number of tokens; it is 0 if the body has no readable prompt. `body_bytes`:
    the size to return for a route whose text is in several members (`documents`, `text_1`, …) and
    is not hashed. `seed`: the result of `prompt_seed`. `has_media`: the body contains media.
    """
    if kind not in GENERATES:
        return (), body_bytes if kind in _TEXTS else 0
    first, last = _parts(kind, fields)
    if last is None:
        return (), 0
    if isinstance(last, Stretch):
        return _long_blocks(kind, fields, first, last, block_bytes, most, tenant, seed, has_media)
    text: Text = memoryview(last)
    opening = text[0]
    if opening == _BRACKET:
        text = text[:-1]
        if text[-1] in b" \t\r\n":  # a pretty-printed body
            text = bytes(text).rstrip(b" \t\r\n")
    elif opening == _QUOTE:
        text = text[1:-1]
    else:
        return (), 0
    tools = fields.tools
    if (
        len(text) < block_bytes
        and (tools is None or tools == NULL)
        and (first is None or first == NULL)
    ):
        return (), len(text)  # the prompt is shorter than a block
    seed = _seed_of(fields, tenant, seed)
    ahead = _ahead(fields, first)
    if ahead:
        text = b"".join((*ahead, text))
    size = len(text)
    count = min(size // block_bytes, most)
    if has_media:
        size -= _media_bytes(bytes(text), kind)
    if not count:
        return (), size
    return _hashed(text[: count * block_bytes], block_bytes, seed), size


def bounded_bytes(kind: str, fields: Fields, size: int) -> int:
    """Return `size`, the bytes of a prompt, if they bound the number of its tokens; else 0.

    A list of prompts, or of token IDs, does not: an engine applies its maximum to each prompt, and
    a token ID has as many bytes as it has digits.
    """
    if kind not in GENERATES or not size:
        return 0
    last = _parts(kind, fields)[1]
    if last is None or (last is fields.prompt and opening_of(last) == _BRACKET):
        return 0
    return size


def _long_blocks(
    kind: str,
    fields: Fields,
    first: _Part,
    last: Stretch,
    block_bytes: int,
    most: int,
    tenant: bytes,
    seed: int,
    has_media: bool,
) -> tuple[tuple[int, ...], int]:
    """Does the same as `prompt_blocks` for a long prompt. Copies only the part that is hashed."""
    opening = last.cut(0, 1)[0]
    if opening == _BRACKET:
        text = last.narrowed(0, last.size - 1)
    elif opening == _QUOTE:
        text = last.part(1, last.size - 1)
    else:
        return (), 0
    seed = _seed_of(fields, tenant, seed)
    ahead = b"".join(_ahead(fields, first))
    size = len(ahead) + text.size
    hashed = min(size // block_bytes, most) * block_bytes
    blocks: tuple[int, ...] = ()
    if hashed:
        blocks = _hashed((ahead + text.cut(0, hashed))[:hashed], block_bytes, seed)
    if has_media:
        size -= _media_bytes(ahead + text.whole(), kind)
    return blocks, size


def _seed_of(fields: Fields, tenant: bytes, seed: int) -> int:
    """Return the seed of a prompt's first hash."""
    model, tools, salt = fields.model, fields.tools, fields.cache_salt
    seed = xxh3_64_intdigest(b"" if model is None else model.encode("utf-8", "replace"), seed)
    # A different number is mixed in for each part, so that equal bytes as a salt and as a tenant
    # result in different seeds.
    if tools is not None and tools != NULL:
        # Without the type `Any`, compiled code would expect `bytes`, which a `Raw` is not.
        whole: Any = tools.whole() if isinstance(tools, Stretch) else cast("Any", tools)
        seed = xxh3_64_intdigest(whole, seed ^ 1)
    if salt is not None and salt != NULL:
        seed = xxh3_64_intdigest(salt, seed ^ 2)
    if tenant:
        seed = xxh3_64_intdigest(tenant, seed ^ 3)
    return seed


def _ahead(fields: Fields, first: _Part) -> list[bytes]:
    """Return the members that come before the prompt's main text: tools and the system prompt."""
    tools = fields.tools
    ahead: list[bytes] = []
    if tools is not None and tools != NULL:
        ahead.append(bytes_of(tools))
    if first is not None and first != NULL:
        ahead.append(bytes_of(first))
    return ahead


def _hashed(text: Text, block_bytes: int, seed: int) -> tuple[int, ...]:
    """Return the hashes of a text that consists of whole blocks."""
    hashed: Any = seed  # an object: compiled code would convert an `int` of 64 bits twice per block
    hashes: list[Any] = []
    # `struct` cuts the text in C, several blocks at a time: each of its steps costs as much as
    # hashing half a block.
    count = len(text) // block_bytes
    rest = count % _AT_ONCE
    end = (count - rest) * block_bytes
    cut: list[tuple[bytes, ...]] = []
    if end:
        cut += _splitter(block_bytes, _AT_ONCE)(text[:end])
    if rest:
        cut += _splitter(block_bytes, rest)(text[end:])
    for blocks in cut:
        for block in blocks:
            hashed = _intdigest(block, hashed)
            hashes.append(hashed)
    return tuple(hashes)


@lru_cache(maxsize=4 * _AT_ONCE)
def _splitter(block_bytes: int, count: int) -> Callable[[Text], Iterator[tuple[bytes, ...]]]:
    return Struct(f"{block_bytes}s" * count).iter_unpack


def _media_bytes(text: bytes, kind: str) -> int:
    return media_in((text,), len(text), kind).bytes
