"""Reads the context length of each model of a replica: the maximum tokens of prompt and answer.

The length is the configured one (`replicas[].max_model_len`), else the one that the replica reports
for the model. vLLM reports no length for an adapter; an adapter has the length of its model.

Pure. Must never: guess a length that the replica does not report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.fleet.engines.common.models import context_tokens


class ContextLengths:
    """The context lengths of one replica, in tokens; 0: unknown. The object never changes."""

    __slots__ = ("by_model", "usual")

    def __init__(self, by_model: Mapping[str, int], usual: int = 0) -> None:
        """`usual`: the length of all models that are not in `by_model`."""
        self.by_model = {**by_model}
        self.usual = usual

    def of(self, model: str | None) -> int:
        """Return the context length of a model; `None`: the request names no model."""
        return self.usual if model is None else self.by_model.get(model, self.usual)

    def fits(self, model: str | None, tokens: int) -> bool:
        """Whether a request with `tokens` tokens may fit. If the length is unknown, it may."""
        length = self.of(model)
        return not length or tokens <= length

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ContextLengths)
            and self.usual == other.usual
            and self.by_model == other.by_model
        )

    def __hash__(self) -> int:
        return hash((self.usual, len(self.by_model)))


UNKNOWN: Final = ContextLengths({})


def lengths_of(configured: int | None, reported: ContextLengths) -> ContextLengths:
    """Return the lengths that apply to a replica.

    `configured`: the length of all models of the replica; `None`: not configured.
    """
    return reported if configured is None else ContextLengths({}, configured)


def read_lengths(entries: Mapping[str, Mapping[str, Any]]) -> ContextLengths:
    """Return the lengths that a replica reports. `entries`: its model list, by name."""
    found: dict[str, int] = {}
    for name, entry in entries.items():
        length = context_tokens(entry)
        parent = entry.get("parent")
        if length is None and isinstance(parent, str):
            length = context_tokens(entries.get(parent, {}))
        found[name] = length or 0
    lengths = set(found.values())
    # If all lengths are equal, they also apply to names that the replica does not list.
    return ContextLengths({}, lengths.pop()) if len(lengths) == 1 else ContextLengths(found)
