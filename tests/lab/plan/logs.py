"""Access logs with a known demand, and a types file for them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EPOCH = 1_772_323_200.0  # 1 March 2026, 00:00 UTC: the begin of a window of any usual length
PROMPT, OUTPUT = 900, 100


def lines(
    windows: int,
    requests: Callable[[int], int],
    window_s: float = 900.0,
    model: str = "m",
    replicas: int = 2,
    **more: Any,
) -> Iterator[dict[str, Any]]:
    """`requests(n)` requests in window number n, evenly spread, to the replicas in turn."""
    number = 0
    for window in range(windows):
        count = requests(window)
        for place in range(count):
            yield {
                "ts": EPOCH + window * window_s + (place + 0.5) * window_s / count,
                "id": str(number),
                "kind": "chat",
                "model": model,
                "class": "normal",
                "stream": True,
                "exact": True,
                "status": 200,
                "reason": "ok",
                "replica": f"gpu-{number % replicas}",
                "attempts": [[f"gpu-{number % replicas}", "primary", "ok", 900.0]],
                "ttft_ms": 200.0,
                "duration_ms": 900.0,
                "prompt_tokens": PROMPT,
                "output_tokens": OUTPUT,
                **more,
            }
            number += 1


def write(path: Path, rows: Iterator[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
