"""What the commands show while they run and write at their end: numbers, files, a line of progress.

`why_not_writable`, `replace_file`: writes the file of a report. Must never: leave an incomplete
file.

`StatusLine`: shows the progress of a command: one line on standard error, which each new text
replaces.

Use it only if standard error is a terminal. Must never: appear in a file or a pipe.
"""

from __future__ import annotations

import os
import sys
from math import inf
from pathlib import Path


def seconds(value: float) -> str:
    """Format a time with three significant digits in ms or s: 0.5 ms, 20 ms, 3.07 s, 5,000 s, ∞."""
    if value <= 0.0:
        return "0 s"
    if value == inf:
        return "∞"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"


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


class StatusLine:
    """The line on the terminal. Close it before the command prints anything else."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, text: str) -> None:
        """Replace the line by `text`, if the text has changed."""
        if text != self._shown:
            self._shown = text
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Erase the line."""
        self.show("")
