"""Reads text fields of a form (RFC 7578). Requests of audio routes name their model in a form.

A form is scanned in pieces, as its bytes arrive, so no form blocks the event loop for long. The
scan time is proportional to the size of the form, for any content and any sizes of the pieces.
Delimiters are found with `bytes.find`, and the number and size of the parts that are parsed are
limited. A form that engines could read in another way than this file is refused.

Must never: use a regular expression with backtracking, or keep more of a form than its wanted
fields.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from router.core.errors import Reason, RouterError

PARTS: Final = 256
HEAD_BYTES: Final = 8192  # maximum bytes of the head of one part
VALUE_BYTES: Final = 4096  # maximum bytes of the value of a wanted field
PARAMETERS: Final = 16  # maximum number of parameters in one header line
_BOUNDARY_BYTES: Final = 70  # maximum bytes of a boundary (RFC 2046 section 5.1.1)
_BREAK: Final = b"\r\n"
_END: Final = b"\r\n\r\n"
_SPACE: Final = b" \t"

# The states of a scan: what the next byte of the form belongs to.
_TEXT: Final = 0  # the content of a part, or the text before the first delimiter
_HEAD: Final = 1  # the end of a delimiter's line, and the header lines of a part after it
_OVER: Final = 2  # bytes to ignore: after the last delimiter, or after the form was refused


def read_form(
    pieces: list[bytes], content_type: bytes, wanted: Container[bytes]
) -> dict[bytes, bytes]:
    """Return the values of the fields in `wanted`, from the pieces of a form.

    Raises RouterError (BAD_MULTIPART).
    """
    scan = FormScan(content_type, wanted)
    for piece in pieces:
        scan.feed(piece)
    return scan.fields()


class FormScan:
    """Finds the wanted fields of a form whose bytes are fed in order, in pieces of any size.

    A delimiter is a line break, two hyphens and the boundary. The line break that ends the head of
    a part may also begin the next delimiter. The first delimiter of a form may have no line break
    before it. So each text between delimiters is treated as if it began with a line break, which is
    not part of the value.
    """

    __slots__ = (
        "_before",
        "_delimiter",
        "_fields",
        "_head",
        "_is_wanted",
        "_name",
        "_parts",
        "_problem",
        "_state",
        "_tail",
        "_value",
        "_wanted",
        "places",
    )

    def __init__(self, content_type: bytes, wanted: Container[bytes]) -> None:
        self._wanted = wanted
        self._fields: dict[bytes, bytes] = {}
        # The name of each wanted field, and where its value begins and ends in the form.
        self.places: list[tuple[bytes, int, int]] = []
        self._before = 0  # total bytes of the pieces before the current piece
        self._parts = 0  # number of parts that have begun
        self._head = bytearray()  # received bytes of a part's head, from the delimiter on
        self._name = b""  # field name of the current part
        self._is_wanted = False
        self._value = bytearray()  # the text of a wanted part, with the line break before it
        self._tail = _BREAK  # the last bytes of the text so far that may begin a delimiter
        self._state = _TEXT
        self._problem = ""  # reason why the form is refused
        self._delimiter = b""
        try:
            self._delimiter = b"\r\n--" + boundary_of(content_type)
        except RouterError as err:
            self._refuse(err.message)

    def feed(self, data: bytes) -> None:
        at, size = 0, len(data)
        while at < size and self._state != _OVER:
            at = self._text(data, at) if self._state == _TEXT else self._in_head(data, at)
        self._before += size

    def fields(self) -> dict[bytes, bytes]:
        """Return the wanted fields, after the whole form was fed.

        Raises RouterError (BAD_MULTIPART).
        """
        if self._problem:
            raise _bad(self._problem)
        if self._state == _TEXT:
            raise _bad("the multipart body has no end")
        if self._state == _HEAD:
            raise _bad(_ENDLESS_HEAD)
        return self._fields

    def _text(self, data: bytes, start: int) -> int:
        """Scans the text of a part and the delimiter after it. Returns where to continue."""
        delimiter, tail, size = self._delimiter, self._tail, len(data)
        if tail:
            # Either the delimiter that may have begun in `tail` continues here, or `tail` is text.
            # A delimiter has only one CR, so no second delimiter can begin inside `tail`.
            end = start + len(delimiter) - len(tail)
            if end > size:
                end = size
            tail += data[start:end]
            if delimiter.startswith(tail):
                if len(tail) == len(delimiter):
                    self._ends(self._before + end - len(delimiter))
                else:
                    self._tail = tail
                return end
            self._keep(self._tail, 0, len(self._tail))
            self._tail = b""
        found = data.find(delimiter, start)
        if found >= 0:
            self._keep(data, start, found)
            self._ends(self._before + found)
            return found + len(delimiter)
        near = size - len(delimiter) + 1
        end = data.rfind(b"\r", max(start, near))
        if end < 0 or not delimiter.startswith(data[end:]):
            end = size
        self._keep(data, start, end)
        self._tail = data[end:]
        return size

    def _keep(self, data: bytes, start: int, end: int) -> None:
        if not self._is_wanted:
            return
        if len(self._value) + end - start > VALUE_BYTES + len(_BREAK):
            self._refuse(f"a field of the form is over {VALUE_BYTES} bytes")
        else:
            self._value += data[start:end]

    def _ends(self, at: int) -> None:
        """Called when a delimiter is complete: stores the value before it and begins a part.

        `at`: where the delimiter begins in the form.
        """
        if self._is_wanted and self._state != _OVER:
            # The text of an empty part may be shorter than a line break: the delimiter can begin
            # with the line break that ends the head. Compiled code fails for such a slice.
            value = bytes(self._value[2:]) if len(self._value) > 2 else b""
            if value:
                self.places.append((self._name, at - len(value), at))
            if self._fields.setdefault(self._name, value) != value:
                self._refuse("the form has a field twice")
        if self._parts == PARTS:
            self._refuse(f"the form has more than {PARTS} parts")
        if self._state != _OVER:
            self._parts += 1
            self._state = _HEAD
            self._tail = b""

    def _in_head(self, data: bytes, start: int) -> int:
        """Scans the head of a part, after a delimiter. Returns the index at which to continue."""
        head = self._head
        before = len(head)
        head += data[start : start + HEAD_BYTES - before]
        if head.startswith(b"--"):
            self._state = _OVER
            return len(data)
        # At most three bytes of the CRLF CRLF that ends the head were in the earlier pieces.
        end = head.find(_END, before - 3 if before > 3 else 0)
        if end < 0:
            if len(head) == HEAD_BYTES:
                self._refuse(_ENDLESS_HEAD)
            return start + len(head) - before
        try:
            self._name = _name(bytes(head[:end]))
        except RouterError as err:
            self._refuse(err.message)
            return len(data)
        head.clear()
        self._is_wanted = self._name in self._wanted
        self._value.clear()
        self._tail = _BREAK
        self._state = _TEXT
        return start + end + len(_END) - before

    def _refuse(self, problem: str) -> None:
        self._state = _OVER
        if not self._problem:
            self._problem = problem


_ENDLESS_HEAD: Final = f"the head of a part has no end within {HEAD_BYTES} bytes"


def boundary_of(content_type: bytes) -> bytes:
    """Return the boundary in a form's Content-Type. Raises RouterError (BAD_MULTIPART)."""
    _, given = parameters(content_type)
    boundary = given.get(b"boundary", b"")
    if not 0 < len(boundary) <= _BOUNDARY_BYTES:
        raise _bad(f"its Content-Type names no boundary of 1 to {_BOUNDARY_BYTES} bytes")
    if b"\r" in boundary or b"\n" in boundary:
        raise _bad("the boundary of the form has a line break")
    if any(key.startswith(b"boundary*") for key in given):
        raise _bad("the boundary of the form is encoded or comes in parts")
    if _AMBIGUOUS.search(boundary) is not None:
        raise _bad('the boundary of the form has one of the characters < > " \\')
    return boundary


def _name(head: bytes) -> bytes:
    """Return the field name of a part; b"" if the part has no name.

    `head`: the rest of the delimiter's line, and the header lines of the part.
    """
    lines = head.split(b"\r\n")
    if lines[0].strip(_SPACE):
        raise _bad("a delimiter of the form is followed by text")
    found: bytes | None = None
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t"):
            raise _bad("a head line of a part is folded")
        field, colon, value = line.partition(b":")
        if not colon:
            raise _bad("a head line of a part has no colon")
        kind = field.strip(_SPACE).lower()
        if kind == b"content-transfer-encoding" and value.strip(_SPACE).lower() not in PLAIN:
            raise _bad("a part of the form is encoded")
        if kind != b"content-disposition":
            continue
        if found is not None:
            raise _bad("a part of the form has two names")
        _, given = parameters(value)
        if any(key.startswith(b"name*") for key in given):
            raise _bad("the name of a part is encoded")
        found = given.get(b"name", b"")
        if _AMBIGUOUS.search(found) is not None:
            raise _bad('the name of a part has one of the characters < > " \\')
    return found or b""


# Python's email package, which python-multipart uses up to 0.0.20, removes these characters.
_AMBIGUOUS: Final = re.compile(rb'[<>"\\]')
PLAIN: Final = frozenset({b"7bit", b"8bit", b"binary"})


def parameters(value: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the text before the first `;` of a header field's value, and the parameters after it.

    Names are in lower case (RFC 9110 section 5.6.6). Raises RouterError (BAD_MULTIPART) for a
    repeated name, too many parameters, or an unterminated quoted value.
    """
    first, _, rest = value.partition(b";")
    given: dict[bytes, bytes] = {}
    while rest:
        name, equals, rest = rest.partition(b"=")
        # In `a; b=c`, `a` is a parameter without a value and is skipped.
        name = name.rpartition(b";")[2].strip(_SPACE).lower()
        if not equals:
            break
        rest = rest.lstrip(_SPACE)
        if rest[:1] == b'"':
            text, rest = _quoted(rest)
            rest = rest.partition(b";")[2]
        else:
            text, _, rest = rest.partition(b";")
            text = text.rstrip(_SPACE)
        if name in given or len(given) == PARAMETERS:
            raise _bad(f"a head line of the form has a parameter twice, or over {PARAMETERS}")
        given[name] = text
    return first.strip(_SPACE), given


def _quoted(rest: bytes) -> tuple[bytes, bytes]:
    """Return the text of the quoted string at the beginning of `rest`, and the bytes after it.

    A backslash before a quote is removed. Any other backslash is part of the text, as in the file
    names that browsers send.
    """
    at = 1
    while True:
        end = rest.find(b'"', at)
        if end < 0:
            raise _bad("a quoted text in the form's heads does not end")
        if rest[end - 1 : end] != b"\\":
            return rest[1:end].replace(b'\\"', b'"'), rest[end + 1 :]
        at = end + 1


def _bad(message: str) -> RouterError:
    return RouterError(Reason.BAD_MULTIPART, message)
