"""The figures Hedgerow sets itself, each a ratio or a bound judged within one run.

Ratios, not absolute times: machines differ, and so do runs on one machine, but two routers
measured after one another in one run saw the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.overhead.measure import PACE, Row

Rows = Mapping[str, Row]
NOISY = 0.2  # of the time ready to run but not running: other work, or too many threads


@dataclass(frozen=True, slots=True)
class Verdict:
    """One goal, judged. `value` None: it could not be, and `note` says why."""

    name: str
    goal: str
    limit: float
    value: float | None
    note: str = ""
    reached: str = ""  # the value in words, where the bare number says little

    @property
    def here(self) -> str:
        """What was reached, for a table."""
        if self.value is None:
            return "-"
        return self.reached or f"{self.value:.2f}"

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.limit

    def words(self) -> str:
        if self.value is None:
            return f"not measured: {self.note}"
        # A goal met with a figure that has problems is not one to be proud of: the note says so.
        tail = f" ({self.note})" if self.note else ""
        if self.met:
            return f"met{tail}"
        return f"short by {self.value / self.limit:.2f}x{tail}"


def missed(verdicts: Sequence[Verdict], *, is_quick: bool) -> bool:
    """Whether a goal was missed: then the exit status of a bench is 1. What could not be judged is
    not missed, and neither is anything by the figures of a quick run, which are of no worth."""
    judged = [verdict for verdict in verdicts if verdict.value is not None]
    return not is_quick and not all(verdict.met for verdict in judged)


def _figure(rows: Rows, peer: str, figure: str) -> tuple[float | None, str]:
    """A figure and what is wrong with it, or None and why it is missing."""
    row = rows.get(peer)
    if row is None:
        return None, f"{peer} not in this run"
    if row.absent:
        return None, f"{peer} is absent"
    if figure not in row.figures:
        said = [line for lines in row.problems.values() for line in lines]
        return None, f"{peer}: no such figure" + (f" ({said[0]})" if said else "")
    troubles = [
        f"{peer}: {line}"
        for name, lines in row.problems.items()
        if figure.startswith(name)
        for line in lines
    ]
    if row.figures.get("others_cpu", 0.0) > NOISY:
        troubles.append(f"{peer}: the machine was busy with other work")
    waited = row.figures.get(figure.removesuffix("_us") + "_waited", 0.0)
    if waited > NOISY:
        troubles.append(f"{peer} stood waiting for a CPU {waited:.0%} of the time")
    return row.figures[figure], "; ".join(troubles)


def ratio(rows: Rows, name: str, figure: str, peer: str, limit: float) -> Verdict:
    """Hedgerow's figure over the peer's, at most `limit`."""
    own, own_note = _figure(rows, "hedgerow", figure)
    other, other_note = _figure(rows, peer, figure)
    note = "; ".join(filter(None, (own_note, other_note)))
    value = own / other if own is not None and other is not None and other > 0 else None
    if value is None and not note:
        note = f"{peer}'s figure is not above zero"
    return Verdict(name, f"≤ {limit:.3g} × {peer}", limit, value, note)


def bound(rows: Rows, name: str, figure: str, limit: float, unit: str) -> Verdict:
    """Hedgerow's figure, at most `limit`."""
    value, note = _figure(rows, "hedgerow", figure)
    return Verdict(name, f"≤ {limit:g} {unit}", limit, value, note)


def judge(rows: Rows, internal_us: float | None, internal_note: str) -> list[Verdict]:
    """Every goal; `internal_us` comes from its own measurement, without a peer."""
    across: list[tuple[Callable[..., Verdict], tuple[object, ...]]] = [
        (ratio, ("JSON request, c=4", "json_c4_us", "haproxy", 1.6)),
        (ratio, ("JSON request, c=32", "json_c32_us", "haproxy", 1.6)),
        (ratio, ("JSON request, c=4", "json_c4_us", "sglang-router", 1 / 3)),
        (ratio, ("JSON request, c=32", "json_c32_us", "sglang-router", 1 / 3)),
        (ratio, ("16 KB prompt", "json_16k_us", "haproxy", 1.3)),
        (ratio, ("paced token", "token_paced_us", "haproxy", 1.5)),
        (ratio, ("flat-out token", "token_flat_us", "haproxy", 1.3)),
        (ratio, ("latency added, c=1", "added_us", "haproxy", 3.0)),
        (bound, ("idle stream", "idle_stream_kb", 12, "KB")),
        (bound, ("idle TLS stream", "idle_tls_stream_kb", 40, "KB")),
        (bound, ("resident memory", "rss_mb", 60, "MB")),
        (bound, ("large body, all CPU", "large_ms_per_mb", 0.5, "ms/MB")),
        (bound, ("stream gap beside 16 MB bodies", "gap_beside_ms", 2e3 / PACE, "ms")),
    ]
    verdicts = [judged(rows, *arguments) for judged, arguments in across]
    verdicts.append(Verdict("internal overhead", "≤ 15 µs", 15, internal_us, internal_note))
    return verdicts
