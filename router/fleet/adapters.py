"""LoRA adapters: which model names mean adapters, and which adapters a replica has in memory.

Replicas list an adapter with its model as `parent`. An engine lists all its adapters in /v1/models,
and can serve each of them. But only a few fit into the memory of its GPU at once: `max_loras` in
vLLM, `max_loras_per_batch` in SGLang. A request for another adapter waits until the engine has
loaded it. Both engines replace the adapter that was used least recently, so the router keeps the
same order from its own requests. vLLM also reports which adapters run (`vllm:lora_requests_info`);
these count as used at the time of the poll.

Pure. Must never: make a replica ineligible, or decide which replicas serve an adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final


class AdapterNames:
    """The names of models, as requests are routed, that mean adapters."""

    __slots__ = ("_by_model", "is_used")

    def __init__(self) -> None:
        self._by_model: dict[str, str] = {}
        self.is_used = False  # Whether any replica of the fleet lists an adapter.

    def rebuilt(self, listed: Iterable[frozenset[str]], targets: Mapping[str, str]) -> None:
        """Use the adapters of all replicas after a change of the fleet.

        `listed`: the adapters that each replica lists. `targets`: the model of each `model@pool`.
        """
        found: set[str] = set()
        for names in set(listed):
            found |= names
        self._by_model = {name: name for name in found}
        for routed, model in targets.items():
            if model in found:
                self._by_model[routed] = model
        self.is_used = len(found) > 0

    def of(self, model: str | None) -> str:
        """Return the adapter that requests for a model use; "": none."""
        return "" if model is None else self._by_model.get(model, "")


# The number of adapters that fit into the memory of an engine that does not report it: the default
# of SGLang's `max_loras_per_batch`.
_SLOTS: Final = 8
# Maximum number of adapters that are remembered of one replica, whatever the engine reports.
SLOTS_MOST: Final = 4096
# Maximum characters of an adapter's name. A request with a longer name of a model is refused.
NAME_CHARS: Final = 256


class LoadedAdapters:
    """The adapters in the memory of one replica, the least recently used one first."""

    __slots__ = ("_names", "slots")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self.slots = _SLOTS  # Maximum number of adapters in memory at once.

    def use(self, name: str) -> None:
        """Note that a request for an adapter is sent to the replica."""
        names = self._names
        names.pop(name, None)
        names[name] = None
        if len(names) > self.slots:
            self._trim()

    def reported(self, running: Iterable[str], slots: int | None) -> None:
        """Note the adapters that run, and how many fit into the memory (`None`: unknown).

        Names with more than NAME_CHARS characters are ignored.
        """
        if slots:
            self.slots = min(slots, SLOTS_MOST)
        for name in sorted(running):
            if len(name) <= NAME_CHARS:
                self.use(name)
        self._trim()

    def holds(self, name: str) -> bool:
        return name in self._names

    @property
    def is_full(self) -> bool:
        """Whether another adapter replaces one of these."""
        return len(self._names) >= self.slots

    def clear(self) -> None:
        """Forget all adapters: the engine was restarted, or sleeps."""
        self._names.clear()

    def _trim(self) -> None:
        names = self._names
        while len(names) > self.slots:
            del names[next(iter(names))]
