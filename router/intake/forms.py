"""The text fields of a form (RFC 7578): audio routes name their model in one.

Each byte is looked at a fixed number of times, whatever the form holds: the parts are found with
`bytes.find`, heads are cut at their delimiters, and the number and size of what is looked into have
limits. What engines could read in another way than this file does is refused.

Must never: search with a pattern that can go back.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from router.core.errors import Reason, RouterError

PARTS: Final = 256
HEAD_BYTES: Final = 8192  # of one part
VALUE_BYTES: Final = 4096  # of a field that is asked for
PARAMETERS: Final = 16  # of one head line
_BOUNDARY_BYTES: Final = 70  # RFC 2046 section 5.1.1
_END: Final = b"\r\n\r\n"
_SPACE: Final = b" \t"


def read_form(body: bytes, content_type: bytes, wanted: Container[bytes]) -> dict[bytes, bytes]:
    """The values of the fields in `wanted` that a form in the body has.

    Raises RouterError (BAD_MULTIPART).
    """
    mark = b"--" + boundary_of(content_type)
    fields: dict[bytes, bytes] = {}
    at = 0 if body.startswith(mark) else _next(body, mark, 0)
    for _ in range(PARTS):
        if at < 0:
            raise _bad("the multipart body has no end")
        start = at + len(mark)
        if body[start : start + 2] == b"--":
            return fields
        head_end = body.find(_END, start, start + HEAD_BYTES)
        if head_end < 0:
            raise _bad(f"the head of a part has no end within {HEAD_BYTES} bytes")
        at = _next(body, mark, head_end + 2)
        name = _name(body[start:head_end])
        if name not in wanted:
            continue
        # A part that is empty may end at the line break that ends its head. Compiled, a slice that
        # ends before it begins is an error.
        value = body[head_end + 4 : max(at - 2, head_end + 4)]
        if len(value) > VALUE_BYTES:
            raise _bad(f"a field of the form is over {VALUE_BYTES} bytes")
        if fields.setdefault(name, value) != value:
            raise _bad("the form has a field twice")
    raise _bad(f"the form has more than {PARTS} parts")


def boundary_of(content_type: bytes) -> bytes:
    """The boundary that a form's Content-Type names. Raises RouterError (BAD_MULTIPART)."""
    _, given = parameters(content_type)
    boundary = given.get(b"boundary", b"")
    if not 0 < len(boundary) <= _BOUNDARY_BYTES:
        raise _bad(f"its Content-Type names no boundary of 1 to {_BOUNDARY_BYTES} bytes")
    if any(key.startswith(b"boundary*") for key in given):
        raise _bad("the boundary of the form is encoded or comes in parts")
    if _AMBIGUOUS.search(boundary) is not None:
        raise _bad('the boundary of the form has one of the characters < > " \\')
    return boundary


def _next(body: bytes, mark: bytes, start: int) -> int:
    """Where the next delimiter line begins, behind its line break; below 0: nowhere."""
    found = body.find(b"\r\n" + mark, start)
    return found + 2 if found >= 0 else -1


def _name(head: bytes) -> bytes:
    """The name of a part, from its delimiter line's rest and its head; b"": it has none."""
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


# Python's email package, which python-multipart uses up to 0.0.20, takes these characters away.
_AMBIGUOUS: Final = re.compile(rb'[<>"\\]')
PLAIN: Final = frozenset({b"7bit", b"8bit", b"binary"})


def parameters(value: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """What stands before the first `;` of a header field's value, and the parameters behind it,
    names in lower case (RFC 9110 section 5.6.6). Raises RouterError (BAD_MULTIPART): a name stands
    twice, there are too many, or a quoted value does not end."""
    first, _, rest = value.partition(b";")
    given: dict[bytes, bytes] = {}
    while rest:
        name, equals, rest = rest.partition(b"=")
        name = name.rpartition(b";")[2].strip(_SPACE).lower()  # `a; b=c`: a has no value
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
    """A quoted string's text, and what follows. A backslash is part of the text, as in the file
    names that browsers send, except before a quote."""
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
