"""Formats a kept table: a Markdown file that begins with the commit, the machine and the command.

Pure. Must never read a file or run a command.
"""

from __future__ import annotations

import re
from typing import Final

_COMMIT: Final = re.compile(r"^Measured on `([0-9a-f]{7,40})`", re.MULTILINE)


def page(name: str, command: str, commit: str, day: str, machine: str, printed: str) -> str:
    """Return the content of a table's file. `printed` is the Markdown that the bench printed."""
    return (
        f"# {name}\n\nMeasured on `{commit}`, {day}, on {machine}, by:\n\n"
        f"    {command}\n\n{printed.strip()}\n"
    )


def commit_of(page: str) -> str | None:
    """Return the commit of a table, or None if its file names no commit."""
    found = _COMMIT.search(page)
    return None if found is None else found[1]
