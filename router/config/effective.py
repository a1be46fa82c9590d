"""Prints the configuration in force as YAML: the file, the flags and all defaults, without secrets.

The text has the form of the configuration file. It can be read as one, except that the values of
secrets are replaced. Settings that are unset are left out.

Must never: print a secret.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
import yaml

from router.config.annotations import hints, is_secret, is_struct, unit_of
from router.config.model import Config
from router.config.units import DURATION, SIZE, amount_text, seconds, size_bytes

HIDDEN: Final = "(hidden)"
_READERS: Final = {DURATION: seconds, SIZE: size_bytes}


def as_yaml(config: Config) -> str:
    """Return the configuration as YAML text."""
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
