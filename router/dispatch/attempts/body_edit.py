"""Adds members to a client's JSON object, or changes its model, without encoding it again.

The new members are added at the end of the object. If an object has several members with the same
name, JSON parsers use the last one (msgspec, orjson, Python's json and so pydantic, serde for
maps). So a member is replaced by adding it again. All other bytes are unchanged. A body is a list
of pieces. To add members, only the last piece is copied, so a second edit costs almost nothing.

Another model name (`renamed`) is written in place of the client's name. Only the pieces that
contain the name are copied. A body that was scanned while it arrived is not scanned again.

The functions are pure: bytes in, bytes out. Must never: add to a body that does not begin and end
like an object, change a body in which the position of the name is not certain, or read a byte more
than a few times, however the body is divided into pieces.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.intake.body import DECODE_UP_TO, is_form
from router.intake.forms import FormScan
from router.intake.members import LargeBody, MemberScan, Place

_SPACE: Final = b" \t\r\n"
# A piece of up to this many bytes is joined with the added members, so that one write sends both.
_JOINED: Final = 64 * 1024
_NAME: Final = "model"
_FIELD: Final = b"model"
_MODEL: Final = frozenset({_NAME})
_FIELDS: Final = frozenset({_FIELD})
_encode = msgspec.json.Encoder().encode


def append(body: list[bytes], members: bytes) -> list[bytes] | None:
    """Return the body with `members` (`"a":1` or `"a":1,"b":2`) at the end of its object.

    `body`: a JSON object in pieces, without content encoding. Returns `None` if the body is not an
    object; then it must be sent unchanged.
    """
    if not _is_opened(body):
        return None
    at = len(body) - 1  # Index of the piece with the closing brace.
    end = body[at].rstrip(_SPACE)
    while not end:
        at -= 1  # The loop ends, because `_is_opened` found a piece with more than whitespace.
        end = body[at].rstrip(_SPACE)
    if not end.endswith(b"}"):
        return None
    before = end[:-1].rstrip(_SPACE)
    while not before:
        at -= 1
        if at < 0:
            return None
        before = body[at].rstrip(_SPACE)
    comma = b"" if before.endswith(b"{") else b","
    added = b"%b%b%b" % (comma, members, body[at][len(before) :])
    if len(before) > _JOINED:
        return [*body[:at], before, added, *body[at + 1 :]]
    return [*body[:at], before + added, *body[at + 1 :]]


def _is_opened(body: list[bytes]) -> bool:
    """Whether the first byte that is not whitespace is an opening brace."""
    for piece in body:
        if piece.startswith(b"{"):
            return True
        begin = piece.lstrip(_SPACE)
        if begin:
            return begin.startswith(b"{")
    return False


def size_of(body: list[bytes]) -> int:
    return sum(map(len, body))


def with_length(lines: bytes, old: int, new: int) -> bytes | None:
    """Return header lines with a new Content-Length; `None` if the last line is not a
    Content-Length."""
    last = b"\r\ncontent-length: %d" % old
    if not lines.endswith(last):
        return None
    return b"%b\r\ncontent-length: %d" % (lines[: -len(last)], new)


def renamed(
    body: list[bytes], size: int, content_type: bytes | None, watch: object, model: str
) -> tuple[list[bytes], list[Place]] | None:
    """Return the body with `model` as its model, and the new positions of its scanned members.

    The positions are empty if the body was not scanned while it arrived. `body`: a JSON object or
    a form of `size` bytes in pieces. `watch`: the scanner that got the body while it arrived; else
    `None`. Returns `None` if the body has no readable model; it must then be sent unchanged.
    """
    if is_form(content_type):
        return _in_form(body, size, content_type or b"", watch, model.encode())
    if size > DECODE_UP_TO and isinstance(watch, LargeBody):
        scan = watch.scan
        scanned = scan.places
    else:
        scan = MemberScan(_MODEL)
        for piece in body:
            scan.feed(piece)
        scanned = []
    if not scan.is_whole:
        return None
    spans = [_value_span(body, place) for place in scan.places if place.name == _NAME]
    if not spans:
        return None
    new = _encode(model)
    return _replaced(body, spans, new), [_moved(place, spans, len(new)) for place in scanned]


def _in_form(
    body: list[bytes], size: int, content_type: bytes, watch: object, new: bytes
) -> tuple[list[bytes], list[Place]] | None:
    if size > DECODE_UP_TO and isinstance(watch, FormScan):
        scan = watch
    else:
        scan = FormScan(content_type, _FIELDS)
        for piece in body:
            scan.feed(piece)
    spans = [(start, end) for name, start, end in scan.places if name == _FIELD]
    return (_replaced(body, spans, new), []) if spans else None


def _value_span(body: list[bytes], place: Place) -> tuple[int, int]:
    """Return where the value of a member begins and ends, without the blanks around it."""
    text = _cut(body, place.value, place.end)
    start = place.value + len(text) - len(text.lstrip(_SPACE))
    return start, start + len(text.strip(_SPACE))


def _cut(body: list[bytes], start: int, end: int) -> bytes:
    found = []
    before = 0
    for piece in body:
        after = before + len(piece)
        if after > start and before < end:
            found.append(piece[max(0, start - before) : end - before])
        before = after
    return b"".join(found)


def _replaced(body: list[bytes], spans: list[tuple[int, int]], new: bytes) -> list[bytes]:
    """Return the body with `new` in place of each span. The spans are in order and not empty."""
    made: list[bytes] = []
    before = 0
    for piece in body:
        after = before + len(piece)
        parts: list[bytes] = []
        at = before
        for start, end in spans:
            if end <= before or start >= after:
                continue
            parts.append(piece[at - before : max(0, start - before)])
            if start >= before:  # A value that is divided between pieces is replaced in the first.
                parts.append(new)
            at = min(end, after)
        if at == before and not parts:
            made.append(piece)
        else:
            parts.append(piece[at - before :])
            made.append(b"".join(parts))
        before = after
    return [piece for piece in made if piece]


def _moved(place: Place, spans: list[tuple[int, int]], size: int) -> Place:
    """Return the position of a member after each span was replaced by `size` bytes."""
    shift = own = 0
    for start, end in spans:
        if end <= place.start:
            shift += size - (end - start)
        elif start >= place.value and end <= place.end:
            own = size - (end - start)
    return Place(place.name, place.start + shift, place.value + shift, place.end + shift + own)
