"""Files for the trace readers, created by the tests, and the samples under tests/data/traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from router.lab.simulator.traffic import Arrival
from router.lab.traces import Trace, open_trace
from tests.places import DATA

DATA = DATA / "traces"
MOONCAKE = DATA / "mooncake_conversation_400.jsonl"
AZURE = DATA / "azure2023_conv_400.csv"
SAMPLES = {
    "mooncake_conversation_400.jsonl": "mooncake",
    "azure2023_conv_400.csv": "azure",
    "azure2024.csv": "azure",
    "hedgerow.log": "hedgerow",
}


def json_lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake_row(timestamp: float = 0, prompt: int = 1100, **more: Any) -> dict[str, Any]:
    row = {
        "timestamp": timestamp,
        "input_length": prompt,
        "output_length": 10,
        "hash_ids": list(range((prompt + 511) // 512)),
    }
    return row | more


def opened(folder: Path, content: str | bytes, **options: Any) -> Trace:
    """A trace of this content."""
    file = folder / "trace"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_trace(file, **options)


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
