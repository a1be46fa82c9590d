"""One run of a replay, as a job that can be pickled, because it runs in another process.

Must never: print.

`ProgressLine`: shows the progress of a run: one line on standard error that is overwritten at each
update.

The line is shown on a terminal only, unless it is forced, and updated at most four times per
second.

Must never: change a run, or write to a file or a pipe unless it is forced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Final, TextIO

from router.lab.replay.report.run import Run
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.summary import Summary
from router.lab.replay.truth.judged import Half, Judged
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import HasProgress
from router.lab.traces import Trace
from router.lab.traces.closed_loop import ClosedLoop

EVERY_S: Final = 0.25  # seconds between two updates of the line
CLOCK_EVERY: Final = 256  # requests between two reads of the real clock, which are expensive


class ProgressLine:
    """The `progress` callback of `simulate`. Close it after the run."""

    def __init__(
        self,
        label: str,
        source: object = None,
        *,
        forced: bool = False,
        out: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`source`: the traffic.

        If the traffic is a `HasProgress`, the line shows the share that was read and the remaining
        time.
        """
        self._out = sys.stderr if out is None else out
        self._is_shown = forced or self._out.isatty()
        self._label = label
        self._source = source if isinstance(source, HasProgress) else None
        self._clock = clock
        self._began = clock()
        self._due = self._began + EVERY_S
        self._width = 0

    def __call__(self, now: float, arrived: int, ended: int) -> None:
        if not self._is_shown or arrived % CLOCK_EVERY:
            return
        wall = self._clock()
        if wall >= self._due:
            self._due = wall + EVERY_S
            self._write(self._text(now, arrived, ended, wall - self._began))

    def close(self) -> None:
        """Erase the progress line."""
        if self._width:
            self._write("")
            self._width = 0

    def _text(self, now: float, arrived: int, ended: int, wall_s: float) -> str:
        rate = arrived / wall_s if wall_s > 0.0 else 0.0
        text = f"{self._label}: {_time(now)} simulated, {ended:,} requests, {rate:,.0f}/s"
        share = self._source.share() if self._source is not None else 0.0
        if share > 0.0:
            left_s = wall_s * (1.0 - share) / share
            text += f", {share:.0%}, {_time(left_s)} left"
        return text

    def _write(self, text: str) -> None:
        text = text[:200]
        try:
            self._out.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
            self._out.flush()
        except (OSError, ValueError):  # the stream is closed: continue without progress
            self._is_shown = False
        self._width = len(text)


def _time(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02} h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A trace file and the options for reading it."""

    path: str
    block_tokens: int | None = None
    model: str | None = None
    limit: int | None = None
    until_s: float | None = None
    speedup: float = 1.0
    # A session's next request arrives after the previous answer has ended.
    closed_loop: bool = False

    def open(self) -> Trace:
        """Open the trace. Raises TraceError, OSError, ValueError."""
        return Trace(
            self.path,
            block_tokens=self.block_tokens,
            model=self.model,
            limit=self.limit,
            until_s=self.until_s,
            speedup=self.speedup,
        )

    def traffic(self) -> Trace | ClosedLoop:
        """Return the traffic for the simulated routers. Raises the errors of `open`."""
        trace = self.open()
        return ClosedLoop(trace, speedup=self.speedup) if self.closed_loop else trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run that is to be made: a scenario, the source of its traffic, and the SLO."""

    policy: str  # the label of the candidate configuration
    scenario: Scenario
    source: Source
    slo: Slo
    half: Half | None = None  # the half of the log to compare with; None: no comparison

    def run(self, line: TextIO | None = None) -> Run:
        """Run the simulation. `line`: the stream for progress. Raises the errors of `simulate`."""
        traffic = self.source.traffic()
        summary = Summary(self.slo, self.scenario.replicas)
        label = f"{self.policy}, {self.scenario.replicas} replicas"
        progress = None if line is None else ProgressLine(label, traffic, forced=True, out=line)
        began = perf_counter()
        judged = None if self.half is None else Judged(self.half)
        recorder = summary if judged is None else _Both(summary, judged)
        totals = simulate(self.scenario, traffic, recorder, progress=progress)
        return Run(
            self.policy,
            self.scenario,
            summary,
            events=totals.events,
            policy_errors=totals.policy_errors,
            judged=() if judged is None else tuple(judged.rows()),
            notes=traffic.notes() if isinstance(traffic, ClosedLoop) else {},
            wall_s=perf_counter() - began,
        )


class _Both:
    """A recorder that passes each event to a summary and to the comparison with the log."""

    def __init__(self, summary: Summary, judged: Judged) -> None:
        self._summary = summary
        self._judged = judged

    def ended(self, outcome: Outcome) -> None:
        self._summary.ended(outcome)
        self._judged.ended(outcome)

    def sampled(self, now: float, loads: Sequence[float]) -> None:
        self._summary.sampled(now, loads)
