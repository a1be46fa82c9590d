"""Decodes dicts, lists and scalars into structs, such as those of `model`, and finds all errors.

msgspec checks the type and the range of every single value. This file walks the structs and
continues after each error, so that one run finds all invalid values and all unknown keys. An
invalid value is replaced by the field's default, or by an empty value ("" or an empty mapping) if
the field has no default. A result with errors may only be used for further checks, never as a
configuration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from router.config.annotations import hints, is_struct, unit_of, without_none
from router.config.model import Classes, Config
from router.config.model.setting_types import in_file
from router.config.problems import Problems, join
from router.config.units import DURATION, SIZE, amount_text, seconds, size_bytes

_MISSING = object()

# For each type in msgspec's error messages: the word in the messages of the router.
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_AMOUNTS = {DURATION: seconds, SIZE: size_bytes}
_EXAMPLES = {
    DURATION: "a duration such as 500ms, 30s or 1h30m",
    SIZE: "a size such as 512KiB, 64MiB or 1GB",
}
_RANGE = re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (\S+)")
_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
# Settings that had another name in earlier versions.
_RENAMED = {
    "queue.aging": "queue.batch_becomes_normal_after",
    "queue.classes": "classes",
    **{f"classes.{name}.timeout": f"classes.{name}.wait" for name in Classes.__struct_fields__},
}
# Keys that other programs have at the top of their files, and the settings to use instead.
_MEANT = {
    **dict.fromkeys(("host", "port"), "listen"),
    **dict.fromkeys(("backends", "model_list", "upstreams", "worker_urls"), "replicas"),
    **dict.fromkeys(("api_key", "token", "token_file"), "upstream.token_file"),
    "admin_port": "admin",
    "log": "access_log",
}
_RANGE_WORDS = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}


S = TypeVar("S", bound=msgspec.Struct)


def decode(cls: type[S], data: dict[str, Any], problems: Problems) -> S:
    """Return `data` decoded as a `cls`. The result is invalid if errors were added."""
    found: S = _Walk(problems, cls).struct(cls, data, "")
    return found


def explain(err: msgspec.ValidationError, unit: str | None = None) -> str:
    """Return the message of msgspec's error about one value, in the words of the file."""
    text = str(err)
    if found := _RANGE.match(text):
        return f"must be {_RANGE_WORDS[found[1]]} {amount_text(float(found[2]), unit)}"
    if found := _TYPE.match(text):
        wanted, got = (
            " or ".join(_WORDS.get(word, word) for word in group.split(" | "))
            for group in found.groups()
        )
        return f"must be {wanted}, not {got}"
    return text


def did_you_mean(key: str, known: list[str]) -> str:
    """Return a hint to append to the error message about an unknown `key`; "" if none fits."""
    near = get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


class _Walk:
    """One walk through a document. `root`: the struct of the whole, for hints about unknown keys.

    The methods return the decoded value, or _MISSING after an error in it.
    """

    def __init__(self, problems: Problems, root: type[msgspec.Struct]) -> None:
        self._problems = problems
        self._root = root

    def struct(self, cls: type[msgspec.Struct], data: Any, path: str) -> Any:
        problems, fields, kinds = self._problems, msgspec.structs.fields(cls), hints(cls)
        if data is None:  # the file has a line `limits:` without any setting below it
            data = {}
        if not isinstance(data, dict):
            if not problems.is_spoiled(path):
                problems.add(path, f"must be a mapping, not {_kind(data)}")
            data = {}
        self._check_keys(data, [field.encode_name for field in fields], path)
        values: dict[str, Any] = {}
        for field in fields:
            here = join(path, field.encode_name)
            if field.encode_name in data:
                value = self._value(kinds[field.name], data[field.encode_name], here)
                if value is not _MISSING:
                    values[field.name] = value
            elif field.required and not problems.is_spoiled(here):
                problems.add(here, "is missing")
            if field.required:
                values.setdefault(field.name, "")
        return cls(**values)

    def _check_keys(self, data: dict[str, Any], names: list[str], path: str) -> None:
        problems = self._problems
        for key in data:
            if key not in names:
                if problems.is_full:
                    break
                hint = _hint(str(key), names, path, self._root) if problems.has_hints else ""
                problems.add(join(path, str(key)), f"unknown key{hint}")

    def _value(self, kind: Any, data: Any, path: str) -> Any:
        if self._problems.is_spoiled(path):
            return _MISSING
        inner, is_optional = without_none(kind)
        if data is None and is_optional:
            return None
        if is_struct(inner):
            return self.struct(inner, data, path)
        if get_origin(inner) is tuple:
            return self._list(get_args(inner)[0], data, path)
        if get_origin(inner) is dict and _has_places(get_args(inner)[1]):
            return self._mapping(get_args(inner)[1], data, path)
        try:
            return _scalar(kind, inner, data)
        except ValueError as err:
            self._problems.add(path, str(err))
            return _MISSING

    def _list(self, item_kind: Any, data: Any, path: str) -> Any:
        if data is None:  # the file has a line `replicas:` without any item below it
            return ()
        if not isinstance(data, list | tuple):
            self._problems.add(path, f"must be a list, not {_kind(data)}")
            return _MISSING
        items = []
        for index, item in enumerate(data):
            items.append(self._value(item_kind, item, f"{path}[{index}]"))
            if self._problems.is_full:
                break
        # "" stands for an invalid item, so that the indexes in later error messages are correct.
        return tuple("" if item is _MISSING else item for item in items)

    def _mapping(self, item_kind: Any, data: Any, path: str) -> Any:
        """Decodes a mapping with any keys, whose values have the type `item_kind`."""
        if data is None:
            return {}
        if not isinstance(data, dict):
            self._problems.add(path, f"must be a mapping, not {_kind(data)}")
            return _MISSING
        items = {
            str(key): self._value(item_kind, item, join(path, str(key)))
            for key, item in data.items()
        }
        return {key: item for key, item in items.items() if item is not _MISSING}


def _scalar(kind: Any, inner: Any, data: Any) -> Any:
    """Return a single value. `inner`: `kind` without `None`. Raises ValueError if it is invalid."""
    unit = unit_of(kind)
    if isinstance(data, str) and unit is not None:
        amount = _AMOUNTS[unit](data)
        if amount is None:
            raise ValueError(f"must be {_EXAMPLES[unit]}, not {data!r}")
        data = amount
    # msgspec would accept NaN, because any comparison of NaN with a bound is false.
    if isinstance(data, float) and not math.isfinite(data):
        raise ValueError("must be a finite number")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as err:
        if get_origin(inner) is Literal:
            raise ValueError(f"must be one of {', '.join(get_args(inner))}") from None
        in_quotes = "; write it in quotes" if inner is str and isinstance(data, int) else ""
        raise ValueError(explain(err, unit) + in_quotes) from None


def _has_places(kind: Any) -> bool:
    """Return whether the values of a mapping are checked one by one, to name the key in errors."""
    return is_struct(kind) or get_origin(kind) is Literal or unit_of(kind) is not None


def _hint(key: str, siblings: list[str], path: str, root: type[msgspec.Struct]) -> str:
    """Return a hint with the key that the user probably meant instead of the unknown `key`.

    These keys are tried in this order:
    1. the new name of a renamed setting;
    2. the setting for a key that other programs have;
    3. a key of this section with nearly the same spelling;
    4. the same key in another section;
    5. a similar key of this section.
    """
    renamed = _RENAMED.get(join(path, key)) if root is Config else None
    successor = renamed or (in_file(key) if in_file(key) in siblings else None)
    if successor is not None:
        return f"; it is now {successor}"
    if root is Config and not path and key in _MEANT:
        return f"; did you mean {_MEANT[key]}?"
    if get_close_matches(key, siblings, n=1, cutoff=0.8):
        return did_you_mean(key, siblings)
    elsewhere = [known for known in _all_paths(root, "") if known.split(".")[-1] == key]
    if elsewhere and path != elsewhere[0]:
        return f"; did you mean {elsewhere[0]}?"
    return did_you_mean(key, siblings)


def _all_paths(cls: type[msgspec.Struct], path: str) -> Iterator[str]:
    for field in msgspec.structs.fields(cls):
        here = join(path, field.encode_name)
        yield here
        inner, _ = without_none(hints(cls)[field.name])
        if is_struct(inner):
            yield from _all_paths(inner, here)


def _kind(data: Any) -> str:
    if data is None:
        return _WORDS["null"]
    names = {str: "str", bool: "bool", int: "int", float: "float", list: "array", dict: "object"}
    return _WORDS[names[type(data)]] if type(data) in names else type(data).__name__
