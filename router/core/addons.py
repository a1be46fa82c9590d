"""Finds an addon by its name, and imports it only if a setting or a command needs it.

The router's own addons are the folders of `router/addons`. Other packages register theirs in the
entry-point group `hedgerow.addons`; the entry point's name is the addon's name.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from router.core.errors import ConfigError

GROUP: Final = "hedgerow.addons"
_PACKAGE: Final = "router.addons"


def load(name: str, wanted_by: str) -> ModuleType:
    """Imports the addon `name`.

    `wanted_by`: the setting or the command that needs the addon. Raises ConfigError if the addon
    is missing, or a package that the addon imports.
    """
    module = f"{_PACKAGE}.{name}"
    try:
        return import_module(module)
    except ModuleNotFoundError as err:
        if err.name not in (_PACKAGE, module):
            raise ConfigError(
                [f"{wanted_by}: the addon {name} needs the package {err.name}"]
            ) from None
    # Imported here, because the import takes longer than all others of this file together.
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        found = entry.load()
        assert isinstance(found, ModuleType)
        return found
    raise ConfigError([f"{wanted_by}: needs the addon {name}, which is not installed"])
