"""Refuses bodies with members that only a router may set (`private_members` of the engines).

Such a member makes an engine connect to an address, read foreign cache blocks or use a certain
data-parallel rank. It is refused with any value but `null`, unless `bodies.allow` has its name.
Engines read it in the body itself and in some objects of the body (`member_nests`), which may be
nested. The members of all engines are refused, because the replica is chosen later.

A body without such members costs nothing more than its decoding: the decoder's type has the
members, and allows only `null` for them. Any other value makes the decoder fail. Then, and in large
bodies, the members are found by a scan, which also finds all members of the same name.

Must never: change a body, or keep a reference to its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from router.core.errors import Reason, RouterError
from router.fleet.engines.common.registry import MEMBER_NESTS, PRIVATE_MEMBERS
from router.intake.members import MemberScan, Place
from router.intake.shapes import Members
from router.intake.stretch import Stretch

# The members that a scan has to find.
WANTED: Final = PRIVATE_MEMBERS | MEMBER_NESTS
# Number of objects inside each other that are read: `sampling_params.extra_args` needs two.
_LEVELS: Final = 2
_OBJECT: Final = 0x7B  # {
# Maximum bytes of an object whose members are searched, which takes about 14 ms at this size.
_NEST_BYTES: Final = 1024 * 1024
_ESCAPED: Final = re.compile(rb"\\u00([2-7][0-9a-fA-F])")


class MemberRules:
    """The members that clients may not send, and the decoder of bodies that enforces this."""

    __slots__ = ("_names", "decode")

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """`allowed`: the setting `bodies.allow`."""
        self._names = PRIVATE_MEMBERS.difference(allowed)
        # Decodes the members of a body. Raises msgspec.ValidationError if one is private.
        self.decode: Callable[[bytes], Members] = msgspec.json.Decoder(_decoded(self._names)).decode

    def check_places(self, body: list[bytes], places: list[Place], levels: int = _LEVELS) -> None:
        """Raises RouterError (PRIVATE_MEMBER) if one of the members at `places` is private.

        `levels`: the number of objects inside each other that are searched, too. An object that is
        too large raises UNREAD_BODY, and one that cannot be read BAD_JSON.
        """
        objects = [(body, places, levels)]
        for within, members, left in objects:  # The loop appends to the list.
            for name, _, start, end in members:
                if name not in self._names and not (left and name in MEMBER_NESTS):
                    continue
                value = Stretch(within, 0, end).narrowed(start, end)
                if name not in self._names:
                    nest, found = _members_of(name, value)
                    objects.append(([nest], found, left - 1))
                elif value.cut(0, 5) != b"null":
                    raise _refusal(name)

    def check_nest(self, name: str, value: Stretch) -> None:
        """Checks the members of the object `value`, the body's member `name`; see
        `check_places`."""
        nest, members = _members_of(name, value)
        self.check_places([nest], members, _LEVELS - 1)

    def check_form(self, found: dict[bytes, bytes]) -> None:
        """Checks the fields of a form. A text that begins like an object is read as JSON, as by
        vLLM."""
        for field, text in found.items():
            name = field.decode("latin-1")
            if name in self._names:
                raise _refusal(name)
            if name in MEMBER_NESTS:
                self.check_nest(name, Stretch([text], 0, len(text)).narrowed(0, len(text)))

    def check_text(self, text: bytes) -> None:
        """Refuses a body that the router cannot read if it contains the name of a private member.

        An engine may read it: UTF-16, or a number that is not valid JSON.
        """
        plain = _ESCAPED.sub(_unescaped, text.replace(b"\0", b""))
        for name in self._names:
            if name.encode() in plain:
                raise _refusal(name)


def _members_of(name: str, value: Stretch) -> tuple[bytes, list[Place]]:
    """Return the bytes of an object in a body, and its members in `WANTED`.

    A value that is no object has none. Raises RouterError as `check_places`.
    """
    if not value.size or value.cut(0, 1)[0] != _OBJECT:
        return b"", []
    if value.size > _NEST_BYTES:
        words = f"`{name}` is over {_NEST_BYTES} bytes, which is too long to be checked"
        raise RouterError(Reason.UNREAD_BODY, words, param=name)
    nest = value.whole()
    scan = MemberScan(WANTED)
    scan.feed(nest)
    if not scan.is_whole:
        raise RouterError(Reason.BAD_JSON, f"`{name}` cannot be read: {scan.problem}")
    return nest, scan.places


def _unescaped(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)])


def _refusal(name: str) -> RouterError:
    words = (
        f"`{name}` chooses where an engine reads or writes, so clients may not send it "
        "(the router's setting `bodies.allow` permits it)"
    )
    return RouterError(Reason.PRIVATE_MEMBER, words, param=name)


def _decoded(names: Iterable[str]) -> Any:
    """Return `Members` with the members `names`, which may only be `null`, and all nests."""
    private: list[Any] = [(name, None, None) for name in sorted(names)]
    nest: Any = None
    for _ in range(_LEVELS):
        inner = [] if nest is None else _nests(nest, MEMBER_NESTS)
        nest = msgspec.defstruct("Nest", [*private, *inner], gc=False)
    # A nest that `Members` has as raw JSON is checked by `check_nest`.
    inner = _nests(nest, MEMBER_NESTS.difference(Members.__struct_fields__))
    return msgspec.defstruct("Decoded", [*private, *inner], bases=(Members,), gc=False)


def _nests(nest: Any, names: Iterable[str]) -> list[Any]:
    # A list, such as SGLang's `sampling_params` of several prompts, has no members of its own.
    return [(name, nest | list[msgspec.Raw] | None, None) for name in sorted(names)]


DEFAULT: Final = MemberRules()
