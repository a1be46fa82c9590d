"""A Hedgerow that always tries the same one of two engines first, so that its engine is known.

Smooth weighted round robin with weights in the ratio 1e9: the other engine only gets requests that
must not go to the favourite, which are copies and continuations.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.machine.fleet import Engine, Hedgerow, configured

FAVOURITE, OTHER = 1e6, 1e-3  # weights in the round robin


@contextmanager
def preferring(favourite: Engine, other: Engine, folder: Path, **more: Any) -> Iterator[Hedgerow]:
    """Run such a Hedgerow. `more`: further sections of the configuration."""
    config = {
        "replicas": [
            # High limits: otherwise a long prompt in such a small cache makes the engine look full.
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
