"""Compares logged and simulated figures of the requests in the second half of a log.

The engine model is fitted to the first half only. The figures of the log and of the simulation are
about the same requests: those that arrive in the second half and were answered in the log. A
request that the simulation does not answer counts as slower than all others in the simulated
figures. Memory does not grow with the number of requests. Must never: include a request of the
first half.

`Trust`: decides whether a simulation is close enough to the log to be trusted. All functions are
pure.

Must never: trust a simulation if there is no figure to compare.

`error_of`, `error_text`: computes the error of a simulated figure relative to a measured one. All
functions are pure.

The error of a share is a difference in percentage points, because a hit rate of 2 % instead of 1 %
is not an error of 100 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from router.core.errors import Reason
from router.lab.simulator.outcome import Outcome
from router.lab.sketch import Sketch


def error_of(measured: float | None, simulated: float | None, unit: str = "") -> float | None:
    """Return the error of the simulated figure in percent; for the unit "%" in percentage points.

    None: a value is missing or infinite, or the measured value is 0 and the simulated value is not.
    """
    if measured is None or simulated is None or not (isfinite(measured) and isfinite(simulated)):
        return None
    if unit == "%":
        return simulated - measured
    if measured == 0.0:
        return 0.0 if simulated == 0.0 else None
    return 100.0 * (simulated - measured) / measured


def error_text(error: float | None, unit: str) -> str:
    """Format an error as `+3.1 %` or `−0.4 pt`; None is `–`."""
    if error is None:
        return "–"
    written = f"{error:+.1f}".replace("-", "−")
    return f"{written} {'pt' if unit == '%' else '%'}"


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


REQUESTS_MIN: Final = 30  # minimum number of requests for a figure
QUANTILES: Final = (0.5, 0.9, 0.99)
FIGURES: Final = {"TTFT": "ms", "TPOT": "ms", "wait": "ms", "hit rate": "%"}
ALL: Final = "all"
NONE: Final = "(none)"
_SCALES: Final = {"ms": 1e3, "%": 100.0}
# Maximum number of parts of the traffic: classes, models and groups of replicas.
_PARTS_MAX: Final = 200
_ACCURACY: Final = 0.001


@dataclass(frozen=True, slots=True)
class Half:
    """The half of a log that is compared with the simulation.

    Groups of replicas are numbered in the order of the scenario.
    """

    since_s: float  # when the second half begins, in seconds on the traffic's clock
    group_of_logged: Mapping[str, int]  # group number by replica ID in the log
    group_of_simulated: Mapping[str, int]  # group number by replica ID in the simulation
    groups: tuple[str, ...] = ()  # names of the groups


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the comparison. A value that does not exist is None."""

    part: str  # such as "all", "class high", "model m" or "group 1: …"
    figure: str  # a key of `FIGURES`
    quantile: float | None  # None: the figure is a share of all tokens
    logged: float | None  # the logged value, in `unit`
    # The simulated value, in `unit`; infinity: the request at this quantile was not answered.
    simulated: float | None
    requests: int  # the number of requests with a logged value

    @property
    def unit(self) -> str:
        return FIGURES[self.figure]

    @property
    def name(self) -> str:
        at = "" if self.quantile is None else f" p{100 * self.quantile:g}"
        return f"{self.figure}{at}"

    @property
    def error(self) -> float | None:
        """The error in percent of the logged value; for shares in percentage points."""
        return error_of(self.logged, self.simulated, self.unit)

    @property
    def error_text(self) -> str:
        return error_text(self.error, self.unit)


@dataclass(slots=True)
class _Side:
    """The values of one figure, either in the log or in the simulation."""

    values: Sketch = field(default_factory=lambda: Sketch(_ACCURACY, 16_384))
    without: int = 0  # requests that were not answered
    tokens: int = 0  # for a share: the prompt tokens of the requests with a value
    part: int = 0  # for a share: those of these tokens that count

    def at(self, q: float | None, scale: float) -> float | None:
        if q is None:
            return scale * self.part / self.tokens if self.tokens else None
        found = self.values.quantile(q, above=self.without)
        return None if found is None else scale * found

    def add(self, value: float, tokens: int, is_share: bool) -> None:
        self.values.add(value)
        if is_share:
            self.tokens += tokens
            self.part += round(value * tokens)


class Judged:
    """A recorder that compares a simulation of a log with the log."""

    def __init__(self, half: Half) -> None:
        self.half = half
        # By part and figure: the values of the log and the values of the simulation.
        self._sides: dict[tuple[str, str], tuple[_Side, _Side]] = {}
        self._parts: dict[str, None] = {}

    def ended(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        logged = arrival.logged
        if logged is None or not logged.is_ok or arrival.at < self.half.since_s:
            return
        half = self.half
        parts = self._known(
            [ALL, f"class {arrival.priority or NONE}", f"model {arrival.model or NONE}"]
        )
        simulated_at = half.group_of_simulated.get(outcome.replica)
        # A request may have been answered by different groups in the log and in the simulation. Its
        # logged values count for the first group, its simulated values for the second.
        logged_group = self._group(half.group_of_logged.get(logged.replica))
        simulated_group = self._group(simulated_at)
        is_whole = outcome.reason is Reason.OK
        ttft = logged.ttft_s if arrival.stream else None
        tpot = logged.tpot_s if arrival.stream else None
        cached, prompt = logged.cached_tokens, arrival.prompt_tokens
        for figure, one, other in (
            ("TTFT", ttft, outcome.ttft_s),
            ("TPOT", tpot, outcome.tpot_s),
            ("wait", logged.wait_s, max(outcome.queued_s, 0.0)),
            ("hit rate", None if cached is None else cached / prompt, _hits(outcome)),
        ):
            if one is None:
                continue
            is_share = FIGURES[figure] == "%"
            for part in [*parts, *logged_group]:
                self._side(part, figure, 0).add(one, prompt, is_share)
            for part in [*parts, *simulated_group]:
                side = self._side(part, figure, 1)
                if not is_whole:
                    side.without += not is_share
                elif other is not None:
                    side.add(other, prompt, is_share)

    def rows(self) -> Iterator[Row]:
        """Yield the figures of every part with enough requests.

        A class is a part only if there are at least two classes; models and groups of replicas
        likewise.
        """
        for part in self._shown():
            for figure, unit in FIGURES.items():
                sides = self._sides.get((part, figure))
                if sides is None or sides[0].values.count < REQUESTS_MIN:
                    continue
                logged, simulated = sides
                scale = _SCALES[unit]
                for q in (None,) if unit == "%" else QUANTILES:
                    yield Row(
                        part,
                        figure,
                        q,
                        logged.at(q, scale),
                        simulated.at(q, scale),
                        logged.values.count,
                    )

    def _shown(self) -> list[str]:
        found = [ALL]
        for kind in ("class ", "model ", "group "):
            mine = sorted(part for part in self._parts if part.startswith(kind))
            if len(mine) > 1:
                found += mine
        return found

    def _known(self, parts: list[str]) -> list[str]:
        known = self._parts
        for part in parts:
            if part not in known and len(known) < _PARTS_MAX:
                known[part] = None
        return [part for part in parts if part in known]

    def _group(self, number: int | None) -> list[str]:
        if number is None or number >= len(self.half.groups):
            return []
        return self._known([f"group {self.half.groups[number]}"])

    def _side(self, part: str, figure: str, side: int) -> _Side:
        sides = self._sides.get((part, figure))
        if sides is None:
            sides = self._sides[part, figure] = (_Side(), _Side())
        return sides[side]


def _hits(outcome: Outcome) -> float:
    return outcome.cached_tokens / outcome.arrival.prompt_tokens
