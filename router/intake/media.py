"""Finds the media in a request's body, and estimates their tokens.

A medium is an image, a sound, a video or a document. Clients send it as a long base64 string, in
any member and on any route, or as a reference (`image_url`). Its tokens do not depend on the number
of its bytes, so they are estimated by its kind, with the formulas of common models:

- an image has a token for each patch of 28 x 28 pixels (Qwen2-VL, and nearly so Claude),
- a sound has 25 tokens per second (Qwen2-Audio),
- anything else, and an image of unknown size, is estimated from its bytes.

Text that looks like base64 cannot be told from a medium: a text without spaces and punctuation.

The estimate is bounded for each medium, and is used only until the engine reports the true count.

The bytes are examined in steps of `_STEP` bytes, so a body without media costs little, and no body
costs more than 1 ms for each MiB. Must never: raise because of a client's input, or copy a body.
"""

from __future__ import annotations

import re
from binascii import Error as BadBase64, a2b_base64
from collections.abc import Sequence
from typing import Final

from router.intake.stretch import contains

_STEP: Final = 2048
_SAMPLE: Final = 64
# A shorter base64 string may count as text.
MEDIA_MIN: Final = _STEP + _SAMPLE
_MEDIA_MOST: Final = 1000  # maximum number of media in one body; the rest counts as text
_WINDOW: Final = 64 * 1024
_HEAD: Final = 128  # bytes of a base64 string in which its kind is searched
_JPEG_HEAD: Final = 64 * 1024  # the same for the size of a JPEG, which may follow a thumbnail
_JPEG_MOST: Final = 1024 * 1024  # maximum bytes of one body in which sizes of JPEGs are searched
# The characters of base64, also as JSON text: with escaped slashes, or in lines (`\n`).
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\\"
_IN_ALPHABET: Final = bytes([byte in _ALPHABET for byte in range(256)])
_DIGITS: Final = b"0123456789"
_DATA_URL: Final = b";base64,"

# A member that refers to a medium, by the kind of the route: the rarest text in it, and its name.
_REFERENCES: Final = {
    "messages": (b'"source"', re.compile(rb'"source"[ \t\r\n]*:[ \t\r\n]*\{')),
    "generate": (b'_data"', re.compile(rb'"(?:image|video|audio)_data"[ \t\r\n]*:')),
}
_REFERENCE: Final = (b'_url"', re.compile(rb'"(?:image|video|audio)_url"[ \t\r\n]*:'))

UNKNOWN_TOKENS: Final = 1024  # the tokens of a medium of which nothing is known
_LEAST: Final = 256  # the tokens of the smallest image (Gemma 3)
_MOST: Final = 16_384  # the tokens of the largest image (Qwen2-VL)
_PATCH: Final = 28 * 28  # pixels of one token
_PIXELS: Final = 2  # pixels in a byte of a compressed image of unknown size
_PIXEL_BYTES: Final = 8  # maximum bytes of a pixel in any image, with some bytes to spare
_SECOND_TOKENS: Final = 25
_SECOND_LEAST: Final = 1_000  # bytes in a second of a sound: least, usual and most
_SECOND_BYTES: Final = 8_000
_SECOND_MOST: Final = 400_000
_SOUND_MOST: Final = 32_768  # the tokens of the longest sound: 22 minutes
# Bytes of a token of a document, a video, or a medium of unknown kind, which may even be text.
_DOCUMENT: Final = 64


class Media:
    """The media of one body."""

    __slots__ = ("_head", "_is_url", "_jpeg_left", "_open", "bytes", "count", "tokens")

    def __init__(self) -> None:
        self.bytes = 0  # The bytes of all base64 strings that are media.
        self.tokens = 0  # The estimated tokens of all media.
        self.count = 0
        self._open = 0  # The bytes so far of a string that continues in the next piece.
        self._head = b""  # Its first bytes.
        self._is_url = False
        self._jpeg_left = _JPEG_MOST

    def feed(self, piece: bytes) -> None:
        """Find the media in the next piece of a body."""
        at, size = 0, len(piece)
        if self._open:
            end = _end_of(piece, 0)
            self._open += end
            if end == size:
                return
            self._close()
            at = end
        sample = at
        while at < size and self.count < _MEDIA_MOST:
            is_end = sample + _SAMPLE >= size
            if is_end:  # A string may begin in the last bytes of the piece.
                sample = max(at, size - _SAMPLE)
            if not _is_base64(piece, sample):
                if is_end:
                    return
                sample += _STEP
                continue
            # The string begins after the last sample.
            start = max(at, sample - _STEP)
            before = piece[start:sample]
            others = before.translate(None, _ALPHABET)
            if others:
                start += before.rfind(others[-1:]) + 1
            end = _end_of(piece, sample)
            self._open = end - start
            self._head = piece[start : min(end, start + _JPEG_HEAD)]
            self._is_url = piece[max(0, start - len(_DATA_URL)) : start] == _DATA_URL
            if end == size:
                return
            self._close()
            at = end
            sample = at + _STEP - _SAMPLE

    def close(self) -> None:
        """End the body."""
        if self._open:
            self._close()

    def refer(self, count: int) -> None:
        """Note the number of members that refer to media, with or without their bytes."""
        self.tokens += max(0, min(count, _MEDIA_MOST) - self.count) * UNKNOWN_TOKENS

    def _close(self) -> None:
        size, head = self._open, self._head
        self._open, self._head = 0, b""
        if size < MEDIA_MIN:
            return
        data = _decoded(head[:_HEAD])
        if data[:3] == b"\xff\xd8\xff" and self._jpeg_left > 0:
            self._jpeg_left -= len(head)
            data = _decoded(head)
        tokens = _tokens(data, size * 3 // 4)
        if not tokens:
            if not self._is_url and not _is_mixed(head[:_SAMPLE]):
                return  # A long word, a number, or a repeated letter.
            tokens = _document(size * 3 // 4, _MOST)
        self.count += 1
        self.bytes += size
        self.tokens += tokens


def media_in(pieces: Sequence[bytes], size: int, kind: str) -> Media:
    """Return the media in a body of `size` bytes. `kind`: the kind of the route."""
    if len(pieces) > size // _STEP + 1:
        pieces = [b"".join(pieces)]  # A body in tiny pieces.
    found = Media()
    mark, member = _REFERENCES.get(kind, _REFERENCE)
    references = 0
    for piece in pieces:
        if size >= MEDIA_MIN:
            found.feed(piece)
        if contains(piece, mark, 0, 0, len(piece)):
            references += len(member.findall(piece))
    found.close()
    if references:
        found.refer(references)
    return found


def _is_base64(piece: bytes, at: int) -> bool:
    end = min(at + _SAMPLE, len(piece))
    # Most samples of text have another character among the first few.
    while at < end:
        if not _IN_ALPHABET[piece[at]]:
            return False
        at += 1
    return True


def _end_of(piece: bytes, start: int) -> int:
    """Return where the base64 string that begins at `start` ends."""
    size = len(piece)
    while start < size:
        window = piece[start : start + _WINDOW]
        others = window.translate(None, _ALPHABET)
        if others:
            return start + window.find(others[:1])
        start += len(window)
    return size


def _is_mixed(text: bytes) -> bool:
    """Whether the text has large and small letters and digits, as random base64 has."""
    letters = text.translate(None, _DIGITS)
    return len(letters) < len(text) and letters != letters.lower() and letters != letters.upper()


def _decoded(text: bytes) -> bytes:
    plain = text.replace(b"-", b"+").replace(b"_", b"/")
    if b"\\" in plain:
        plain = plain.replace(b"\\r", b"").replace(b"\\n", b"").replace(b"\\", b"")
    try:
        return a2b_base64(plain[: len(plain) // 4 * 4])
    except BadBase64:
        return b""


def _tokens(data: bytes, size: int) -> int:
    """Return the tokens of a medium from its first bytes; 0: its kind is unknown.

    `size`: all bytes of the medium.
    """
    if data.startswith(b"\x89PNG"):
        return _image(_big(data, 16, 4) * _big(data, 20, 4), size)
    if data.startswith(b"\xff\xd8\xff"):
        return _image(_jpeg_pixels(data), size)
    if data.startswith(b"GIF8"):
        return _image(_little(data, 6, 2) * _little(data, 8, 2), size)
    if data.startswith(b"RIFF"):
        if data[8:12] == b"WEBP":
            return _image(_webp_pixels(data), size)
        return _sound(size, _little(data, 28, 4) if data[12:16] == b"fmt " else 0)
    if data.startswith((b"ID3", b"OggS", b"\xff\xfb", b"\xff\xf3", b"\xff\xf1")):
        return _sound(size, 0)
    if data.startswith(b"fLaC"):
        return _sound(size, 8 * _SECOND_BYTES)
    if data[4:11] == b"ftypM4A":
        return _sound(size, 0)
    if data[4:8] == b"ftyp" or data.startswith((b"\x1aE\xdf\xa3", b"%PDF")):
        return _document(size, _SOUND_MOST)
    return 0


def _document(size: int, most: int) -> int:
    return max(UNKNOWN_TOKENS, min(size // _DOCUMENT, most))


def _image(pixels: int, size: int) -> int:
    """Return the tokens of an image. `pixels`: 0 if unknown."""
    if pixels <= 0 or size > pixels * _PIXEL_BYTES + _WINDOW:
        pixels = size * _PIXELS
    return max(_LEAST, min(pixels // _PATCH, _MOST))


def _sound(size: int, second_bytes: int) -> int:
    """Return the tokens of a sound. `second_bytes`: the bytes of a second; 0: unknown."""
    if not second_bytes:
        second_bytes = _SECOND_BYTES
    second_bytes = max(_SECOND_LEAST, min(second_bytes, _SECOND_MOST))
    return max(_SECOND_TOKENS, min(size * _SECOND_TOKENS // second_bytes, _SOUND_MOST))


def _jpeg_pixels(data: bytes) -> int:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(data, at + 5, 2) * _big(data, at + 7, 2)
        at += 2 + max(2, _big(data, at + 2, 2))
    return 0


def _webp_pixels(data: bytes) -> int:
    form = data[12:16]
    if form == b"VP8X":
        return (_little(data, 24, 3) + 1) * (_little(data, 27, 3) + 1)
    if form == b"VP8 ":
        return (_little(data, 26, 2) & 0x3FFF) * (_little(data, 28, 2) & 0x3FFF)
    bits = _little(data, 21, 4)
    return ((bits & 0x3FFF) + 1) * ((bits >> 14 & 0x3FFF) + 1) if form == b"VP8L" else 0


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
