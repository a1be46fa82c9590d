"""Detects the engine of a replica from its answers.

Metric names are checked first, then `/v1/models`, then other paths. Version numbers alone are not
used, because the `/version` answers of two engines look the same.

Must never: send a request, or raise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from router.fleet.engines.common.registry import ENGINES

# Paths that the router requests, in this order, if metrics and models do not show the engine.
QUESTIONS = tuple(
    dict.fromkeys(
        path for engine in ENGINES.values() for path in engine.marks.answers if path != "/metrics"
    )
)

_PREFIXES = {prefix: engine.name for engine in ENGINES.values() for prefix in engine.marks.metrics}
_OWNERS = {e.marks.owned_by: e.name for e in ENGINES.values() if e.marks.owned_by is not None}
_FIRST = re.compile(rb"(?:\A|\n)(" + b"|".join(map(re.escape, _PREFIXES)) + rb")")


def detect(
    *,
    metrics: bytes = b"",
    owned_by: Collection[str] = (),
    answers: Mapping[str, Any] | None = None,
) -> str | None:
    """Return the name of the engine; `None`: the engine is unknown.

    `metrics`: the beginning of the engine's page of metrics. `owned_by`: the values of `owned_by`
    in the engine's model list. `answers`: path -> JSON document of a 200 answer.
    """
    found = _FIRST.search(metrics)
    if found is not None:
        return _PREFIXES[found[1]]
    names = {_OWNERS[owner] for owner in owned_by if owner in _OWNERS}
    if len(names) == 1:
        return names.pop()
    for engine in ENGINES.values():
        for path, is_it in engine.marks.answers.items():
            if answers and path in answers and is_it(answers[path]):
                return engine.name
    return None
