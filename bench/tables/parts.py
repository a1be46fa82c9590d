"""Lists the benches whose tables are kept, with their commands and the traces that they need.

Must never run anything.

`page`, `commit_of`: formats a kept table: a Markdown file that begins with the commit, the machine
and the command.

Pure. Must never read a file or run a command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MOONCAKE: Final = "mooncake"
AZURE: Final = "azure"
# Paths of the trace files in the folder with all traces. The publishers chose the names.
TRACES: Final[Mapping[str, str]] = {
    MOONCAKE: "mooncake/conversation_trace.jsonl",
    AZURE: "azure2023/AzureLLMInferenceTrace_conv.csv",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A bench and its command. A word such as `{mooncake}` stands for the path of that trace."""

    name: str  # name of the file with the table
    words: tuple[str, ...]  # arguments after `hedgerow bench`
    is_timed: bool = False  # whether the figures depend on the machine

    @property
    def traces(self) -> tuple[str, ...]:
        """The traces that the command needs."""
        return tuple(name for name in TRACES if f"{{{name}}}" in self.words)

    def command(self, paths: Mapping[str, str]) -> list[str]:
        """Return `words` with the paths of the traces inserted."""
        return [paths[word[1:-1]] if word[:1] == "{" else word for word in self.words]


# Parts whose figures depend on the machine come first, before other parts heat it up.
PARTS: Final = (
    Part("overhead", ("overhead",), is_timed=True),
    Part("fleet", ("fleet",), is_timed=True),
    Part("simulator-speed", ("simulated", "speed", "--requests", "1000000"), is_timed=True),
    Part("hedging", ("hedging",), is_timed=True),
    Part("priority", ("priority",), is_timed=True),
    Part("sidecar", ("sidecar",), is_timed=True),
    Part("policies", ("simulated", "policies")),
    Part("loads", ("simulated", "loads")),
    Part("ladder", ("simulated", "ladder", "--trace", "{mooncake}")),
    Part("plan", ("plan", "--azure", "{azure}", "--mooncake", "{mooncake}")),
    Part("gain", ("gain", "--azure", "{azure}", "--mooncake", "{mooncake}")),
)


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
