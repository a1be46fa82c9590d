"""Tells which version this program is and how it was built: compiled or pure Python."""

from __future__ import annotations

from importlib.util import find_spec

# `pyproject.toml` reads it here. A process that serves does not import `importlib.metadata` for it,
# which takes 1 MB.
VERSION = "0.1.0"


def build_kind() -> str:
    """Whether the hot path is machine code; setup.py lists its modules."""
    return "compiled" if is_compiled() else "pure Python"


def is_compiled() -> bool:
    """Whether the hot path was imported, or would be, from extension modules."""
    found = find_spec("router.wire.client")
    return found is not None and not (found.origin or "").endswith(".py")
