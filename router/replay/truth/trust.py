"""How far a simulation may be trusted, from its figures beside the log's. Pure.

Must never: call something true of which there is no figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from router.replay.truth.judged import ALL, Row

# The largest error of TTFT and TPOT that is trusted, in percent, by quantile.
TRUSTED: Final = {0.5: 20.0, 0.9: 30.0}
RESOLUTION_MS: Final = 1.0  # two times that differ by less are the same
_JUDGED: Final = ("TTFT", "TPOT")
_PAIRS_MAX: Final = 10  # lines


@dataclass(frozen=True, slots=True)
class Trust:
    """Whether a simulation is like the log."""

    rows: tuple[Row, ...]
    off: tuple[Row, ...]  # whose error is larger than is trusted

    @property
    def is_judged(self) -> bool:
        """The log has enough to judge by: a TTFT at least."""
        return any(row.figure in _JUDGED for row in self.rows)

    @property
    def is_trusted(self) -> bool:
        return self.is_judged and not self.off

    def lines(self) -> list[str]:
        """For people."""
        if not self.is_judged:
            return ["Not judged: the second half of the log has too few first tokens of streams."]
        if not self.off:
            return [
                "The simulation is like the second half of the log: TTFT and TPOT within "
                f"{TRUSTED[0.5]:g} % at p50 and {TRUSTED[0.9]:g} % at p90."
            ]
        return [
            *(
                f"{row.part}: {row.name} is off by {row.error_text} (trusted: "
                f"{TRUSTED[row.quantile]:g} %)"
                for row in self.off
            ),
            "Candidates cannot be ranked with this engine model.",
        ]


def trust_of(rows: Sequence[Row]) -> Trust:
    return Trust(tuple(rows), tuple(row for row in rows if _is_off(row)))


def _is_off(row: Row) -> bool:
    most = TRUSTED.get(row.quantile)
    if most is None or row.figure not in _JUDGED or row.logged is None:
        return False
    error = row.error
    if error is None or row.simulated is None:
        return True  # the simulation answers none of what the log has
    return abs(error) > most and abs(row.simulated - row.logged) > RESOLUTION_MS


Figures = Mapping[tuple[str, float], float | None]  # by figure and quantile, in the rows' units


def not_ranked(rows: Sequence[Row], candidates: Mapping[str, Figures]) -> list[str]:
    """Pairs of candidates that differ by less than the simulation is wrong, a line each.

    `candidates`: what each gave, by its label. The errors are those of all requests together.
    """
    errors = {
        (row.figure, row.quantile): abs(row.error)
        for row in rows
        if row.part == ALL and row.figure in _JUDGED and row.error is not None
    }
    found = []
    labels = list(candidates)
    for place, one in enumerate(labels):
        for other in labels[place + 1 :]:
            close = [
                f"{figure} p{100 * q:g} ({difference:.1f} % apart, judged error {error:.1f} %)"
                for (figure, q), error in errors.items()
                if (difference := _difference(candidates[one], candidates[other], figure, q))
                is not None
                and difference <= error
            ]
            if close:
                found.append(f"{one} and {other} cannot be ranked by {', '.join(close)}.")
    if len(found) > _PAIRS_MAX:
        more = len(found) - _PAIRS_MAX
        found[_PAIRS_MAX:] = [f"Nor can {more:,} more pairs be ranked by one figure or another."]
    return found


def _difference(one: Figures, other: Figures, figure: str, q: float) -> float | None:
    """In percent of the smaller one."""
    first, second = one.get((figure, q)), other.get((figure, q))
    if first is None or second is None or min(first, second) <= 0.0:
        return None
    if max(first, second) == float("inf"):
        return None
    return 100.0 * (max(first, second) / min(first, second) - 1.0)
