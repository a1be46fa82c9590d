"""A digest of the sources of a checkout, so that stored figures are never used for other code."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]


@cache
def digest(*folders: str) -> str:
    """The hash of all Python files below these folders of the checkout, in hexadecimal."""
    found = sha256()
    for folder in folders:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()
