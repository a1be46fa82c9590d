"""Saturated engines through the router, compared with clients spread straight over them.

    python -m tests.engine.compare FOLDER [MINUTES]

Two real engines with 2 and with 4 slots each, streams and whole answers, `RUNS` pairs of runs of
each, in turn straight and through a router that was given the engines' URLs; every second router
starts cold. The last request of a run waits `WAIT_S` or longer. Each pair is written to FOLDER as
it ends, under the commit that it measured; a later start goes on where an earlier one stopped, and
none begins a pair after MINUTES. The report is printed, and stands in FOLDER/report.txt.

Goals: nothing fails, no engine is ejected; of each pair the longest wait for a first token is at
most `LONGEST` times that of the straight run; over all pairs of a kind the mean ratio of throughput
(output tokens over the time of all) is above `THROUGHPUT` with 95 % confidence (Student's t over
the logarithms), and the mean ratio of the median wait is at most `MEDIAN`.

Must never: leave a pair out of the report.
"""

from __future__ import annotations

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
from tests.engine import environment
from tests.engine.rounds import (
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

RUNS = 5
WAIT_S = 70.0
ASKS: dict[str, Ask] = {"streams": ask_stream, "whole answers": ask_whole}
SLOTS = (2, 4)
LONGEST, MEDIAN, THROUGHPUT = 1.2, 1.05, 0.95
STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # of so many values, 95 %, both sides

Pair = dict[str, Any]


def measured(engines: Engines, slots: int, kind: str, number: int, folder: Path) -> Pair:
    """One run straight at the engines, and one through the router."""
    tokens = sizes(slots, calibrated(engines, slots, WAIT_S))
    ask, cold = ASKS[kind], number % 2 == 0
    direct = straight(engines, ask, tokens)
    seen, light = routed(engines, ask, tokens, folder, cold=cold)
    return {
        "slots": slots,
        "kind": kind,
        "run": number,
        "start": "cold" if cold else "after light load",
        "when": f"{datetime.now():%Y-%m-%d %H:%M}",
        "requests": len(tokens),
        "tokens": sum(tokens),
        "failed": len(direct.failed) + len(seen.failed) + len(light.failed),
        "ejections": seen.ejections,
        "events": seen.events,
        "straight": _figures(direct),
        "routed": _figures(seen),
    }


def _figures(seen: Seen) -> dict[str, float]:
    """Of streams to first tokens, of whole answers to their ends. Seconds."""
    waits = seen.waits_s or seen.took_s
    return {"seconds": seen.seconds, "p50": median(waits), "longest": max(waits)}


def main() -> None:
    folder = Path(sys.argv[1])
    until = monotonic() + 60.0 * float(sys.argv[2] if len(sys.argv) > 2 else 140.0)
    folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    file = folder / f"{commit}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    pairs: list[Pair] = [json.loads(line) for line in lines]
    done = {(pair["slots"], pair["kind"], pair["run"]) for pair in pairs}
    built = environment.ensure()
    for slots in SLOTS:
        left = [
            (number, kind)
            for number in range(RUNS)
            for kind in ASKS
            if (slots, kind, number) not in done
        ]
        if not left or monotonic() > until:
            continue
        with running_pair(slots, built, folder) as engines:
            for number, kind in left:
                if monotonic() > until:
                    break
                pair = measured(engines, slots, kind, number, folder)
                pairs.append(pair)
                with file.open("a") as out:
                    out.write(json.dumps(pair) + "\n")
                print(json.dumps(pair), flush=True)
    text = report(commit, pairs)
    (folder / "report.txt").write_text(text + "\n")
    print(text)


# -- the report --------------------------------------------------------------------------------


def report(commit: str, pairs: Iterable[Pair]) -> str:
    def kind_of(pair: Pair) -> tuple[int, str]:
        return pair["slots"], pair["kind"]

    rows = [
        [
            *("slots", "", "run", "start", "longest wait straight, s", "routed"),
            *("p50 straight", "routed", "tokens/s straight", "routed", "failed", "ejected"),
        ]
    ]
    verdicts = []
    for (slots, kind), group in groupby(sorted(pairs, key=kind_of), kind_of):
        several = sorted(group, key=lambda pair: int(pair["run"]))
        rows += [_row(pair) for pair in several]
        verdicts += [f"{slots} slots, {kind}: {line}" for line in _verdicts(several)]
    expected = len(SLOTS) * len(ASKS) * RUNS
    return "\n".join(
        [
            f"Two saturated engines, straight and through the router, {commit}, "
            f"{datetime.now():%Y-%m-%d}: {len(rows) - 1} of {expected} pairs of runs",
            *aligned(rows, 4),
            *verdicts,
        ]
    )


def _row(pair: Pair) -> list[str]:
    direct, through = pair["straight"], pair["routed"]
    return [
        str(pair["slots"]),
        pair["kind"],
        str(pair["run"] + 1),
        pair["start"],
        *(f"{one['longest']:.1f}" for one in (direct, through)),
        *(f"{one['p50']:.1f}" for one in (direct, through)),
        *(f"{pair['tokens'] / one['seconds']:.1f}" for one in (direct, through)),
        str(pair["failed"]),
        f"{pair['ejections']:.0f}",
    ]


def _verdicts(pairs: Sequence[Pair]) -> list[str]:
    longest = max(pair["routed"]["longest"] / pair["straight"]["longest"] for pair in pairs)
    p50 = _interval([pair["routed"]["p50"] / pair["straight"]["p50"] for pair in pairs])
    rates = _interval([pair["straight"]["seconds"] / pair["routed"]["seconds"] for pair in pairs])
    failed = sum(pair["failed"] for pair in pairs)
    ejected = sum(pair["ejections"] for pair in pairs)
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
    half = STUDENT_T[len(logs)] * stdev(logs) / sqrt(len(logs)) if len(logs) > 1 else inf
    return exp(mean - half), exp(mean), exp(mean + half)


if __name__ == "__main__":
    main()
