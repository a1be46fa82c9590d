"""The benches whose tables are kept: the command of each, and the traces that it needs.

Pure values. Must never run anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MOONCAKE: Final = "mooncake"
AZURE: Final = "azure"
# The files as their publishers name them, below the folder with all traces.
TRACES: Final[Mapping[str, str]] = {
    MOONCAKE: "mooncake/conversation_trace.jsonl",
    AZURE: "azure2023/AzureLLMInferenceTrace_conv.csv",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One command. A word `{mooncake}` stands for the path of that trace."""

    name: str  # of the file with its table
    words: tuple[str, ...]  # after `hedgerow bench`
    is_timed: bool = False  # whether its figures depend on the machine

    @property
    def traces(self) -> tuple[str, ...]:
        """The traces that the command needs."""
        return tuple(name for name in TRACES if f"{{{name}}}" in self.words)

    def command(self, paths: Mapping[str, str]) -> list[str]:
        """The words with the paths of the traces."""
        return [paths[word[1:-1]] if word[:1] == "{" else word for word in self.words]


# Parts that measure the machine come first, while nothing else has warmed it up.
PARTS: Final = (
    Part("overhead", ("overhead",), is_timed=True),
    Part("fleet", ("fleet",), is_timed=True),
    Part("simulator-speed", ("simulated", "speed", "--requests", "1000000"), is_timed=True),
    Part("hedging", ("hedging",), is_timed=True),
    Part("priority", ("priority",), is_timed=True),
    Part("policies", ("simulated", "policies")),
    Part("loads", ("simulated", "loads")),
    Part("ladder", ("simulated", "ladder", "--trace", "{mooncake}")),
    Part("plan", ("plan", "--azure", "{azure}", "--mooncake", "{mooncake}")),
    Part("gain", ("gain", "--azure", "{azure}", "--mooncake", "{mooncake}")),
)
