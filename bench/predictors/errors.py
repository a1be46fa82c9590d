"""The errors of one row of a table: the mean absolute percentage error (MAPE) and the bias.

Must never: predict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.overhead.goals import Verdict
from router.core.prediction_error import PredictionError
from router.core.speed_learner import SpeedLearner
from router.replay.report.table import Column


@dataclass(frozen=True, slots=True)
class Errors:
    """Sums of relative errors. They can be subtracted, to leave out a warm-up."""

    count: int = 0
    absolute: float = 0.0
    signed: float = 0.0

    @classmethod
    def of(cls, errors: Iterable[PredictionError]) -> Errors:
        each = list(errors)
        return cls(
            sum(error.count for error in each),
            sum(error.absolute_total for error in each),
            sum(error.signed_total for error in each),
        )

    def since(self, before: Errors) -> Errors:
        return Errors(
            self.count - before.count,
            self.absolute - before.absolute,
            self.signed - before.signed,
        )

    @property
    def mape(self) -> float | None:
        """Percent of the actual time; None: nothing was predicted."""
        return 100.0 * self.absolute / self.count if self.count else None

    @property
    def bias(self) -> float | None:
        """Percent of the actual time; above 0: the predictions are too long."""
        return 100.0 * self.signed / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Row:
    """The errors of all kinds of predictions in one source."""

    name: str
    ttft: Errors = Errors()
    tpot: Errors = Errors()  # predicted at the dispatch
    step: Errors = Errors()  # predicted at the stream's end, from the load that it had

    def since(self, before: Row) -> Row:
        return Row(
            self.name,
            self.ttft.since(before.ttft),
            self.tpot.since(before.tpot),
            self.step.since(before.step),
        )


def read(name: str, learners: Iterable[SpeedLearner]) -> Row:
    """Return the errors of some replicas until now."""
    each = list(learners)
    return Row(
        name,
        Errors.of(one.ttft_error for one in each),
        Errors.of(one.tpot_error for one in each),
        Errors.of(one.step_error for one in each),
    )


def columns(what: str) -> list[Column[Row]]:
    """The columns of a table with one row per source. `what`: the title of the first column."""
    return [
        Column("name", what, text=lambda row: row.name),
        Column("n1", "first tokens", value=lambda row: row.ttft.count),
        Column("e1", "TTFT MAPE", "%", lambda row: row.ttft.mape),
        Column("b1", "TTFT bias", "%", lambda row: row.ttft.bias),
        Column("n2", "streams", value=lambda row: row.tpot.count),
        Column("e2", "TPOT MAPE", "%", lambda row: row.tpot.mape),
        Column("b2", "TPOT bias", "%", lambda row: row.tpot.bias),
        Column("e3", "step MAPE", "%", lambda row: row.step.mape),
    ]


def within(name: str, errors: Errors, limit: float) -> Verdict:
    """Judge a mean absolute percentage error."""
    note = "" if errors.count else "nothing was predicted"
    return Verdict(name, f"≤ {limit:g} %", limit, errors.mape, note)
