"""Judges Hedgerow's goals in the overhead bench. A goal limits a ratio or a value of one run.

Most goals limit the ratio to another router's figure, because absolute times differ between
machines and between runs. In one round, both routers are measured within seconds. A ratio is the
median over the rounds, and its spread is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.overhead.parts import PARTS, Part
from bench.overhead.plan import PACE
from bench.overhead.row import Row, ratios

Rows = Mapping[str, Row]
# A figure is doubtful if the router waited for a CPU for more than this share of the time, because
# of other work or of too many threads.
NOISY = 0.2
IDLE = 0.2  # a figure is doubtful if the router had no work for more than this share of the time
WORKERS = "hedgerow-workers"  # the row of Hedgerow with two workers
CLOSED = ("json_c32", "json_16k", "token_flat")  # loads that should keep a router busy all the time


@dataclass(frozen=True, slots=True)
class Verdict:
    """One judged goal. If `value` is None, it could not be judged, and `note` gives the reason.

    The goal is met if `value` is at most `limit`. `target` is a stricter aim, which may be missed.
    """

    name: str
    goal: str
    limit: float
    value: float | None
    note: str = ""
    reached: str = ""  # the value as text, if the number alone would be unclear
    target: float | None = None
    spread: tuple[float, float] | None = None  # minimum and maximum over the rounds

    @property
    def here(self) -> str:
        """The measured value as text, for a table."""
        if self.value is None:
            return "-"
        if self.reached:
            return self.reached
        text = exact(self.value, self.limit, self.target)
        return text if self.spread is None else f"{text} ({_range(*self.spread)})"

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.limit

    @property
    def missed(self) -> bool:
        return self.value is not None and not self.met

    def words(self) -> str:
        if self.value is None:
            return f"not measured: {self.note}"
        # The note lists problems of the measurement, also if the goal is met.
        tail = f" ({self.note})" if self.note else ""
        words = "met" if self.met else f"missed by {excess(self.value, self.limit)}"
        if self.target is not None:
            if self.value <= self.target:
                words = "met, target met"
            else:
                words += f", target missed by {excess(self.value, self.target)}"
        return words + tail


def exact(value: float, *limits: float | None) -> str:
    """Format with two decimals, or with more if needed to show which limits the value exceeds."""
    digits = 2
    while digits < 6 and any(
        (float(f"{value:.{digits}f}") <= limit) != (value <= limit)
        for limit in limits
        if limit is not None
    ):
        digits += 1
    return f"{value:.{digits}f}"


def _range(least: float, most: float) -> str:
    return f"{least:.2f} to {most:.2f}"


def excess(value: float, limit: float) -> str:
    """Format the amount by which a value exceeds its limit; it is never rounded to 0."""
    if limit <= 0.0:
        return f"{value - limit:.3g}"
    percent = (value / limit - 1.0) * 100.0
    return f"{percent:.0f} %" if percent >= 10.0 else f"{percent:.2g} %"


def missed(verdicts: Sequence[Verdict], *, is_quick: bool) -> bool:
    """Return whether a goal was missed; the exit status of a bench is then 1.

    A goal that could not be judged is not missed. In a quick run no goal is missed, because its
    figures are not reliable.
    """
    return not is_quick and any(verdict.missed for verdict in verdicts)


def _figure(rows: Rows, peer: str, figure: str) -> tuple[float | None, list[str]]:
    """Return a figure and its problems, or None and the reason why it is missing."""
    row = rows.get(peer)
    if row is None:
        return None, [f"{peer} not in this run"]
    if row.absent:
        return None, [f"{peer} is absent"]
    if figure not in row.figures:
        said = [line for lines in row.problems.values() for line in lines]
        return None, [f"{peer}: no such figure" + (f" ({said[0]})" if said else "")]
    troubles = [
        f"{peer}: {line}"
        for name, lines in row.problems.items()
        if figure.startswith(name)
        for line in lines
    ]
    if row.figures.get("others_cpu", 0.0) > NOISY:
        troubles.append("the machine was busy with other work")
    load = figure.removesuffix("_us")
    waited = row.figures.get(f"{load}_waited", 0.0)
    idle = 1.0 - waited - row.figures.get(f"{load}_busy", 1.0)
    if load in CLOSED and idle > IDLE:
        # A router that sleeps between requests must wake up for each one, so a router that needs
        # little CPU looks expensive.
        troubles.append(f"{peer} had no work {idle:.0%} of the time, so the ratio is too low")
    if waited > NOISY:
        troubles.append(f"{peer} stood waiting for a CPU {waited:.0%} of the time")
    return row.figures[figure], troubles


def ratio(
    rows: Rows,
    name: str,
    figure: str,
    peer: str,
    limit: float,
    target: float | None = None,
    who: str = "hedgerow",
) -> Verdict:
    """Judge that Hedgerow's figure is at most `limit` times the peer's (median over the rounds).

    `who`: the row of Hedgerow.
    """
    own, own_note = _figure(rows, who, figure)
    other, other_note = _figure(rows, peer, figure)
    note = "; ".join(dict.fromkeys(filter(None, (*own_note, *other_note))))
    goal = _goal(limit, target, f"× {peer}")
    found: list[float] = []
    if own is not None and other is not None:
        found = ratios(rows[who].samples[figure], rows[peer].samples[figure])
    if not found:
        note = note or f"{peer}'s figure is not above zero"
        return Verdict(name, goal, limit, None, note)
    spread = (min(found), max(found)) if len(found) > 1 else None
    return Verdict(name, goal, limit, median(found), note, target=target, spread=spread)


def bound(
    rows: Rows, name: str, figure: str, limit: float, unit: str, target: float | None = None
) -> Verdict:
    """Judge that Hedgerow's figure is at most `limit`."""
    value, notes = _figure(rows, "hedgerow", figure)
    spread = None
    if value is not None and len(rows["hedgerow"].samples[figure]) > 1:
        spread = rows["hedgerow"].spread(figure)
    goal = _goal(limit, target, unit)
    return Verdict(name, goal, limit, value, "; ".join(notes), target=target, spread=spread)


def part(of: Part, us: float | None, note: str) -> Verdict:
    """Judge the CPU time in µs of one part of the router, which is measured alone."""
    return Verdict(of.title, _goal(of.goal_us, None, "µs"), of.goal_us, us, note)


def _goal(limit: float, target: float | None, unit: str) -> str:
    aim = "" if target is None else f", target {target:g}"
    return f"≤ {limit:g} {unit}{aim}"


def judge(rows: Rows, parts: Mapping[str, float], note: str) -> list[Verdict]:
    """Judge all goals. `parts` has the µs of each part; `note` says why a part is missing."""
    verdicts = [
        ratio(rows, "JSON request, c=32", "json_c32_us", "haproxy", 2.0, 1.7),
        ratio(rows, "JSON request, c=32", "json_c32_us", "sglang-router", 0.30, 0.25),
        ratio(rows, "16 KB prompt", "json_16k_us", "haproxy", 3.0, 2.2),
        ratio(rows, "paced token", "token_paced_us", "haproxy", 1.5, 1.2),
        ratio(rows, "flat-out token", "token_flat_us", "haproxy", 1.3, 1.1),
        ratio(rows, "latency added, c=1, p50", "added_us", "haproxy", 3.0, 2.0),
        bound(rows, "large body, all CPU", "large_ms_per_mb", 0.6, "ms/MB", 0.5),
        bound(rows, "idle stream", "idle_stream_kb", 9, "KB"),
        bound(rows, "idle TLS stream", "idle_tls_stream_kb", 40, "KB"),
        bound(rows, "resident memory", "rss_mb", 60, "MB"),
        bound(rows, "stream gap beside 16 MB bodies", "gap_beside_ms", 2e3 / PACE, "ms"),
    ]
    if WORKERS in rows:
        verdicts += [
            ratio(rows, f"{title}, two workers", figure, "hedgerow", 1.15, who=WORKERS)
            for title, figure in (("JSON request, c=32", "json_c32_us"), ("16 KB", "json_16k_us"))
        ]
    verdicts += [part(each, parts.get(each.name), note) for each in PARTS if each.goal_us]
    return verdicts
