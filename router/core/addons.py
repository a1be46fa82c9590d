"""Finds an addon by its name, and imports it only if a setting or a command needs it.

The addons are the folders of `router/addons`. Another package may take the place of a missing one
by an entry point of the group `hedgerow.addons` with the addon's name.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

from router.core.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

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
    for entry in _registered(name):
        found = entry.load()
        assert isinstance(found, ModuleType)
        return found
    raise ConfigError([f"{wanted_by}: needs the addon {name}, which is not installed"])


def is_installed(name: str) -> bool:
    """Return whether `load` would find the addon `name`. Does not import it."""
    has_any = find_spec(_PACKAGE) is not None
    return (has_any and find_spec(f"{_PACKAGE}.{name}") is not None) or bool(_registered(name))


def _registered(name: str) -> EntryPoints:
    # Imported here, because the import takes longer than all others of this file together.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP, name=name)
