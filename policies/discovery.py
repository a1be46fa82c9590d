"""Imports every module of a package, so that a new policy needs only a new file, and no entry in a
list."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules


def import_modules(package: str, folders: Iterable[str]) -> None:
    """Import the modules in a package's folders (its `__path__`), in the order of their names."""
    for name in sorted(module.name for module in iter_modules(folders)):
        import_module(f"{package}.{name}")
