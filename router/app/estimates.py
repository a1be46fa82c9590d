"""Reports the learned errors of TTFT estimates (time to first token), for GET /queue.

Must never: change anything, or make a request slower.
"""

from __future__ import annotations

from math import exp
from typing import Any

from router.core.estimate_cells import Cell
from router.core.ttft_estimate import STATES, TtftEstimates
from router.core.urgency import CLASSES
from router.observe.metrics import Metrics


def described(estimates: TtftEstimates, metrics: Metrics) -> dict[str, Any]:
    """Return the learned errors by priority class and state, and the coverage by priority class.

    The states (`STATES`) distinguish the circumstances of an estimate. A state with too few first
    tokens is null. Errors that are learned separately for one account are not included.
    """
    return {
        "classes": {
            name: {
                state: _cell(estimates.cells[urgency * len(STATES) + number].shared)
                for number, state in enumerate(STATES)
            }
            for urgency, name in enumerate(CLASSES)
        },
        "coverage": {
            name: {
                "estimates": counts.estimates,
                "kept": counts.estimates_kept,
                "mean_width_s": counts.estimate_width_s / counts.estimates,
            }
            for name, counts in metrics.classes.items()
            if counts.estimates
        },
    }


def _cell(cell: Cell) -> dict[str, float] | None:
    """Return the ratio of the actual to the predicted time: its median and 90 % interval."""
    interval = cell.interval
    if not interval.is_known:
        return None
    return {
        "ratio_low": exp(interval.low()),
        "ratio_median": exp(interval.middle()),
        "ratio_high": exp(interval.high()),
    }
