"""Computes the mean absolute percentage error (MAPE) and the bias of predictions.

Must never make predictions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.overhead.goals import Verdict
from router.core.prediction_error import PredictionError
from router.core.speed_learner import SpeedLearner
from router.core.text.table import Column


@dataclass(frozen=True, slots=True)
class Errors:
    """Sums of relative errors. The sums at the end of a warm-up can be subtracted."""

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
        """Mean absolute error in percent of the actual time; None if nothing was predicted."""
        return 100.0 * self.absolute / self.count if self.count else None

    @property
    def bias(self) -> float | None:
        """Mean error in percent of the actual time; above 0 if predictions are too long."""
        return 100.0 * self.signed / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Row:
    """The errors of all kinds of predictions in one scenario, or for one replica."""

    name: str
    ttft: Errors = Errors()
    tpot: Errors = Errors()  # predicted when the request was dispatched
    step: Errors = Errors()  # TPOT, predicted at the stream's end from the load during the stream

    def since(self, before: Row) -> Row:
        return Row(
            self.name,
            self.ttft.since(before.ttft),
            self.tpot.since(before.tpot),
            self.step.since(before.step),
        )


def read(name: str, learners: Iterable[SpeedLearner]) -> Row:
    """Return the errors of some replicas' predictions up to now."""
    each = list(learners)
    return Row(
        name,
        Errors.of(one.ttft_error for one in each),
        Errors.of(one.tpot_error for one in each),
        Errors.of(one.step_error for one in each),
    )


def columns(what: str) -> list[Column[Row]]:
    """The columns of a table with one `Row` per line. `what` is the title of the first column."""
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
    """Judge that the mean absolute percentage error is at most `limit` percent."""
    note = "" if errors.count else "nothing was predicted"
    return Verdict(name, f"≤ {limit:g} %", limit, errors.mape, note)
