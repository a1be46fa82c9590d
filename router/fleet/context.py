"""The context length of each model of a replica, and which length a request needs at least.

A context length is the maximum number of tokens of prompt and answer. The length is the configured
one (`replicas[].max_model_len`), else the one that the replica reports for the model. vLLM reports
no length for an adapter; an adapter has the length of its model.

The need of a request is a lower bound: its limit of output tokens, the estimated tokens of its
media, and the fewest tokens that the text of its prompt can have. These follow from its bytes and
from the largest ratio of bytes per token that was seen lately (`prefix/token_ratio.py`). So a
request that could fit is not kept away from a replica, although the router does not know the
tokenizer.

The need is rounded up to the next context length of a replica (a level). So requests for one model
have few different limits, and few queue lanes. If the context of every replica is too short, there
is no limit, and an engine answers the client.

Must never: do I/O, guess a length that the replica does not report, or decide by the state of a
replica; replicas that are down count as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from policies.allowed import Allowed, with_context
from policies.facts import RequestView
from router.fleet.engines.common.models import context_tokens
from router.fleet.prefix.token_ratio import TokenRatio


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


_MODELS: Final = 1024  # Maximum number of models whose levels are cached.
_UNKNOWN: Final = 0
TOO_LONG: Final = -1  # The context of every replica is too short.

Lengths = Callable[[str | None], Iterable[int]]
Known = Mapping[object, tuple[ContextLengths, frozenset[str] | None]]


class ContextLevels:
    """The context lengths of one fleet, by model."""

    __slots__ = ("_known", "_lengths", "_levels", "_ratio", "is_used", "shortest", "version")

    def __init__(self, lengths: Lengths, ratio: TokenRatio) -> None:
        """`lengths`: returns the context length of each replica of a model; 0: unknown."""
        self._lengths = lengths
        self._ratio = ratio
        self._known: Known = {}
        self._levels: dict[str | None, tuple[int, ...]] = {}
        self.is_used = False  # Whether the replicas of the fleet have different context lengths.
        self.shortest = 0  # The shortest known context length of any replica and model.
        self.version = 0  # Changes whenever a limit that was computed before may be outdated.

    def rebuilt(self, known: Known) -> None:
        """Use the lengths and the models of all replicas after a change of the fleet."""
        self._levels.clear()
        if known == self._known:
            return
        self._known = known
        self.version += 1
        found: set[int] = set()
        for lengths, _ in known.values():
            found.add(lengths.usual)
            found.update(lengths.by_model.values())
        self.is_used = len(found) > 1
        self.shortest = min(found - {_UNKNOWN}, default=0)

    def limited(self, view: RequestView, model: str | None) -> Allowed | None:
        """Return `view.allowed` with the context length that the request needs at a model."""
        return with_context(view.allowed, max(0, self.needed(view, model)))

    def needed(self, view: RequestView, model: str | None) -> int:
        """Return the context length that a request needs at a model.

        0: all replicas may be long enough. `TOO_LONG`: the context of every replica is too short.
        """
        if not self.is_used or not view.decodes:
            return 0
        tokens = max(view.output_limit, 0)
        if view.bounded_bytes:
            tokens += int(view.bounded_bytes / self._ratio.largest(model)) + view.media_tokens
        if tokens <= self.shortest:
            return 0
        levels = self._levels.get(model)
        if levels is None:
            if len(self._levels) >= _MODELS:  # Clients may invent names of models.
                self._levels.clear()
            levels = self._levels[model] = tuple(sorted(set(self._lengths(model))))
        known = [level for level in levels if level != _UNKNOWN]
        if not known or tokens <= known[0]:
            return 0
        for level in known:
            if tokens <= level:
                return level
        # Only a replica whose context length is unknown may be long enough.
        return known[-1] + 1 if levels[0] == _UNKNOWN else TOO_LONG
