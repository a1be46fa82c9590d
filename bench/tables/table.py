"""A kept table: a Markdown file whose first lines name the commit, the machine and the command.

Pure. Must never read a file or run a command.
"""

from __future__ import annotations

import re
from typing import Final

_COMMIT: Final = re.compile(r"^Measured on `([0-9a-f]{7,40})`", re.MULTILINE)


def page(name: str, command: str, commit: str, day: str, machine: str, printed: str) -> str:
    """The file of a table. `day`: the date as text; `printed`: the bench's Markdown."""
    return (
        f"# {name}\n\nMeasured on `{commit}`, {day}, on {machine}, by:\n\n"
        f"    {command}\n\n{printed.strip()}\n"
    )


def commit_of(page: str) -> str | None:
    """The commit that a table names; None: it names none."""
    found = _COMMIT.search(page)
    return None if found is None else found[1]
