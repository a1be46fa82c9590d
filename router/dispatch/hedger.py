"""Temporary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policies.contract import RequestView
from router.dispatch.attempts import Attempt
from router.fleet.replica import Replica
from router.wire.sweep import NEVER


class Hedger:
    def __init__(self, rules: Any, fleet: Any, counts: Any) -> None:
        self.delay = NEVER

    def adopt(self, rules: Any) -> None: ...
    def dispatched(
        self,
        view: RequestView,
        attempt: Attempt,
        replica: Replica,
        urgency: str,
        hedgeable: bool,
        streamed: bool,
        now: float,
    ) -> float:
        return now + 0.05 if hedgeable else NEVER

    def backup(
        self,
        view: RequestView,
        primary: Attempt,
        replica: Replica,
        urgency: str,
        others: Sequence[Replica],
        now: float,
    ) -> Sequence[Replica]:
        return others

    def sent(self, view: RequestView, hedge: Attempt, replica: Replica, now: float) -> None: ...
    def shown(
        self, view: RequestView, attempt: Attempt, replica: Replica, streamed: bool, now: float
    ) -> None: ...
    def outrun(
        self,
        view: RequestView,
        attempt: Attempt,
        winner: Attempt,
        replica: Replica,
        streamed: bool,
        now: float,
    ) -> None: ...
    def failed(self, view: RequestView, attempt: Attempt, replica: Replica, now: float) -> None: ...
