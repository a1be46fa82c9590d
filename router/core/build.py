"""Tells which version this program is and how it was built: compiled or pure Python."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


def program_version() -> str:
    """The version of the installed distribution; "unknown" if the sources run uninstalled."""
    try:
        return version("hedgerow")
    except PackageNotFoundError:
        return "unknown"


def build_kind() -> str:
    """Whether the hot path is machine code; setup.py lists its modules."""
    return "compiled" if is_compiled() else "pure Python"


def is_compiled() -> bool:
    """Whether the hot path was imported, or would be, from extension modules."""
    found = find_spec("router.wire.client")
    return found is not None and not (found.origin or "").endswith(".py")
