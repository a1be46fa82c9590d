"""The types of settings: their units and ranges; and the base classes of sections.

A type belongs here if several sections use it. This module declares no setting.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.units import DURATION, SIZE

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB

_LONGEST_S = 1e7  # 115 days; a longer duration is a mistake and would overflow the event loop
IS_DURATION = msgspec.Meta(extra={"unit": DURATION})
IS_SIZE = msgspec.Meta(extra={"unit": SIZE})

Restart = msgspec.Meta(extra={"restart": True})
Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S), IS_DURATION]
SecondsOrOff = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S), IS_DURATION]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
CountOrNone = Annotated[int, msgspec.Meta(ge=0)]
Bytes = Annotated[int, msgspec.Meta(ge=1), IS_SIZE]
BytesOrNone = Annotated[int, msgspec.Meta(ge=0), IS_SIZE]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


def in_file(name: str) -> str:
    """Return the name in the configuration file of the field `name`."""
    return name.removesuffix("_s")


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=in_file):
    """The base class of every section of the file.

    Subclasses repeat `frozen=True` because type checkers require it.
    """


class TokenSource(Frozen, frozen=True):
    """The base class of the sections with a token. At most one of the three settings is set."""

    token: Secret | None = None  # The token itself.
    # A file with the token. It is read at start and at every reload.
    token_file: str | None = None
    # The environment variable with the token.
    token_env: str | None = None
