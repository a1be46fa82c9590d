"""The names under which an engine exports its load to Prometheus, for `hedgerow plan`.

Must never: be needed for a request.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """PromQL selectors of one exporter's metrics."""

    model: str  # The label with the model's name.
    requests: str  # The counter of answered requests.
    prompt: str  # The counter of prompt tokens.
    cached: str  # Prompt tokens found in a cache; `prompt` counts them, too.
    output: str  # The counter of generated tokens.
    waiting: str  # The gauge of waiting requests.
    waiting_by_model: bool  # Whether `waiting` has the model's label.
    running: str = ""  # A metric with one series for each running replica; "": there is none.
    # A gauge with the number of running replicas, by model, region and type; "": there is none.
    replicas: str = ""
    region: str = ""  # The label with the region; "": there is none.
    priority: str = ""  # The label with the priority class; "": there is none.
