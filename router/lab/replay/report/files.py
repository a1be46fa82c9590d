"""Writes the file of a report. Must never: leave an incomplete file."""

from __future__ import annotations

import os
from pathlib import Path


def why_not_writable(path: Path) -> str:
    """Return why a file cannot be written there; "" if it can.

    A command checks its output paths before work that may take hours.
    """
    if path.is_dir():
        return f"{path}: is a directory"
    if not path.parent.is_dir():
        return f"{path}: the directory {path.parent} does not exist"
    if not os.access(path.parent, os.W_OK):
        return f"{path}: the directory {path.parent} is not writable"
    return ""


def replace_file(path: Path, text: str) -> None:
    """Replace the file atomically: readers see the complete old or the complete new file.

    Raises OSError.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
