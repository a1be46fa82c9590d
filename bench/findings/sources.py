"""Hashes a checkout's source files: stored figures are reused only while the hash is the same."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]


@cache
def digest(*folders: str) -> str:
    """Return the SHA-256 hash of all Python files below these folders, in hexadecimal."""
    found = sha256()
    for folder in folders:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()
