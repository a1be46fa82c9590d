"""Estimates how many bytes of an event stream are generated text.

All content events of a stream have the same frame: the JSON around the text. So the text is what
remains of all bytes after one frame is subtracted for each event. The frame is measured at a sample
of the stream's events, so nothing is decoded per token.

The functions are pure: bytes in, numbers out. They must never raise, whatever the bytes are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec

from router.core.unreadable import NOT_JSON
from router.dispatch.usage.usage_shapes import TextEvent

_NULLS: Final = (b"", b"null")
_decode: Final = msgspec.json.Decoder(TextEvent).decode
# The members of a delta that contain no generated text.
_OTHERS: Final = frozenset({"role", "type", "id", "index", "stop_reason", "stop_sequence"})


def text_bytes(events: list[bytes], total: int, count: int) -> int:
    """Return the bytes of text in `count` content events of `total` bytes.

    `events`: the data of some of these events, each with the bytes of its lines.
    """
    for event in events:
        at = event.find(b"{")
        if at < 0:
            continue
        try:
            found = _decode(event[at:])
        except NOT_JSON:
            continue
        choices = found.choices or []
        written = _escaped if b"\\u" in event else _plain
        text = _size(found.delta, written)
        for choice in choices:
            text += _size(choice.delta, written) + _size(choice.text, written)
        if not text:
            continue
        size = len(event) + 2  # with the blank line
        if any(bytes(choice.logprobs) not in _NULLS for choice in choices):
            # The frame grows with the number of tokens, so the share of the text is used.
            return total * text // size
        return max(0, total - (size - text) * count)
    return 0


_Writer = Callable[[str], str | bytes]
_plain: Final[_Writer] = msgspec.json.Encoder().encode
_escaped: Final[_Writer] = json.dumps


def _size(value: object, written: _Writer) -> int:
    """Return the bytes of all texts in a delta, as the engine has written them in JSON."""
    size = 0
    values = [value]
    for one in values:  # The loop appends to the list.
        if isinstance(one, str):
            size += len(written(one)) - 2
        elif isinstance(one, list):
            values += one
        elif isinstance(one, dict):
            values += [one[name] for name in one if name not in _OTHERS]
    return size
