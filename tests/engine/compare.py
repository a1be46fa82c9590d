"""Saturated engines through the router, compared with clients spread directly over the engines.

    python -m tests.engine.compare FOLDER [MINUTES]

Two real engines with 2 and with 4 slots each; streams and whole answers; `RUNS` runs of each
through a router that got only the engines' URLs. Each routed run is made between two straight runs,
because the speed of a machine changes within minutes; every second router starts cold. The last
request of a run waits `WAIT_S` or longer. Each run is written to FOLDER when it ends, under the
measured commit. A later start continues where an earlier one stopped; no run begins after MINUTES.
The report is printed and written to FOLDER/report.txt.

"Straight" is the geometric mean of the run before and the run after. Goals: no request fails and no
engine is ejected; in each run the longest wait for a first token is at most `LONGEST` times
straight; the mean ratio of throughput (output tokens over the total time) is above `THROUGHPUT`
with 95 % confidence (Student's t over the logarithms); and the mean ratio of the median wait is at
most `MEDIAN`. All goals are reported per kind, and for all runs together.

Must never leave a run out of the report.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from time import monotonic
from typing import Any

from bench.fleet.report import aligned
from tests.engine.loads.rounds import (
    Ask,
    Engines,
    Seen,
    ask_stream,
    ask_whole,
    calibrated,
    routed,
    running_pair,
    sizes,
    straight,
)
from tests.engine.machine import environment

RUNS = 5
WAIT_S = 65.0
ASKS: dict[str, Ask] = {"streams": ask_stream, "whole answers": ask_whole}
SLOTS = (2, 4)
LONGEST, MEDIAN, THROUGHPUT = 1.2, 1.05, 0.95
# Neighbouring routed runs share a straight run, so their ratios are not independent. For five runs
# of equal variance, the variance of the mean is 0.38 of it, compared with 0.30 for independent
# runs.
SHARED = sqrt(0.38 / 0.30)
# 95 %, two-sided, by the number of values minus one, from 1 on.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
STUDENT_T += (2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)

Run = dict[str, Any]
Figures = dict[str, float]


def measured(
    engines: Engines,
    tokens: list[int],
    slots: int,
    kind: str,
    number: int,
    folder: Path,
    before: Figures,
) -> Run:
    """One routed run and the straight run after it; `before`: the straight run before it."""
    ask, cold = ASKS[kind], number % 2 == 0
    seen, light = routed(engines, ask, tokens, folder, cold=cold)
    after = _figures(straight(engines, ask, tokens))
    return {
        "slots": slots,
        "kind": kind,
        "run": number,
        "start": "cold" if cold else "after light load",
        "when": f"{datetime.now():%Y-%m-%d %H:%M}",
        "requests": len(tokens),
        "tokens": sum(tokens),
        "failed": len(seen.failed) + len(light.failed) + before["failed"] + after["failed"],
        "ejections": seen.ejections,
        "events": seen.events,
        "before": before,
        "after": after,
        "straight": {name: sqrt(before[name] * after[name]) for name in _COMPARED},
        "routed": _figures(seen),
    }


_COMPARED = ("seconds", "p50", "longest")


def _figures(seen: Seen) -> Figures:
    """Waits in seconds: of streams until the first token, of whole answers until the end."""
    waits = seen.waits_s or seen.took_s
    found = (seen.seconds, median(waits), max(waits))
    return {**dict(zip(_COMPARED, found, strict=True)), "failed": len(seen.failed)}


def main() -> None:
    folder = Path(sys.argv[1])
    until = monotonic() + 60.0 * float(sys.argv[2] if len(sys.argv) > 2 else 140.0)
    folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    file = folder / f"{commit}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    runs: list[Run] = [json.loads(line) for line in lines]
    done = {(run["slots"], run["kind"], run["run"]) for run in runs}
    built = environment.ensure()
    for slots in SLOTS:
        left = {
            kind: [number for number in range(RUNS) if (slots, kind, number) not in done]
            for kind in ASKS
        }
        if not any(left.values()) or monotonic() > until:
            continue
        with running_pair(slots, built, folder) as engines:
            for kind, numbers in left.items():
                before: Figures | None = None
                for number in numbers:
                    if monotonic() > until:
                        break
                    if before is None:
                        tokens = sizes(slots, calibrated(engines, slots, WAIT_S))
                        before = _figures(straight(engines, ASKS[kind], tokens))
                    run = measured(engines, tokens, slots, kind, number, folder, before)
                    before = run["after"]
                    runs.append(run)
                    with file.open("a") as out:
                        out.write(json.dumps(run) + "\n")
                    print(json.dumps(run), flush=True)
    text = report(commit, runs)
    (folder / "report.txt").write_text(text + "\n")
    print(text)


# -- the report --------------------------------------------------------------------------------


def report(commit: str, runs: Iterable[Run]) -> str:
    def kind_of(run: Run) -> tuple[int, str]:
        return run["slots"], run["kind"]

    rows = [
        [
            *("slots", "", "run", "start", "longest wait straight, s", "routed"),
            *("p50 straight", "routed", "tokens/s straight", "routed", "failed", "ejected"),
        ]
    ]
    verdicts = []
    ordered = sorted(runs, key=kind_of)
    for (slots, kind), group in groupby(ordered, kind_of):
        several = sorted(group, key=lambda run: int(run["run"]))
        rows += [_row(run) for run in several]
        verdicts += [f"{slots} slots, {kind}: {line}" for line in _verdicts(several)]
    verdicts += [f"all: {line}" for line in _verdicts(ordered)]
    expected = len(SLOTS) * len(ASKS) * RUNS
    return "\n".join(
        [
            f"Two saturated engines, straight and through the router, {commit}, "
            f"{datetime.now():%Y-%m-%d}: {len(rows) - 1} of {expected} runs",
            *aligned(rows, 4),
            *verdicts,
        ]
    )


def _row(run: Run) -> list[str]:
    direct, through = run["straight"], run["routed"]
    return [
        str(run["slots"]),
        run["kind"],
        str(run["run"] + 1),
        run["start"],
        *(f"{one['longest']:.1f}" for one in (direct, through)),
        *(f"{one['p50']:.1f}" for one in (direct, through)),
        *(f"{run['tokens'] / one['seconds']:.1f}" for one in (direct, through)),
        str(run["failed"]),
        f"{run['ejections']:.0f}",
    ]


def _verdicts(runs: Sequence[Run]) -> list[str]:
    longest = max(run["routed"]["longest"] / run["straight"]["longest"] for run in runs)
    p50 = _interval([run["routed"]["p50"] / run["straight"]["p50"] for run in runs])
    rates = _interval([run["straight"]["seconds"] / run["routed"]["seconds"] for run in runs])
    failed = sum(run["failed"] for run in runs)
    ejected = sum(run["ejections"] for run in runs)
    return [
        f"{failed} failed, {ejected:.0f} ejected (goal 0): {_met(not failed and not ejected)}",
        f"longest wait {longest:.2f} of straight at most (goal {LONGEST}): "
        f"{_met(longest <= LONGEST)}",
        f"p50 {p50[1]:.3f} of straight, {p50[0]:.3f} to {p50[2]:.3f} (goal {MEDIAN}): "
        f"{_met(p50[1] <= MEDIAN)}",
        f"throughput {rates[1]:.3f} of straight, {rates[0]:.3f} to {rates[2]:.3f} "
        f"(goal: above {THROUGHPUT}): {_met(rates[0] > THROUGHPUT)}",
    ]


def _met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def _interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The mean ratio between the bounds of its 95 % confidence interval. One run has no bounds."""
    logs = [log(ratio) for ratio in ratios]
    mean = fmean(logs)
    count = len(logs)
    half = inf
    if count > 1:
        half = SHARED * STUDENT_T[count - 2] * stdev(logs) / sqrt(count)
    return exp(mean - half), exp(mean), exp(mean + half)


if __name__ == "__main__":
    main()
