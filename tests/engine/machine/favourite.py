"""A Hedgerow that asks one of two engines first, every time, so that a test knows whom to hit.

Smooth weighted turns with a weight a thousand million times the other's: the other engine gets what
is not to go to the favourite, which is copies and continuations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.machine.fleet import Engine, Hedgerow, configured

FAVOURITE, OTHER = 1e6, 1e-3  # weights


@contextmanager
def preferring(favourite: Engine, other: Engine, folder: Path, **more: Any) -> Iterator[Hedgerow]:
    """`more`: further sections of the configuration."""
    config = {
        "replicas": [
            # So many at once: else a long prompt in so small a cache makes the engine look full.
            {
                "url": favourite.url,
                "id": favourite.name,
                "weight": FAVOURITE,
                "max_inflight": 64,
            },
            {"url": other.url, "id": other.name, "weight": OTHER, "max_inflight": 64},
        ],
        "routing": {"policy": "round_robin"},
        **more,
    }
    with configured(config, folder) as router:
        yield router
