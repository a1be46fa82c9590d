"""Access logs for the readers, created by the tests, and the sample under tests/data/traces."""

import json
from pathlib import Path
from typing import Any

from router.lab.simulator.traffic import Arrival
from router.lab.traces import Trace
from tests.places import DATA

SAMPLE = DATA / "traces" / "hedgerow.log"


def json_lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def log_row(ts: float = 100.0, **more: Any) -> dict[str, Any]:
    """The least fields of a line of an access log."""
    row = {"ts": ts, "id": "a", "kind": "chat", "prompt_tokens": 9, "output_tokens": 3}
    return row | more


def opened(folder: Path, content: str | bytes, **options: Any) -> Trace:
    """A trace of this content."""
    file = folder / "trace"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Trace(file, **options)


def read(folder: Path, content: str | bytes, **options: Any) -> list[Arrival]:
    return list(opened(folder, content, **options))


def told(arrival: Arrival) -> tuple[Any, ...]:
    """All fields of an arrival, for comparison."""
    return _slots(arrival) + (() if arrival.logged is None else _slots(arrival.logged))


def _slots(told: object) -> tuple[Any, ...]:
    """NaN as a word, because it differs from itself."""
    names = [name for name in dir(type(told)) if not name.startswith("_") and name != "logged"]
    values = [getattr(told, name) for name in names]
    return tuple("nan" if value != value else value for value in values)
