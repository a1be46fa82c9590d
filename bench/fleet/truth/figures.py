"""Computes the compared figures from the records of a run over HTTP or of a simulation. Pure.

The same code computes the measured and the simulated figures, so that they mean the same.

`Row`, `Truth`: the result of a comparison: measured and simulated figures with the errors, stored
as JSON.

The error of a simulated figure is relative to the measured figure: +10 % means that the simulated
figure is a tenth too high. Shares are compared by their difference in percentage points: a hit rate
of 2 % instead of 1 % is an error of one point. Must never leave out a figure because only one side
has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from bench.fleet.statistics import quantile, summarise
from router.lab.replay.truth.judged import error_of, error_text

VERSION = 1  # version of the file format; increased when a field changes its meaning

Range = tuple[float, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one workload. `measured` or `simulated` is None if that side has no such
    figure.
    """

    workload: str
    name: str
    unit: str  # if the unit is "%", the error is in percentage points
    measured: float | None
    simulated: float | None
    # Minimum and maximum over the runs; None after a single run.
    measured_range: Range | None = None
    # Minimum and maximum over the seeds; None with a single seed.
    simulated_range: Range | None = None

    @property
    def error(self) -> float | None:
        """The error in percent, or in percentage points of a share.

        It is None if a side has no such figure, or if the measured figure is 0.
        """
        return error_of(self.measured, self.simulated, self.unit)

    @property
    def error_text(self) -> str:
        return error_text(self.error, self.unit)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one comparison."""

    title: str
    when: str  # date and time of the comparison, as text
    rows: tuple[Row, ...]
    # Milliseconds that HTTP adds to each TTFT, which no engine model contains: the measured minus
    # the simulated TTFT on an idle fleet. None if not measured.
    offset_ms: float | None = None
    notes: tuple[str, ...] = ()  # sentences about the method
    version: int = VERSION

    def to_json(self) -> bytes:
        """Return the text of a JSON file. It includes the errors, which could also be computed."""
        plain = msgspec.to_builtins(self)
        for row, written in zip(self.rows, plain["rows"], strict=True):
            written["error"] = row.error
        return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Truth:
        """Read the text of such a file. Raises ValueError for other content or another version."""
        try:
            truth = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise ValueError(f"not a comparison of measured and simulated: {err}") from None
        if truth.version != VERSION:
            raise ValueError(f"version {truth.version} of the comparison, not {VERSION}")
        return truth


Figures = dict[str, float | None]


class Kind(NamedTuple):
    """A figure's name and unit."""

    name: str
    unit: str


TIMES: Final = (
    Kind("TTFT p50", "ms"),
    Kind("TTFT p90", "ms"),
    Kind("TTFT p99", "ms"),
    Kind("TPOT p50", "ms"),
    Kind("TPOT p99", "ms"),
)
THROUGHPUT: Final = (Kind("requests", "1/s"), Kind("output tokens", "1/s"))
KINDS: Final = (
    *TIMES,
    *THROUGHPUT,
    Kind("in SLO", "%"),
    Kind("hit rate", "%"),
    Kind("hotspot", "x"),
    Kind("failed", "requests"),
)


def figures(played: dict[str, Any], slo_s: float) -> Figures:
    """Return the figures by name. `played` is the result of `Player.play` or `simulated.play`.

    Throughput is counted from the first measured request to the end of the last measured one. It
    includes only whole answers.
    """
    seen = summarise(played, slo_s)
    records = [r for r in played["records"] if r["measured"]]
    whole = [r for r in records if not r["error"]]
    begin = min((r["due"] for r in records), default=0.0)
    end = max((r["due"] + r["seconds"] for r in records), default=0.0)
    tpots = sorted(
        (r["seconds"] - r["ttft"]) / (r["output_tokens"] - 1)
        for r in whole
        if r["output_tokens"] > 1
    )
    values = (
        _ms(seen.ttft_p50),
        _ms(seen.ttft_p90),
        _ms(seen.ttft_p99),
        _ms(quantile(tpots, 0.5)),
        _ms(quantile(tpots, 0.99)),
        _per(len(whole), end - begin),
        _per(sum(r["output_tokens"] for r in whole), end - begin),
        100.0 * seen.good_share,
        None if seen.hit_rate is None else 100.0 * seen.hit_rate,
        seen.hotspot,
        float(len(records) - len(whole)),
    )
    return {kind.name: value for kind, value in zip(KINDS, values, strict=True)}


def compare(
    workload: str,
    measured: Sequence[Figures],
    simulated: Sequence[Figures],
    kinds: Iterable[Kind] = KINDS,
) -> list[Row]:
    """Return one row per figure: measured and simulated median over the runs, with their ranges."""
    rows = []
    for kind in kinds:
        ours, theirs = (_values(runs, kind) for runs in (measured, simulated))
        rows.append(
            Row(
                workload=workload,
                name=kind.name,
                unit=kind.unit,
                measured=median(ours) if ours else None,
                simulated=median(theirs) if theirs else None,
                measured_range=_range(ours),
                simulated_range=_range(theirs),
            )
        )
    return rows


def offset_s(measured: dict[str, Any], simulated: dict[str, Any]) -> float | None:
    """Return the median difference of the requests' times to first token, measured minus simulated.

    Both runs must have had the same script. Requests without a whole answer are left out; returns
    None if no request remains.
    """
    ours = {r["due"]: r["ttft"] for r in measured["records"] if not r["error"]}
    theirs = {r["due"]: r["ttft"] for r in simulated["records"] if not r["error"]}
    found = [ours[due] - theirs[due] for due in ours.keys() & theirs.keys()]
    return median(found) if found else None


def late_p99_s(played: dict[str, Any]) -> float:
    """p99 of the delay from a request's due time to its sending, in seconds; 0 without requests."""
    late = sorted(r["sent"] - r["due"] for r in played["records"] if r["sent"])
    return quantile(late, 0.99) or 0.0


def _values(runs: Sequence[Figures], kind: Kind) -> list[float]:
    """The figure's value in every run; empty if the figure is missing in a run."""
    found = [run.get(kind.name) for run in runs]
    values = [value for value in found if value is not None]
    return values if len(values) == len(found) else []


def _range(values: Sequence[float]) -> Range | None:
    return (min(values), max(values)) if len(values) > 1 else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _per(count: float, seconds: float) -> float | None:
    return count / seconds if seconds > 0.0 else None
