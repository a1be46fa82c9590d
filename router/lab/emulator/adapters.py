"""The LoRA adapters of one emulated engine: which of them are in the GPU's memory.

The adapter that was used least recently is replaced, as in vLLM and SGLang. Adapters of running
requests may be replaced, too; the real engines let the new request wait instead.
"""

from __future__ import annotations


class AdapterPool:
    """The adapters in memory, the least recently used one first."""

    def __init__(self, slots: int, load_s: float) -> None:
        """`slots`: maximum number of adapters. `load_s`: seconds to load one."""
        self._slots = slots
        self._load_s = load_s
        self._names: dict[str, None] = {}
        self.loads = 0  # how often an adapter was loaded

    @property
    def used(self) -> int:
        return len(self._names)

    def use(self, name: str) -> float:
        """Use an adapter for a request. Returns the seconds by which loading delays the request."""
        is_loaded = name in self._names
        self._names.pop(name, None)
        self._names[name] = None
        if is_loaded:
            return 0.0
        if len(self._names) > self._slots:
            del self._names[next(iter(self._names))]
        self.loads += 1
        return self._load_s
