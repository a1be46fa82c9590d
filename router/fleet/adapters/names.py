"""The model names that mean LoRA adapters. Replicas list an adapter with its model as `parent`.

Pure. Must never: decide which replicas serve an adapter; the fleet's table does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


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
