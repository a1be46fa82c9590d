"""Creates a configuration that differs from another configuration in a few settings.

Must never: check a value. `load` and `checks` do that for configuration files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from router.config.model import Config
from router.config.model.setting_types import Frozen


def varied(base: Config | None = None, **sections: Frozen | Mapping[str, Any]) -> Config:
    """Return `base` (None: the default configuration) with other sections or single settings.

    For example: `varied(queue=Queue(policy="fifo"), polling={"interval_s": 5.0})`. Raises
    AttributeError if a section does not exist, and TypeError if a setting does not exist.
    """
    base = Config() if base is None else base
    found = {
        name: section
        if isinstance(section, Frozen)
        else msgspec.structs.replace(getattr(base, name), **section)
        for name, section in sections.items()
    }
    return msgspec.structs.replace(base, **found)
