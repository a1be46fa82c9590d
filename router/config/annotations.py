"""Reads the range, the unit and the reload rule of a setting from its annotation in `model`."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def hints(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the annotations of a section, by field."""
    return get_type_hints(cls, include_extras=True)


def without_none(kind: Any) -> tuple[Any, bool]:
    """Return (X, True) for `X | None`, and (T, False) for any other type T.

    `Annotated` is removed from the result.
    """
    if get_origin(kind) in (Union, types.UnionType):
        members = [member for member in get_args(kind) if member is not type(None)]
        if len(members) < len(get_args(kind)):
            return without_none(members[0])[0], True
    if get_origin(kind) is Annotated:
        return get_args(kind)[0], False
    return kind, False


def metas(kind: Any) -> Iterator[msgspec.Meta]:
    """Yields what `Annotated` adds to a type: ranges, its unit, and whether it needs a restart."""
    if get_origin(kind) is Annotated:
        yield from (item for item in get_args(kind)[1:] if isinstance(item, msgspec.Meta))
        yield from metas(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for member in get_args(kind):
            yield from metas(member)


def unit_of(kind: Any) -> str | None:
    """Return `units.DURATION` or `units.SIZE`; `None` if values of this type have no unit."""
    unit: str | None = _extra(kind, "unit")
    return unit


def needs_restart(kind: Any) -> bool:
    """Return whether a reload cannot change a setting or section with this annotation."""
    return _extra(kind, "restart") is not None


def is_secret(kind: Any) -> bool:
    """Return whether the value of a setting with this annotation must not be shown."""
    return _extra(kind, "secret") is not None


def _extra(kind: Any, name: str) -> Any:
    return next(
        (meta.extra[name] for meta in metas(kind) if meta.extra and name in meta.extra), None
    )


def fixed_changes(old: msgspec.Struct, new: msgspec.Struct, path: str = "") -> Iterator[str]:
    """Yields the paths of the settings that differ, and that a reload cannot change."""
    for field in msgspec.structs.fields(type(old)):
        before, after = getattr(old, field.name), getattr(new, field.name)
        kind = hints(type(old))[field.name]
        here = path + field.encode_name
        if before == after:
            continue
        if needs_restart(kind):
            yield here
        elif is_struct(kind):
            yield from fixed_changes(before, after, f"{here}.")
