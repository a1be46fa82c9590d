"""Totals of one simulated replica, over all its restarts.

The class has its own file, which is not compiled, because totals are pickled and sent between
processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from router.lab.emulator.core.engine_core import EngineCore


@dataclass(slots=True)
class EngineTotals:
    """Totals of one replica, over all its restarts."""

    requests: int = 0  # requests that the engine accepted
    finished: int = 0
    aborted: int = 0  # requests that routers cancelled
    prompt_tokens: int = 0  # prompt tokens of scheduled requests
    cached_tokens: int = 0  # prompt tokens that were found in the prefix cache
    # Tokens computed by prefills, as in `EngineCore`. Requests that came without a router count,
    # too.
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    peak_waiting: int = 0
    busy_s: float = 0.0  # seconds with at least one request

    def add(self, core: EngineCore[Any]) -> None:
        """Add the totals of an engine core: of the current one, or of one before a restart."""
        self.requests += core.submitted
        self.finished += core.finished
        self.aborted += core.aborted
        self.prompt_tokens += core.prompt_tokens
        self.cached_tokens += core.prefix_hits
        self.prefilled_tokens += core.prefilled_tokens
        self.generated_tokens += core.generation_tokens
        self.preemptions += core.preemptions
        self.peak_waiting = max(self.peak_waiting, core.peak_waiting)
