"""Shows the progress of a command: one line on standard error, which each new text replaces.

Use it only if standard error is a terminal. Must never: appear in a file or a pipe.
"""

from __future__ import annotations

import sys


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
