"""Logs one warning per model if clients send priority numbers in bodies and these are ignored.

The meaning of a number depends on the engines of the model's pool, which is the set of replicas
that serve the model.

Must never: warn while the engines of the pool may still be detected, or keep the name of a model
that the fleet does not serve.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from router.fleet.dialects import UNKNOWN
from router.observe.events import log_event

PATIENCE_S: Final = 60.0  # Seconds within which the engines of a pool are usually detected.


class IgnoredNumbers:
    """Records for which models the warning was logged.

    The size of the record is bounded by the number of served models.
    """

    __slots__ = ("_since", "_warned")

    def __init__(self) -> None:
        # For each model, the time of the first ignored number while the pool's dialect was unknown.
        self._since: dict[str, float] = {}
        self._warned: set[str] = set()

    def ignored(self, model: str | None, models: Container[str], dialect: str, now: float) -> None:
        """Handle a client's priority number that is ignored. Logs the warning if it is due.

        `models`: the models that the fleet serves. `dialect`: the pool's priority dialect.
        """
        name = model if model is not None and model in models else ""
        if name in self._warned:
            return
        if dialect == UNKNOWN and now - self._since.setdefault(name, now) < PATIENCE_S:
            return
        self._since.pop(name, None)
        self._warned.add(name)
        log_event(
            logging.WARNING,
            "priority numbers in request bodies are ignored: set priority.dialect",
            key=f"ignored {name}",
            model=name or None,
            dialect=dialect,
        )
