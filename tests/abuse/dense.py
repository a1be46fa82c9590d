"""JSON with the highest parsing cost per byte: named kinds of content, built to a size.

Each content is one value (or the beginning of one) of about `size` bytes.
"""

from collections.abc import Callable
from functools import lru_cache

MIB = 1024 * 1024


def _members(size: int) -> bytes:
    """An object in which every name is unique."""
    names: list[bytes] = []
    left = size
    while left > 0:
        names.append(b'"%x":1' % len(names))
        left -= len(names[-1]) + 1
    return b"{" + b",".join(names) + b"}"


def _list_of(unit: bytes) -> Callable[[int], bytes]:
    return lambda size: b"[" + (unit + b",") * (size // (len(unit) + 1)) + unit + b"]"


def _text_of(unit: bytes) -> Callable[[int], bytes]:
    return lambda size: b'"' + unit * (size // len(unit)) + b'"'


def _nest(opens: bytes, closes: bytes) -> Callable[[int], bytes]:
    """Nesting as deep as the content is long."""

    def build(size: int) -> bytes:
        depth = size // len(opens + closes)
        return opens * depth + b"1" + closes * depth

    return build


_CONTENTS: dict[str, Callable[[int], bytes]] = {
    "lists that do not end": lambda size: b"[" * size,
    "lists in lists": _nest(b"[", b"]"),
    "objects that do not end": lambda size: b'{"a":' * (size // 5),
    "objects in objects": _nest(b'{"a":', b"}"),
    "numbers": _list_of(b"0"),
    "lists": _list_of(b"[]"),
    "objects": _list_of(b"{}"),
    "texts": _list_of(b'""'),
    "nulls": _text_of(b"\\u0000"),
    "half surrogates": _text_of(b"\\ud800"),
    "quotes": _text_of(b'\\"'),
    "plain text": _text_of(b"x"),
    "data URLs": _text_of(b";base64,"),
    "members": _members,
    "one member": lambda size: b"{" + b'"n":1,' * (size // 6) + b'"n":1}',
    "digits": lambda size: b"9" * size,
    "spaces": lambda size: b" " * size + b"1",
}
NAMES = tuple(_CONTENTS)


@lru_cache(maxsize=24)
def dense(name: str, size: int) -> bytes:
    """The content of that name, of about `size` bytes."""
    return _CONTENTS[name](size)
