"""Compares the progress of waiting tickets with their predictions, before they are sent.

A wait of minutes is known only after minutes. If the queue has become faster or slower in that
time, all intervals given until then are wrong. But the progress of the queue shows it earlier. A
ticket has one mark for each of `SHARES`, and a mark is a number of tickets of its class. When so
many were sent after the ticket began to wait, the time for them is compared with the prediction of
this time. The ratio is an expected error of the whole wait, and the interval learns it
(`TtftEstimate.progressed`). When the ticket is sent, the interval learns the actual error as well.

The relative error of a part of the wait is larger than that of the whole wait: its logarithm by a
factor between 1 (all seconds have the same error) and share ** -0.5 (independent errors). The
expected error is computed with share ** -`SHRINK`. `hedgerow bench promise` at 120 % load shows
that a factor nearer to 1 makes the intervals too wide, and a larger one makes them too narrow.

A mark needs at least `LEAST` tickets, so tickets behind few others have no marks. Tickets that
leave the queue without being sent are not counted, so many such tickets make the learned errors too
large. Predictions by the position within a flow have no marks, because the progress of the class
does not show the progress of the flow.

Must never: read a clock, or keep the marks of tickets that do not wait anymore, except for a few.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import log
from typing import Final

from policies.queueing.ticket import CLASSES
from router.admission.turn_model import TurnModel
from router.admission.wait_forecast import BY_FLOW_WAITS, BY_TURNS, WaitForecast

# The marks of a ticket, as shares of the tickets ahead of it. The first one is learned early, the
# others are more exact.
SHARES: Final = (0.0625, 0.25, 0.5)
LEAST: Final = 16.0
SHRINK: Final = 0.25
# A mark beyond this share of the tickets ahead is left out: the ticket is sent soon after it.
_MOST: Final = 0.9
_SHORTEST_S: Final = 1e-3
_FEW: Final = 64


class WaitProgress:
    """The marks of all waiting tickets of one queue."""

    __slots__ = ("_marks", "_most", "_number", "_sent")

    def __init__(self) -> None:
        self._number = 0
        # By class: the tickets that waited and were sent, since the start of the router.
        self._sent = [0] * CLASSES
        # By class, a heap of (value of `_sent` at the mark, number, share of the tickets ahead,
        # predicted seconds until the mark, forecast). The number orders equal marks.
        self._marks: list[list[tuple[int, int, float, float, WaitForecast]]] = [
            [] for _ in range(CLASSES)
        ]
        # By class: with more marks than this, the outdated ones are removed. Half of the marks can
        # be outdated, so the mean cost for each mark is constant.
        self._most = [_FEW] * CLASSES

    def begins(self, forecast: WaitForecast, urgency: int, turns: TurnModel) -> None:
        """Set the marks of a ticket that begins to wait.

        The forecast must be complete, with its estimate. `turns`: the model that was used for it.
        """
        if forecast.chosen == BY_FLOW_WAITS:
            return
        ahead = forecast.in_class - 1.0
        marks = self._marks[urgency]
        last = 0
        for share in SHARES:
            count = int(max(LEAST, share * ahead))
            if last < count < _MOST * ahead:
                last = count
                # The last of these tickets is behind `count - 1` others.
                predicted_s = forecast.wait_s * count / forecast.in_class
                if forecast.chosen == BY_TURNS:
                    predicted_s = turns.wait_s(urgency, count - 1.0)
                self._number += 1
                target = self._sent[urgency] + count
                heappush(marks, (target, self._number, count / ahead, predicted_s, forecast))
        if len(marks) > self._most[urgency]:
            kept = [mark for mark in marks if _is_current(mark[4])]
            heapify(kept)
            self._marks[urgency] = kept
            self._most[urgency] = _FEW + 2 * len(kept)

    def sent(self, urgency: int, now: float) -> None:
        """Count a ticket that waited and is sent, and learn from the tickets whose marks are
        reached."""
        sent = self._sent[urgency] + 1
        self._sent[urgency] = sent
        marks = self._marks[urgency]
        while marks and marks[0][0] <= sent:
            _, _, share, predicted_s, forecast = heappop(marks)
            estimate = forecast.estimate
            if estimate is not None and _is_current(forecast):
                took_s = max(now - forecast.began, _SHORTEST_S)
                ratio = took_s / max(predicted_s, _SHORTEST_S)
                estimate.progressed(share**SHRINK * log(ratio), now)


def _is_current(forecast: WaitForecast) -> bool:
    """Whether the ticket waits, and the estimate can still learn from its progress."""
    estimate = forecast.estimate
    return forecast.is_waiting and estimate is not None and estimate.is_open
