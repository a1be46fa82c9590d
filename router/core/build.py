"""The version of this program, and whether its hot path is compiled or pure Python."""

from __future__ import annotations

from importlib.util import find_spec

# `pyproject.toml` reads the version from here. Reading it from `importlib.metadata` would cost the
# serving process 1 MB of memory.
VERSION = "0.1.0"


def build_kind() -> str:
    """Return "compiled" or "pure Python". setup.py lists the modules that can be compiled."""
    return "compiled" if is_compiled() else "pure Python"


def is_compiled() -> bool:
    """Whether the modules of the hot path are extension modules, compiled with mypyc."""
    found = find_spec("router.wire.client")
    return found is not None and not (found.origin or "").endswith(".py")
