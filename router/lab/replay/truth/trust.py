"""Decides whether a simulation is close enough to the log to be trusted. All functions are pure.

Must never: trust a simulation if there is no figure to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from router.lab.replay.truth.judged import ALL, Row

# The largest accepted error of TTFT and TPOT, in percent, by quantile.
TRUSTED: Final = {0.5: 20.0, 0.9: 30.0}
# The largest accepted error of the hit rate, in percentage points.
TRUSTED_HITS: Final = 15.0
RESOLUTION_MS: Final = 1.0  # smaller differences between times are ignored
_JUDGED: Final = ("TTFT", "TPOT")
_PAIRS_MAX: Final = 10  # maximum number of lines about pairs of candidates


@dataclass(frozen=True, slots=True)
class Trust:
    """The comparison of a simulation with the log, and whether the simulation is trusted."""

    rows: tuple[Row, ...]
    off: tuple[Row, ...]  # rows with too large an error

    @property
    def is_judged(self) -> bool:
        """Whether the log has a TTFT or TPOT to compare with."""
        return any(row.figure in _JUDGED for row in self.rows)

    @property
    def is_trusted(self) -> bool:
        return self.is_judged and not self.off

    def lines(self) -> list[str]:
        """Return the result of the comparison in sentences."""
        if not self.is_judged:
            return ["Not compared: the second half of the log has too few streams with a TTFT."]
        if not self.off:
            return [
                "The simulation matches the second half of the log: the errors of TTFT and TPOT "
                f"are at most {TRUSTED[0.5]:g} % at p50 and {TRUSTED[0.9]:g} % at p90, that of the "
                f"hit rate is at most {TRUSTED_HITS:g} pt."
            ]
        return [
            *(
                f"{row.part}: the error of {row.name} is {row.error_text} (allowed: "
                f"{_most(row):g} {'pt' if row.unit == '%' else '%'})"
                for row in self.off
            ),
            "This engine model is not accurate enough to rank candidates.",
        ]


def trust_of(rows: Sequence[Row]) -> Trust:
    return Trust(tuple(rows), tuple(row for row in rows if _is_off(row)))


def _most(row: Row) -> float | None:
    """Return the largest accepted error of a figure; None: its error is only reported."""
    if row.quantile is None:
        return TRUSTED_HITS
    return TRUSTED.get(row.quantile) if row.figure in _JUDGED else None


def _is_off(row: Row) -> bool:
    most = _most(row)
    if most is None or row.logged is None:
        return False
    error = row.error
    if error is None or row.simulated is None:
        return True  # there is no finite simulated value to compare
    return abs(error) > most and abs(row.simulated - row.logged) > RESOLUTION_MS


# A candidate's values by figure and quantile, in the units of the rows.
Figures = Mapping[tuple[str, float], float | None]


def not_ranked(rows: Sequence[Row], candidates: Mapping[str, Figures]) -> list[str]:
    """Return one line for each pair of candidates that differs by less than the simulation's error.

    `candidates`: the figures of each candidate, by label. The error of a figure is that of all
    requests together.
    """
    errors = {
        (row.figure, row.quantile): abs(row.error)
        for row in rows
        if row.part == ALL
        and row.figure in _JUDGED
        and row.quantile is not None
        and row.error is not None
    }
    found = []
    labels = list(candidates)
    for place, one in enumerate(labels):
        for other in labels[place + 1 :]:
            close = [
                f"{figure} p{100 * q:g} (difference {difference:.1f} %, error {error:.1f} %)"
                for (figure, q), error in errors.items()
                if (difference := _difference(candidates[one], candidates[other], figure, q))
                is not None
                and difference <= error
            ]
            if close:
                found.append(f"{one} and {other} cannot be ranked by {', '.join(close)}.")
    if len(found) > _PAIRS_MAX:
        more = len(found) - _PAIRS_MAX
        found[_PAIRS_MAX:] = [f"{more:,} more pairs cannot be ranked by at least one figure."]
    return found


def _difference(one: Figures, other: Figures, figure: str, q: float) -> float | None:
    """Return the difference in percent of the smaller value."""
    first, second = one.get((figure, q)), other.get((figure, q))
    if first is None or second is None or min(first, second) <= 0.0:
        return None
    if max(first, second) == float("inf"):
        return None
    return 100.0 * (max(first, second) / min(first, second) - 1.0)
