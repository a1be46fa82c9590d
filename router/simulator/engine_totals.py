"""What one simulated replica did, in all its lives. Plain values.

A file of its own, which is not compiled: totals are sent from process to process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from router.emulator.core.engine_core import EngineCore


@dataclass(slots=True)
class EngineTotals:
    """What one replica did, in all its lives."""

    requests: int = 0  # that it took
    finished: int = 0
    aborted: int = 0  # given up by their routers
    prompt_tokens: int = 0  # of those that it let in ...
    cached_tokens: int = 0  # ... and found in its cache
    generated_tokens: int = 0
    preemptions: int = 0
    peak_waiting: int = 0
    busy_s: float = 0.0  # seconds in which it had something to do

    def add(self, core: EngineCore[Any]) -> None:
        """What one life came to."""
        self.requests += core.submitted
        self.finished += core.finished
        self.aborted += core.aborted
        self.prompt_tokens += core.prompt_tokens
        self.cached_tokens += core.prefix_hits
        self.generated_tokens += core.generation_tokens
        self.preemptions += core.preemptions
        self.peak_waiting = max(self.peak_waiting, core.peak_waiting)
