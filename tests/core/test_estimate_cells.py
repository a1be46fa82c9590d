"""The cells of one class and state: the largest account decides no other account's interval."""

from random import Random

import pytest

from router.core.conformal import LEAST, WINDOW
from router.core.estimate_cells import ALONE_S, LEAD, EstimateCells

EVERY_S = 0.01


class Feedback:
    """Scores of accounts, one after the other."""

    def __init__(self) -> None:
        self.cells = EstimateCells()
        self.now = 1000.0
        self._rng = Random(1)

    def comes(self, account: str, middle: float, count: int = 1) -> None:
        for _ in range(count):
            self.now += EVERY_S
            self.cells.learn(account, middle + self._rng.gauss(0.0, 0.1), False, self.now)

    def middle(self, account: str) -> float:
        return self.cells.of(account).interval.middle()

    def high(self, account: str) -> float:
        return self.cells.of(account).interval.high()


def mixed(count: int = 400) -> Feedback:
    """Many small accounts."""
    found = Feedback()
    for number in range(count):
        found.comes(f"small {number % 20}", 0.0)
    return found


def test_small_accounts_share_everything() -> None:
    found = mixed()
    assert found.cells.own is None
    assert found.cells.of("small 1") is found.cells.of("new")


def test_a_burst_of_one_account_does_not_decide_the_interval_of_the_others() -> None:
    found = mixed()
    before = found.middle("small 1")
    found.comes("burst", 2.0, 10 * WINDOW)
    assert found.middle("small 1") == pytest.approx(before, abs=0.1)
    assert found.middle("burst") == pytest.approx(2.0, abs=0.1)


def test_an_account_that_always_has_most_requests_learns_apart() -> None:
    found = mixed(40)
    for _ in range(2 * WINDOW):
        found.comes("large", 2.0, 9)
        found.comes("small 1", 0.0)
    assert found.middle("large") == pytest.approx(2.0, abs=0.1)
    assert found.high("small 1") < 1.0


def test_a_burst_beside_one_account_changes_nothing_for_that_account() -> None:
    """The account was alone, and gives no feedback during the burst."""
    found = Feedback()
    found.comes("steady", 0.0, 2 * WINDOW)
    found.comes("burst", 2.0, 2 * WINDOW)
    assert found.middle("steady") == pytest.approx(0.0, abs=0.1)
    assert found.high("steady") < 1.0
    assert found.middle("burst") == pytest.approx(2.0, abs=0.1)
    found.comes("steady", 0.0, 2 * WINDOW)
    assert found.high("steady") < 1.0


def test_the_only_account_learns_for_later_ones() -> None:
    found = Feedback()
    found.comes("only", 2.0, 3 * WINDOW)
    assert found.cells.own is None
    assert found.middle("new") == pytest.approx(2.0, abs=0.1)


def test_the_cell_of_the_largest_account_begins_with_what_all_have_learned() -> None:
    found = mixed()
    found.comes("burst", 2.0, LEAD + 2)
    own = found.cells.own
    assert own is not None
    assert len(own.interval._ring) == len(found.cells.shared.interval._ring) == WINDOW
    assert own.interval.is_known and own.learned_at == found.now


def test_when_the_others_are_silent_the_largest_account_learns_for_all() -> None:
    found = mixed()
    found.comes("burst", 2.0, 2 * WINDOW)
    assert found.middle("small 1") < 1.0
    found.now += ALONE_S
    found.comes("burst", 2.0)
    assert found.cells.own is None
    assert found.middle("small 1") == pytest.approx(2.0, abs=0.1)


def test_another_account_may_become_the_largest() -> None:
    found = mixed()
    found.comes("first", 2.0, 2 * WINDOW)
    found.comes("second", -2.0, 4 * WINDOW)
    assert found.middle("second") == pytest.approx(-2.0, abs=0.1)
    assert found.cells.of("first") is found.cells.shared
    assert found.middle("first") == pytest.approx(2.0, abs=0.1)


def test_a_copy_learns_by_itself() -> None:
    found = Feedback()
    found.comes("a", 0.0, LEAST)
    copy = found.cells.shared.copy()
    found.comes("a", 5.0, WINDOW)
    copy.interval.judged(False, True)
    assert copy.interval.middle() == pytest.approx(0.0, abs=0.1)
    assert len(copy.interval._ring) == LEAST
    assert copy.interval.high_level != found.cells.shared.interval.high_level
