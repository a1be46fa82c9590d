"""How this program was built: with its hot path in C, as a wheel is, or as plain Python."""

from __future__ import annotations

from importlib.util import find_spec


def is_compiled() -> bool:
    """Whether the hot path is machine code (setup.py says what that is)."""
    found = find_spec("router.wire.client")
    return found is not None and not (found.origin or "").endswith(".py")
