"""A configuration that differs from another one in a few settings. Pure.

Must never: check a value. `load` and `checks` do that for configuration files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from router.config.model import Config, Frozen


def varied(base: Config | None = None, **sections: Frozen | Mapping[str, Any]) -> Config:
    """`base` (the defaults, if it is None) with whole sections, or single settings of them.

    `varied(queue=Queue(policy="fifo"), polling={"interval_s": 5.0})`. Raises AttributeError for a
    section and TypeError for a setting that does not exist.
    """
    base = Config() if base is None else base
    found = {
        name: section
        if isinstance(section, Frozen)
        else msgspec.structs.replace(getattr(base, name), **section)
        for name, section in sections.items()
    }
    return msgspec.structs.replace(base, **found)
