"""The command `hedgerow config reference`: prints every setting, and every policy with its options.

The text of each setting comes from the comments in the source of `model`, so that a setting is
declared in one place. A test fails if a setting has no text.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec

from policies.contract import ROUTING
from policies.hedging.contract import HEDGING
from policies.queueing.contract import QUEUEING
from policies.registry import Registry, option_types
from router.config.annotations import hints, is_struct, metas, needs_restart, unit_of, without_none
from router.config.comments import comments_of, doc_of
from router.config.model import Config
from router.config.model.setting_types import Frozen
from router.config.units import DURATION, SIZE, amount_text

_TYPES = {
    str: "text",
    bool: "true or false",
    int: "whole number",
    float: "number",
    int | str: "whole number or text",
}
_REQUIRED = "required"
_UNITS = {DURATION: "duration", SIZE: "size"}

_HEAD = """\
# Configuration reference

The configuration is a YAML file. `hedgerow check FILE` reports every error in it.
A duration is written `250ms`, `30s`, `10m` or `1h30m`; a number without a unit is in seconds.
A size is written `64KiB`, `16MiB` or `1GB`; a number without a unit is in bytes.
SIGHUP, or POST /reload on the admin port, reads the file again. Settings marked *restart* cannot
change then.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. In its `path` in the file, `[]` stands for a list item and `*` for any key."""

    path: str
    type: str
    range: str
    default: str
    text: str
    restart: bool


@dataclass(frozen=True, slots=True)
class Section:
    """The settings that one class of `model` declares."""

    path: str
    text: str
    settings: tuple[Setting, ...]


def sections() -> Iterator[Section]:
    """Yields every section of the file, the top-level settings first.

    The required settings of a section come first.
    """
    yield from _sections(Config, Config(), "", restart=False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["reference"], help="print every setting, in Markdown")
    words = "print only this section or setting, such as cors or queue.limits"
    parser.add_argument("section", nargs="?", default="", help=words)


def main(args: argparse.Namespace) -> int:
    wanted = args.section
    if not wanted:
        print(page(), end="")
        return 0
    found = _within(wanted)
    if not found:
        tops = {each.path.partition(".")[0].removesuffix("[]") for each in sections()}
        names = ", ".join(sorted(tops - {""}))
        print(f"hedgerow: no section or setting {wanted!r}; sections: {names}", file=sys.stderr)
        return 2
    print("\n".join(_lines(found)), end="")
    return 0


def _within(wanted: str) -> list[Section]:
    """Return a section and those below it, or else the part of a section with one setting."""
    start = f"{wanted}.".replace("[]", "")
    found = [each for each in sections() if f"{each.path}.".replace("[]", "").startswith(start)]
    if found:
        return found
    for section in sections():
        found += [replace(section, settings=(e,)) for e in section.settings if e.path == wanted]
    return found


def page() -> str:
    """Return the reference in Markdown."""
    lines = [_HEAD, *_lines(sections())]
    for path, registry in (("routing", ROUTING), ("queue", QUEUEING), ("hedging", HEDGING)):
        lines.append(f"## Values of `{path}.policy`, each with its `{path}.options`\n")
        for name in registry.names():
            lines += _policy(name, registry)
        lines.append("")
    return "\n".join(lines)


def _lines(found: Iterable[Section]) -> list[str]:
    lines: list[str] = []
    for section in found:
        lines.append(f"## {section.path or 'Top level'}\n\n{section.text}\n")
        for each in section.settings:
            default = each.default if each.default == _REQUIRED else f"default {each.default}"
            facts = [each.type, *([each.range] if each.range else []), default]
            facts += ["*restart*"] if each.restart else []
            lines.append(f"- `{each.path}` ({', '.join(facts)}): {each.text}")
        lines.append("")
    return lines


def _policy(name: str, registry: Registry[Any]) -> Iterator[str]:
    """Yields the lines of one policy; only its name if it is third-party and not imported."""
    cls = registry.classes.get(name)
    if cls is None:
        yield f"- `{name}`: a third-party policy."
        return
    yield f"- `{name}`: {_doc(cls)}"
    kinds, texts = option_types(cls), comments_of(cls)
    for field in dataclasses.fields(cls) if kinds else ():
        if field.name in kinds:
            shown = _shown(field.default, kinds[field.name])
            yield f"  - `{field.name}` ({_type(kinds[field.name])}, default {shown}): " + (
                texts.get(field.name, "") or "see above."
            )


def _sections(
    cls: type[msgspec.Struct], defaults: msgspec.Struct | None, path: str, *, restart: bool
) -> Iterator[Section]:
    settings: list[Setting] = []
    below: list[tuple[type[msgspec.Struct], msgspec.Struct | None, str, bool]] = []
    for field in msgspec.structs.fields(cls):
        kind = hints(cls)[field.name]
        here = f"{path}.{field.encode_name}" if path else field.encode_name
        fixed = restart or needs_restart(kind)
        default = _MISSING if defaults is None else getattr(defaults, field.name)
        inner, _ = without_none(kind)
        found = _struct_in(inner)
        if found is not None:
            struct, suffix = found
            nested = default if isinstance(default, struct) else _built(struct)
            below.append((struct, nested, here + suffix, fixed))
        if not is_struct(inner) or default is None:
            text = _texts(cls).get(field.name, "")
            if not text and found is not None:
                text = _doc(found[0])
            shown = _default(field, kind, default)
            settings.append(Setting(here, _type(kind), _range(kind), shown, text, fixed))
    settings.sort(key=lambda setting: setting.default != _REQUIRED)
    yield Section(path, _doc(cls), tuple(settings))
    for struct, nested, where, fixed in below:
        yield from _sections(struct, nested, where, restart=fixed)


_MISSING = object()


def _built(struct: type[msgspec.Struct]) -> msgspec.Struct | None:
    """Return a section with its defaults; `None` if a setting of the section is required."""
    required = any(field.required for field in msgspec.structs.fields(struct))
    return None if required else struct()


def _struct_in(kind: Any) -> tuple[type[msgspec.Struct], str] | None:
    """If a setting consists of sections, returns their class, and the suffix of the setting's path.

    The suffix is empty for one section, `[]` for a list, and `.*` for a mapping.
    """
    if is_struct(kind):
        return kind, ""
    if get_origin(kind) is tuple and is_struct(get_args(kind)[0]):
        return get_args(kind)[0], "[]"
    if get_origin(kind) is dict and is_struct(get_args(kind)[1]):
        return get_args(kind)[1], ".*"
    return None


def _doc(cls: type) -> str:
    """Return the docstring of a class in one paragraph, or else the docstring of a base class."""
    return " ".join(doc_of(cls).split())


def _type(kind: Any) -> str:
    inner, _ = without_none(kind)
    unit = unit_of(kind)
    if unit is not None:
        return _UNITS[unit]
    if get_origin(inner) is Literal:
        return "one of " + ", ".join(f"`{each}`" for each in get_args(inner))
    if is_struct(inner):
        return "mapping"
    if get_origin(inner) is tuple:
        return "list"
    if get_origin(inner) is dict:
        return "mapping"
    return _TYPES.get(inner, str(inner))


def _range(kind: Any) -> str:
    unit, words = unit_of(kind), []
    for meta in metas(kind):
        for bound, word in ((meta.gt, "above"), (meta.ge, "at least"), (meta.le, "at most")):
            if bound is not None:
                words.append(f"{word} {amount_text(float(bound), unit)}")
    return " and ".join(words)


def _default(field: msgspec.structs.FieldInfo, kind: Any, default: Any) -> str:
    if default is _MISSING:
        if field.required:
            return _REQUIRED
        factory = field.default_factory
        default = factory() if callable(factory) else field.default
    return _shown(default, kind)


def _shown(default: Any, kind: Any) -> str:
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, int | float):
        return f"`{amount_text(default, unit_of(kind))}`"
    if isinstance(default, str):
        return f"`{default}`" if default else '`""`'
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    if isinstance(default, dict):
        return f"`{{{', '.join(f'{key}: {value}' for key, value in default.items())}}}`"
    return "see there"


@cache  # Each call parses the source of a section.
def _texts(cls: type[msgspec.Struct]) -> dict[str, str]:
    """Return the text of each setting of a class and of its base classes."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Frozen):
            texts.update({name: text for name, text in comments_of(base).items() if text})
    return texts
