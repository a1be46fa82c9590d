"""Decodes an encoded request body while it arrives, so that the router reads what it forwards.

Two things are decoded: the coding that Content-Encoding names, and JSON in another encoding of text
than UTF-8, which FastAPI accepts (`json.loads`: a byte order mark, UTF-16, UTF-32). The replica
gets the decoded body, because no engine decodes a content coding, and because the router edits
UTF-8. A body that is text although its Content-Encoding names a coding is left as it is, because
engines ignore that field.

Each call of `read` returns at most about `STEP` bytes. So a small body that decodes to a very large
one neither blocks the event loop nor exceeds `limits.body`, which the reader of the request checks.

Must never: decode a body of an unknown path as text.
"""

from __future__ import annotations

import codecs
import sys
import zlib
from json import detect_encoding
from typing import Any, Final

from router.core.errors import Reason, RouterError
from router.core.text.beginning import is_text

STEP: Final = 64 * 1024
# Maximum bytes of a coding's window. RFC 9659 allows no larger one for zstd in HTTP.
WINDOW: Final = 8 * 1024 * 1024
_WINDOW_LOG: Final = 23
_STATE_BYTES: Final = 64 * 1024  # the memory of a decoder besides its window
_BEGIN: Final = 8  # number of first bytes that show how a body is encoded
_SUPPORTED: Final = "gzip, deflate, zstd, br"
_ALIASES: Final = {b"x-gzip": b"gzip"}


class Coding:
    """A content coding. `step` decodes the next bytes."""

    __slots__ = ("has_more", "is_over")

    def __init__(self) -> None:
        self.has_more = False  # `step` returns more without further input
        self.is_over = False  # the end of the encoded data was read

    def step(self, data: bytes) -> bytes:
        """Return at most about `STEP` bytes. Raises an exception if the data is invalid."""
        raise NotImplementedError


class _Deflate(Coding):
    __slots__ = ("_object", "_rest")

    def __init__(self, wbits: int) -> None:
        super().__init__()
        self._object: Any = zlib.decompressobj(wbits)
        self._rest = b""

    def step(self, data: bytes) -> bytes:
        found: bytes = self._object.decompress(self._rest + data, STEP)
        self._rest = self._object.unconsumed_tail
        self.is_over = self._object.eof
        self.has_more = len(found) == STEP and not self.is_over
        if self._object.unused_data:
            raise ValueError("bytes follow its end")
        return found


class _Zstd(Coding):
    __slots__ = ("_object",)

    def __init__(self) -> None:
        super().__init__()
        zstd = _zstd()
        options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        self._object: Any = zstd.ZstdDecompressor(options=options)

    def step(self, data: bytes) -> bytes:
        if self.is_over:
            if data:
                raise ValueError("bytes follow its end")
            return b""
        found: bytes = self._object.decompress(data, STEP)
        self.is_over = self._object.eof
        self.has_more = not self.is_over and not self._object.needs_input
        if self._object.unused_data:
            raise ValueError("bytes follow its end")
        return found


class _Brotli(Coding):
    __slots__ = ("_object",)

    def __init__(self, brotli: Any) -> None:
        super().__init__()
        self._object: Any = brotli.Decompressor()

    def step(self, data: bytes) -> bytes:
        found: bytes = self._object.process(data, output_buffer_limit=STEP)
        self.is_over = self._object.is_finished()
        self.has_more = bool(found) and not self.is_over
        return found


class TextDecoder:
    """Turns JSON in any encoding that `json.loads` accepts into UTF-8 without a byte order mark."""

    __slots__ = ("_begin", "_is_plain", "_object")

    def __init__(self) -> None:
        self._begin = b""
        self._is_plain = False
        self._object: Any = None

    def feed(self, data: bytes, is_last: bool) -> bytes:
        if self._is_plain:
            return data
        if self._object is None:
            data = self._begin + data
            if len(data) < _BEGIN and not is_last:
                self._begin = data
                return b""
            self._begin = b""
            name = detect_encoding(data)
            if name.startswith("utf-8"):
                self._is_plain = True
                return data[3:] if name == "utf-8-sig" else data
            self._object = codecs.getincrementaldecoder(name)("surrogatepass")
        try:
            text: str = self._object.decode(data, is_last)
        except UnicodeDecodeError as err:
            raise RouterError(Reason.BAD_JSON, f"the body is not JSON: {err.reason}") from None
        return text.encode("utf-8", "surrogatepass")


class BodyDecoder:
    """The decoder of one body. Call `feed` with its bytes, `ends` after the last, and `read`."""

    __slots__ = ("_coding", "_has_begun", "_input", "_is_last", "_name", "_text", "is_behind")

    def __init__(self, coding: bytes, *, is_json: bool) -> None:
        """`coding`: the value of Content-Encoding in lower case; b"": none."""
        self.is_behind = False  # more can be read without further input
        self._name = coding
        self._coding: Coding | None = None
        self._text = TextDecoder() if is_json else None
        self._input = b""
        self._has_begun = False
        self._is_last = False

    @property
    def held_bytes(self) -> int:
        """The memory that the decoder needs besides what it has returned."""
        return len(self._input) + _STATE_BYTES

    def feed(self, data: bytes) -> None:
        self._input += data

    def ends(self) -> None:
        """Called when the whole body was fed."""
        self._is_last = True

    def read(self) -> bytes:
        """Return the next decoded bytes; b"" if there are none.

        Raises RouterError (UNSUPPORTED_ENCODING, BAD_ENCODING, BAD_JSON).
        """
        if not self._has_begun:
            if len(self._input) < _BEGIN and not self._is_last:
                return b""
            self._has_begun = True
            if self._name and self._input and not is_text([self._input]):
                self._coding = _coding_of(self._name, self._input[0])
        data, self._input = self._input, b""
        coding = self._coding
        if coding is not None:
            try:
                data = coding.step(data)
            except Exception as err:  # each package has an exception of its own
                raise self._invalid(str(err)) from None
            self.is_behind = coding.has_more
            if self._is_last and not self.is_behind and not coding.is_over:
                raise self._invalid("it is incomplete")
        if self._text is not None:
            data = self._text.feed(data, self._is_last and not self.is_behind)
        return data

    def _invalid(self, why: str) -> RouterError:
        words = f"the body is not valid {self._name.decode('latin-1')} data: {why}"
        return RouterError(Reason.BAD_ENCODING, words)


def decoder_of(coding: bytes, *, is_json: bool, is_known: bool) -> BodyDecoder | None:
    """Return the decoder of a body with this Content-Encoding.

    Returns `None` if the body is forwarded as it is: its coding means none, or it is not supported
    and the path is unknown.
    """
    coding = _ALIASES.get(coding, coding)
    if coding in (b"", b"identity") or not (is_known or _is_supported(coding)):
        return None
    return BodyDecoder(coding, is_json=is_json)


def _is_supported(coding: bytes) -> bool:
    return coding in (b"gzip", b"deflate", b"zstd") or (coding == b"br" and _brotli() is not None)


def _coding_of(name: bytes, first: int) -> Coding:
    """Return a coding. `first`: the first encoded byte. Raises RouterError."""
    if name == b"gzip":
        return _Deflate(16 + zlib.MAX_WBITS)
    if name == b"deflate":
        # RFC 9110 section 8.4.1.2: the zlib format. Some clients send the raw format of RFC 1951,
        # in which an encoder writes no such first byte.
        return _Deflate(zlib.MAX_WBITS if first & 0x0F == 8 else -zlib.MAX_WBITS)
    if name == b"zstd":
        return _Zstd()
    brotli = _brotli() if name == b"br" else None
    if brotli is not None:
        return _Brotli(brotli)
    words = f"the Content-Encoding `{name.decode('latin-1')[:64]}` is not supported"
    if name == b"br":
        words += " without the package brotli: pip install '.[br]'"
    raise RouterError(Reason.UNSUPPORTED_ENCODING, f"{words} (supported: {_SUPPORTED})")


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _brotli() -> Any:
    """Return the module; `None` if the package is not installed."""
    try:
        import brotli
    except ImportError:
        return None
    return brotli
