"""A Hedgerow that asks one of two engines first, every time, so that a test knows whom to hit.

Smooth weighted turns with a weight a thousand million times the other's: the other engine gets what
is not to go to the favourite, which is copies and continuations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.engine.fleet import Engine, Hedgerow

FAVOURITE, OTHER = 1e6, 1e-3  # weights


@contextmanager
def preferring(favourite: Engine, other: Engine, folder: Path, **more: Any) -> Iterator[Hedgerow]:
    """`more`: further sections of the configuration."""
    config = {
        "replicas": [
            {"url": favourite.url, "id": favourite.name, "weight": FAVOURITE},
            {"url": other.url, "id": other.name, "weight": OTHER},
        ],
        "routing": {"policy": "round_robin"},
        **more,
    }
    file = folder / "hedgerow.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    router = Hedgerow([], folder / "hedgerow.log", "--config", str(file))
    with ExitStack() as stack:
        stack.callback(router.kill)
        router.start()
        router.wait_until_ready()
        yield router
