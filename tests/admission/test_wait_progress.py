"""The progress of waiting tickets: when it is compared with the prediction, and what is learned."""

from math import log

import pytest

from router.admission.rules import Rules
from router.admission.turn_model import TurnModel
from router.admission.wait_forecast import BY_CLASS_WAITS, BY_FLOW_WAITS, BY_TURNS, WaitForecast
from router.admission.wait_progress import SHRINK, WaitProgress
from router.admission.waiting.stride import Stride
from router.core.estimate_cells import Cell
from router.core.ttft_estimate import LATER, STATES, TtftEstimates
from router.core.urgency import LOW
from tests.admission.world import config


class Line:
    """Tickets of class low. Each is predicted to take 2 s."""

    def __init__(self) -> None:
        rules = Rules(config())
        self.turns = TurnModel(rules, Stride(rules))
        self.progress = WaitProgress()
        self.estimates = TtftEstimates()

    @property
    def cell(self) -> Cell:
        return self.estimates.cells[LOW * len(STATES) + LATER].shared

    def waits(self, ahead: int, *, now: float = 0.0, chosen: int = BY_CLASS_WAITS) -> WaitForecast:
        forecast = WaitForecast(0.1, 0.1)
        forecast.began, forecast.in_class, forecast.chosen = now, ahead + 1.0, chosen
        forecast.wait_s = 2.0 * forecast.in_class
        forecast.estimate = self.estimates.of(LOW, LATER, "", forecast.wait_s, 0.1, now)
        self.progress.begins(forecast, LOW, self.turns)
        return forecast

    def sends(self, count: int, each_s: float, *, urgency: int = LOW, now: float = 0.0) -> float:
        for _ in range(count):
            now += each_s
            self.progress.sent(urgency, now)
        return now

    def scores(self) -> list[float]:
        return self.cell.interval._ring


def test_the_error_is_learned_at_a_sixteenth_a_quarter_and_a_half_of_the_tickets() -> None:
    line = Line()
    line.waits(320)
    now = line.sends(19, 4.0)
    assert line.scores() == []
    now = line.sends(1, 4.0, now=now)
    first = log(80.0 / 40.0) * 0.0625**SHRINK
    assert line.scores() == pytest.approx([first])
    now = line.sends(59, 4.0, now=now)
    assert len(line.scores()) == 1
    now = line.sends(1, 4.0, now=now)
    second = log(320.0 / 160.0) * 0.25**SHRINK
    assert line.scores() == pytest.approx([first, second])
    now = line.sends(79, 4.0, now=now)
    assert len(line.scores()) == 2
    now = line.sends(1, 4.0, now=now)
    assert line.scores() == pytest.approx([first, second, log(640.0 / 320.0) * 0.5**SHRINK])
    line.sends(160, 4.0, now=now)
    assert len(line.scores()) == 3


def test_the_time_counts_from_the_beginning_of_the_wait() -> None:
    line = Line()
    line.sends(7, 1.0)
    line.waits(32, now=100.0)
    line.sends(15, 1.0, now=100.0)
    assert line.scores() == []
    line.sends(1, 1.0, now=115.0)
    assert line.scores() == pytest.approx([log(16.0 / 32.0) * 0.5**SHRINK])


def test_the_progress_of_the_class_says_nothing_about_a_flow() -> None:
    line = Line()
    line.waits(32, chosen=BY_FLOW_WAITS)
    line.sends(32, 1.0)
    assert line.scores() == []


def test_the_turns_predict_the_time_of_a_part() -> None:
    """A quarter of the tickets is sent as fast as the model says, so its error is none."""
    line = Line()
    line.turns._stride.serves(LOW, 100.0, 0.0)
    line.turns.compute([0, 0, 0, 100, 0], [0.0] * 5, 50.0, 0.0)
    line.waits(100, chosen=BY_TURNS)
    line.sends(25, line.turns.wait_s(LOW, 24.0) / 25.0)
    assert line.scores()[1] == pytest.approx(0.0, abs=1e-6)


def test_a_ticket_that_waits_no_more_teaches_nothing() -> None:
    line = Line()
    sent, ended, moved = (line.waits(32) for _ in range(3))
    sent.is_waiting = moved.is_waiting = False
    assert ended.estimate is not None
    ended.estimate.void()
    line.sends(32, 1.0)
    assert line.scores() == []
