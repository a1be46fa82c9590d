"""Builds one JSON document of a replay, for scripts and for comparisons with other replays.

For the same traffic, scenarios and seed, everything except the member `run` is the same, byte for
byte. `run` has the date and the durations. Infinite and missing values are null.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from typing import Any

from router.lab.replay.report.findings import findings
from router.lab.replay.report.run import Replay, Run
from router.lab.replay.truth.judged import Trust

VERSION = 1  # incremented when a field changes its meaning


def document(replay: Replay) -> str:
    """Return the text of the JSON file, with a newline at its end."""
    content = {
        "version": VERSION,
        "title": replay.title,
        "facts": dict(replay.facts),
        "calibration": list(replay.calibration),
        "truth": None if replay.truth is None else _truth(replay.truth),
        "findings": findings(replay),
        "runs": [_run(run) for run in replay.runs],
        "run": {
            "date": replay.when,
            "runs": [
                {"wall_s": run.wall_s, "events_per_s": run.events / run.wall_s}
                if run.wall_s
                else {}
                for run in replay.runs
            ],
        },
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _truth(truth: Trust) -> dict[str, Any]:
    """Return the comparison of the log with the simulation.

    Times are in ms and shares in percent; errors of shares are in percentage points.
    """
    return {
        "judged": truth.is_judged,
        "trusted": truth.is_trusted,
        "rows": [
            {
                "part": row.part,
                "figure": row.name,
                "unit": row.unit,
                "requests": row.requests,
                "logged": row.logged,
                "simulated": _finite(row.simulated),
                "error": row.error,
                "off": row in truth.off,
            }
            for row in truth.rows
        ],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _run(run: Run) -> dict[str, Any]:
    scenario = run.scenario
    summary = run.summary
    return {
        "policy": run.policy,
        "replicas": scenario.replicas,
        "groups": [
            {
                "replicas": group.replicas,
                "models": group.models,
                "slots": group.core.max_num_seqs,
                "kv_tokens": group.core.num_blocks * group.core.block_size,
                "timing": group.timing.text(),  # in the syntax of `--timing`
            }
            for group in scenario.groups
        ],
        "routers": scenario.routers,
        "shared": scenario.shared,
        "seed": scenario.seed,
        "slo": asdict(summary.slo),
        "events": run.events,
        "policy_errors": run.policy_errors,
        **summary.document(),
    }
