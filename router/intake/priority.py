"""How urgent a client says its request is: body `priority`, else header `x-priority`.

A name (critical, high, normal, low, batch) or a number from 0, the most urgent, to 4; a fraction
belongs to the class nearest to it. Pure. Must never: refuse a request.
"""

from __future__ import annotations

from math import floor, isfinite
from typing import Final

import msgspec

from router.intake.fields import value_of

CLASSES: Final = ("critical", "high", "normal", "low", "batch")
_USUAL: Final = {
    written: name
    for number, name in enumerate(CLASSES)
    for written in (name.encode(), b'"%b"' % name.encode(), b"%d" % number)
}
_LONGEST: Final = 32  # bytes; no name and no sensible number is longer


def class_of(field: msgspec.Raw | None, header: bytes | None) -> str:
    """The class by name; "" where the client names none that we know."""
    written = header if field is None else bytes(field) if len(field) <= _LONGEST else b""
    if not written:
        return ""
    usual = _USUAL.get(written)
    if usual is not None:
        return usual
    value = value_of(msgspec.Raw(written)) if len(written) <= _LONGEST else None
    if isinstance(value, str):
        return value.lower() if value.lower() in CLASSES else ""
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return CLASSES[max(0, min(floor(value + 0.5), len(CLASSES) - 1))]
    word = written.decode("ascii", "replace").strip().lower()  # a header needs no quotes
    return word if word in CLASSES else ""
