"""Two addresses count as one engine until their token totals show that they are two engines."""

import pytest

from router.dispatch.hedging.backups import same_engine
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from tests.fleet.helpers import Table

MOMENT = 1_700_000_000.25


class Polls:
    """Polls that are sent and answered at given times."""

    def __init__(self) -> None:
        self.table = Table()
        self.a, self.b = self.table.add("a"), self.table.add("b")
        self._number = 0

    def __call__(
        self,
        replica: Replica,
        total: int | None,
        answered: float,
        asked: float | None = None,
        moment: float = MOMENT,
    ) -> None:
        self._number += 1
        replica.endpoint.asked_at = answered if asked is None else asked
        signals = Signals(running=0, waiting=0, started_at=moment, prompt_tokens=total)
        self.table.fleet.polls.observed(replica, signals, self._number, answered)

    def are_one(self) -> bool:
        found = same_engine(self.a, self.b)
        assert found == same_engine(self.b, self.a)
        return found


# Replica, its total, time of the poll's answer, time of the poll's request.
NO_PROOF: dict[str, list[tuple[str, int | None, float, float]]] = {
    "totals only grow": [("ab"[n % 2], 50 * n, n / 2, n / 2) for n in range(40)],
    "they crossed on their way": [("b", 100, 1.5, 1.5), ("a", 70, 2.0, 1.4)],
    "nothing is told": [("a", 70, 1.0, 1.0), ("b", None, 1.5, 1.5), ("a", None, 2.0, 2.0)],
}


@pytest.mark.parametrize("polls", NO_PROOF.values(), ids=NO_PROOF)
def test_they_may_be_one_engine(polls: list[tuple[str, int | None, float, float]]) -> None:
    poll = Polls()
    for index, (who, total, answered, asked) in enumerate(polls):
        poll(poll.table.fleet.replicas[who], total, answered, asked)
        assert index == 0 or poll.are_one()


def test_totals_that_differ_are_two_for_good() -> None:
    poll = Polls()
    poll(poll.a, 70, 1.0)
    poll(poll.b, 100, 1.5)
    assert poll.are_one()
    poll(poll.a, 70, 2.0)  # less than b's previous value
    assert not poll.are_one()
    poll(poll.a, 200, 3.0)
    poll(poll.b, 200, 3.5)
    assert not poll.are_one()


def test_a_restart_begins_anew_and_nothing_is_kept_of_who_left() -> None:
    poll = Polls()
    poll(poll.b, 100, 1.0)
    poll(poll.a, 70, 2.0)
    assert not poll.are_one()
    poll(poll.a, 0, 3.0, moment=MOMENT + 9.0)
    poll(poll.b, 0, 3.5, moment=MOMENT + 9.0)
    assert poll.are_one()
    poll(poll.b, 100, 4.0, moment=MOMENT + 9.0)
    poll(poll.a, 70, 5.0, moment=MOMENT + 9.0)
    assert not poll.are_one()
    poll.table.fleet.remove("a")
    assert not poll.b.reports.apart and not poll.a.reports.apart
