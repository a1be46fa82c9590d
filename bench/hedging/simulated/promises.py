"""Judges the goals of hedging in each case, by confidence intervals over paired seeds.

Three contestants get the same traffic and the same slow times: no hedging, hedging, and hedging
*again*, whose routers draw other random numbers. The third contestant only measures the noise: the
difference between two runs of the same contestant. A goal is met, missed or open, as in
`bench.findings.intervals`. It must be possible to miss every goal: the tests judge a policy that
copies every request and a policy that never copies one.

`Figures`, `Measured`: computes the figures of one run that the goals compare.

Prefill tokens are all prompt tokens that the engines computed, also for copies that were cancelled
and for prefixes that were no longer cached. Tokens of other clients (neighbours) are subtracted.

Must never count a request outside the measured time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

from bench.findings.found import Found
from bench.findings.intervals import OPEN, noise
from bench.findings.judged import Judged, judged_ratio, judged_share
from bench.findings.stored import Store
from bench.hedging.simulated import nodes
from bench.hedging.simulated.nodes import CASES, Case, Length, task
from bench.hedging.simulated.world import Result, Task
from router.config.model import Hedging
from router.core.text.table import Column, build
from router.lab.simulator.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. Times are in seconds, and infinite if too many requests failed."""

    requests: int  # number of measured requests that may be hedged
    p50: float  # TTFT of requests that may be hedged; also `p99` and `slowest`
    p99: float
    slowest: float
    other_p99: float  # TTFT of all other requests
    hedged: int
    won: int
    copy_tokens: int  # prompt tokens of all copies that were not cached, counted by the router
    prefilled_tokens: int  # computed by all engines in the whole run, warm-up included
    preemptions: int  # preemptions in all engines in the whole run

    @classmethod
    def of(cls, task: Task, result: Result) -> Figures:
        urgent, other = result.of(nodes.URGENT), result.of(nodes.OTHER)
        totals = result.totals
        foreign = sum(one.prompt_tokens for one in task.scenario.neighbours)
        return cls(
            urgent.requests,
            *(_known(urgent.ttft(q)) for q in (0.5, 0.99, 1.0)),
            _known(other.ttft(0.99)),
            urgent.hedged,
            urgent.won,
            totals.hedges.fired_tokens,
            sum(engine.prefilled_tokens for engine in totals.engines) - foreign,
            sum(engine.preemptions for engine in totals.engines),
        )


def _known(ttft_s: float | None) -> float:
    return inf if ttft_s is None else ttft_s


@dataclass(frozen=True, slots=True)
class Measured:
    """A simulation task that returns `Figures`."""

    task: Task

    @property
    def policy(self) -> str:
        return self.task.policy

    @property
    def scenario(self) -> Scenario:
        return self.task.scenario

    def run(self, line: TextIO | None = None) -> Figures:
        """Simulate and return the figures; `line` is not used. Raises the errors of `simulate`."""
        return Figures.of(self.task, self.task.run(line))


OFF, ON = Hedging(policy="off"), Hedging()
WITHOUT, WITH, AGAIN = "without", "with", "again"
CUT, SLOWER, OTHERS_SLOWER, BOUND = 0.6, 0.02, 0.03, 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """The runs with one hedging configuration in one case: figures in the order of the seeds."""

    case: Case
    label: str
    figures: Sequence[Figures]

    def each(self, of: Callable[[Figures], float]) -> list[float]:
        return [of(one) for one in self.figures]


Rows = dict[tuple[str, str], Row]  # keys: (name of the case, "without", "with" or "again")


def measure(
    cases: Sequence[Case],
    hedging: Hedging,
    length: Length,
    *,
    seed: int = 1,
    jobs: int = 1,
    store: Store[Figures] | None = None,
    say: Callable[[str], None] | None = None,
) -> Rows:
    """Run these cases without hedging, with hedging, and with hedging again. Raises the errors of
    `Store.run`.
    """
    store = store or Store(None, Figures)
    ways = ((WITHOUT, OFF, False), (WITH, hedging, False), (AGAIN, hedging, True))
    rows: Rows = {}
    for case in cases:
        rate = case.rate(length)
        found: dict[str, list[Figures]] = {label: [] for label, *_ in ways}
        for number in range(seed, seed + length.seeds):
            if say is not None:
                say(f"{case.name}, seed {number}")
            tasks = [
                Measured(task(case, label, rules, rate, number, length, again))
                for label, rules, again in ways
            ]
            for (label, *_), one in zip(ways, store.run(tasks, jobs), strict=True):
                found[label].append(one)
        for label, figures in found.items():
            rows[case.name, label] = Row(case, label, figures)
    return rows


def run(
    *,
    seed: int = 1,
    jobs: int = 1,
    length: Length | None = None,
    path: Path | None = None,
    cases: Sequence[Case] = CASES,
    say: Callable[[str], None] | None = None,
) -> Found:
    """Return a table of the cases with the verdicts. Finished runs are kept in the file `path`."""
    length = length or Length()
    rows = measure(cases, ON, length, seed=seed, jobs=jobs, store=Store(path, Figures), say=say)
    rate = nodes.saturation(length.replicas)
    shown = [row for row in rows.values() if row.label != AGAIN]
    return Found(
        "Hedging with stragglers that occupy their engine",
        f"{length.nodes} nodes of {nodes.PER_NODE} replicas, each an 8B model on an A100; all "
        f"settings are the defaults, the queue included. {nodes.GROUPS_EACH * length.replicas} "
        f"prefixes of about 2,000 tokens, questions of 1,000; {rate:.1f} requests/s saturate the "
        f"fleet if every prefix is cached, the load is half of it where nothing else is said. "
        f"{nodes.URGENT_SHARE:.0%} of the requests are of the class {nodes.URGENT}, the only one "
        f"that may be hedged. Stragglers: 5 % of the time of each replica (or node). Each row is "
        f"the mean of {length.seeds} seeds of {length.measured_s:g} s after {length.warm_s:g} s "
        "that are not counted. Prefill tokens are those that the engines computed. Verdicts are "
        "95 % intervals of the paired seeds; the noise is hedging against itself with other random "
        "numbers of the router.",
        build(shown, _columns(rows), group=lambda row: row.case.name),
        remarks=[_noise_words(rows, case) for case in cases],
        verdicts=judge(rows),
        figures={
            "runs": [
                {
                    "case": row.case.name,
                    "hedging": row.label,
                    "seeds": [_plain(one) for one in row.figures],
                }
                for row in rows.values()
            ]
        },
    )


def judge(rows: Rows) -> list[Judged]:
    """Judge every goal of the cases in `rows`."""
    return [
        verdict
        for row in rows.values()
        if row.label == WITHOUT
        for verdict in _judged(rows, row.case)
    ]


def _judged(rows: Rows, case: Case) -> list[Judged]:
    name = f"{case.name}: {nodes.URGENT}"
    found = [_p99(rows, case, name)]
    found.append(
        _against(
            rows, case, f"{case.name}: others, p99 TTFT", _other_p99, OTHERS_SLOWER, "+3 % at most"
        )
    )
    budget = ON.budget
    words = f"+{budget:.0%} at most"
    found.append(
        _against(rows, case, f"{case.name}: prefill tokens of the engines", _tokens, budget, words)
    )
    if case.promise == "kept":
        copies = rows[case.name, WITH].each(_copies)
        base = rows[case.name, WITHOUT].each(_tokens)
        shares = [copy / all_ for copy, all_ in zip(copies, base, strict=True)]
        found.append(
            judged_share(f"{case.name}: tokens of copies", f"{budget:.0%} at most", shares, budget)
        )
    return found


def _p99(rows: Rows, case: Case, name: str) -> Judged:
    if case.promise == "cut":
        found = _against(rows, case, f"{name}, p99 TTFT", _own_p99, -CUT, f"−{CUT:.0%} or better")
        return _within_reach(found, rows, case)
    if case.promise == "kept":
        return _against(rows, case, f"{name}, p99 TTFT", _own_p99, SLOWER, f"+{SLOWER:.0%} at most")
    calm = rows.get(("calm", WITHOUT))
    return judged_ratio(
        f"{name}, slowest",
        f"{BOUND:g} × p99 of calm at most",
        rows[case.name, WITH].each(_slowest),
        calm.each(_own_p99) if calm is not None else [],
        BOUND,
        _noise(rows, case, _slowest),
    )


def _within_reach(found: Judged, rows: Rows, case: Case) -> Judged:
    """A missed goal counts as open if even the p99 of the case `calm` would miss it."""
    calm = rows.get(("calm", WITHOUT))
    base = fmean(rows[case.name, WITHOUT].each(_own_p99))
    if not found.missed or calm is None or not 0.0 < base < inf:
        return found
    floor = fmean(calm.each(_own_p99)) / base
    if floor <= found.limit:
        return found
    return replace(found, state=OPEN, out_of_reach=f"{floor - 1.0:+.0%} without stragglers")


def _against(
    rows: Rows, case: Case, name: str, of: Callable[[Figures], float], change: float, goal: str
) -> Judged:
    """Judge that a figure with hedging, divided by the figure without, is at most 1 + `change`."""
    ours, theirs = (rows[case.name, label].each(of) for label in (WITH, WITHOUT))
    return judged_ratio(name, goal, ours, theirs, 1.0 + change, _noise(rows, case, of))


def _noise(rows: Rows, case: Case, of: Callable[[Figures], float]) -> float:
    """The noise of a figure: how much two runs with hedging differ. Infinite if it is unknown."""
    first, second = (rows[case.name, label].each(of) for label in (WITH, AGAIN))
    if not all(0.0 < one < inf for one in (*first, *second)):
        return inf
    return noise(first, second)


def _noise_words(rows: Rows, case: Case) -> str:
    named = (("p99", _own_p99), ("others' p99", _other_p99), ("prefill tokens", _tokens))
    words = ", ".join(f"{what} {_noise(rows, case, of):.1%}" for what, of in named)
    return f"{case.name}: noise of {words}"


def _own_p99(one: Figures) -> float:
    return one.p99


def _other_p99(one: Figures) -> float:
    return one.other_p99


def _slowest(one: Figures) -> float:
    return one.slowest


def _tokens(one: Figures) -> float:
    return float(one.prefilled_tokens)


def _copies(one: Figures) -> float:
    return float(one.copy_tokens)


# -- the table ------------------------------------------------------------------------------------


def _columns(rows: Rows) -> list[Column[Row]]:
    def mean(of: Callable[[Figures], float]) -> Callable[[Row], float | None]:
        return lambda row: fmean(row.each(of))

    def extra(row: Row) -> float:
        base = fmean(rows[row.case.name, WITHOUT].each(_tokens))
        return 100.0 * (fmean(row.each(_tokens)) / base - 1.0)

    return [
        Column("case", "case", text=lambda row: f"{row.case.name}: {row.case.words}"),
        Column("hedging", "hedging", text=lambda row: row.label),
        Column("requests", nodes.URGENT, "requests", lambda row: sum(row.each(_requests))),
        Column("p50", "TTFT p50", f"s, {nodes.URGENT}", mean(lambda one: one.p50), "low"),
        Column("p99", "p99", f"s, {nodes.URGENT}", mean(_own_p99), "low"),
        Column("most", "slowest", "s", mean(_slowest), "low"),
        Column("o99", "p99", "s, others", mean(_other_p99), "low"),
        Column("hedged", "hedged", f"% of {nodes.URGENT}", _hedged),
        Column("won", "won", "% of copies", _won),
        Column("extra", "prefill tokens", "% more", extra),
        Column("preempted", "preemptions", "per run", mean(lambda one: float(one.preemptions))),
    ]


def _requests(one: Figures) -> float:
    return float(one.requests)


def _hedged(row: Row) -> float | None:
    requests = sum(one.requests for one in row.figures)
    return 100.0 * sum(one.hedged for one in row.figures) / requests if requests else None


def _won(row: Row) -> float | None:
    hedged = sum(one.hedged for one in row.figures)
    return 100.0 * sum(one.won for one in row.figures) / hedged if hedged else None


def _plain(one: Figures) -> dict[str, Any]:
    """Convert the figures for JSON: an infinite value becomes None."""
    values = asdict(one)
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in values.items()
    }
