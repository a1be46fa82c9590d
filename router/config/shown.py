"""Shows a configuration: all of it as YAML, or the differences between two, as texts for the log.

The YAML has the form of the configuration file, with the file, the flags and all defaults. It can
be read as one, except that the values of secrets are replaced. Unset settings are left out.

Must never: show a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

import msgspec
import yaml

from router.config.annotations import hints, is_secret, is_struct, unit_of
from router.config.keys import KeyLine
from router.config.model import Config
from router.config.units import DURATION, SIZE, amount_text, seconds, size_bytes

TEXTS_MAX: Final = 20
_VALUE_CHARS: Final = 100
HIDDEN: Final = "(hidden)"
_READERS: Final = {DURATION: seconds, SIZE: size_bytes}


def as_yaml(config: Config) -> str:
    text: str = yaml.safe_dump(_section(config), sort_keys=False, allow_unicode=True)
    return text


def _section(section: msgspec.Struct) -> dict[str, Any]:
    kinds = hints(type(section))
    return {
        field.encode_name: shown(value, kinds[field.name])
        for field in msgspec.structs.fields(type(section))
        if (value := getattr(section, field.name)) is not None
    }


def shown(value: Any, kind: Any = None) -> Any:
    """Return a value as in the file, without secrets. `kind`: the annotation of its setting."""
    if is_secret(kind):
        return HIDDEN if value else value
    if is_struct(type(value)):
        return _section(value)
    if isinstance(value, tuple | list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        inner = (*get_args(kind), None, None)[1]  # The type of the values.
        return {name: shown(item, inner) for name, item in value.items()}
    unit = unit_of(kind)
    if unit is not None:
        text = amount_text(value, unit)
        # A number without a unit is in seconds or bytes, if the text would round it.
        return text if _READERS[unit](text) == value else value
    return value


def changes(before: Config, after: Config) -> list[str]:
    """Return one text for each setting that differs, at most `TEXTS_MAX` and their rest."""
    return _limited(list(_sections(before, after, "")))


def key_changes(before: Iterable[KeyLine], after: Iterable[KeyLine]) -> list[str]:
    """Return one text for each API key that differs, at most `TEXTS_MAX` and their rest."""
    old, new = _by_name(before), _by_name(after)
    return _limited(list(_named(old, new, "key", None)))


def _by_name(lines: Iterable[KeyLine]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in lines:
        found.setdefault(line.name, []).append(line)
    return found


def _limited(texts: list[str]) -> list[str]:
    left = len(texts) - TEXTS_MAX
    return texts if left <= 0 else [*texts[:TEXTS_MAX], f"and {left} more"]


def _sections(before: msgspec.Struct, after: msgspec.Struct, path: str) -> Iterator[str]:
    kinds = hints(type(after))
    for field in msgspec.structs.fields(type(after)):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new:
            yield from _setting(old, new, path + field.encode_name, kinds[field.name])


def _setting(old: Any, new: Any, path: str, kind: Any) -> Iterator[str]:
    if is_secret(kind):
        yield f"{path} changed"
    elif type(old) is not type(new):
        yield f"{path}: {_text(old, kind)} -> {_text(new, kind)}"
    elif is_struct(type(new)):
        yield from _sections(old, new, f"{path}.")
    elif isinstance(new, dict):
        yield from _named(old, new, path, (*get_args(kind), None, None)[1])
    elif isinstance(new, tuple) and all(hasattr(item, "id") for item in (*old, *new)):
        # The replicas have IDs.
        by_id = [{item.id: item for item in items} for items in (old, new)]
        yield from _named(by_id[0], by_id[1], path, None)
    else:
        yield f"{path}: {_text(old, kind)} -> {_text(new, kind)}"


def _named(old: Mapping[str, Any], new: Mapping[str, Any], path: str, kind: Any) -> Iterator[str]:
    """Yields the differences of items that have names.

    `kind`: the annotation of the values; `None`: a value that is no section is not shown.
    """
    for name in new:
        if name not in old:
            yield f"{path} {name} added"
        elif new[name] == old[name]:
            continue
        elif is_struct(type(new[name])):
            yield from _sections(old[name], new[name], f"{path} {name}: ")
        elif kind is None:
            yield f"{path} {name} changed"
        else:
            yield from _setting(old[name], new[name], f"{path} {name}", kind)
    yield from (f"{path} {name} removed" for name in old if name not in new)


def _text(value: Any, kind: Any) -> str:
    text = "unset" if value is None else str(shown(value, kind))
    return text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"
