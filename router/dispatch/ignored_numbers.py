"""Warns of clients' priority numbers that have no meaning in their pool: one line a model.

Must never: warn of a number that came before the pool's engines could be detected, or keep the
name of a model that the fleet does not serve.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from router.fleet.dialects import UNKNOWN
from router.observe.events import log_event

PATIENCE_S: Final = 60.0  # an engine that is not detected by then may never be


class IgnoredNumbers:
    """What was warned of. It is bounded by the models of the fleet."""

    __slots__ = ("_since", "_warned")

    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # model -> the first number, of an unknown pool
        self._warned: set[str] = set()

    def ignored(self, model: str | None, models: Container[str], dialect: str, now: float) -> None:
        """A number was ignored in the pool of a model. `models`: those that the fleet knows."""
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
