"""The sweeper on a real loop: deadlines are met, a failure is isolated, no timer while idle."""

import asyncio
from time import monotonic

from router.wire.sweep import NEVER, TICK_S, Sweeper
from tests.harness.replica import eventually
from tests.harness.running import scenario


class Party:
    """Has one deadline, and then runs the given action."""

    def __init__(self, deadline: float = NEVER) -> None:
        self.deadline = deadline
        self.calls: list[float] = []
        self.fails = False

    def on_deadline(self, now: float) -> None:
        self.calls.append(now)
        self.deadline = NEVER
        if self.fails:
            raise RuntimeError("a party with a bug")


def make() -> tuple[Sweeper, list[BaseException]]:
    errors: list[BaseException] = []
    return Sweeper(asyncio.get_running_loop(), errors.append), errors


@scenario
async def test_a_deadline_is_met_once_and_never_early() -> None:
    sweeper, errors = make()
    due, later = Party(monotonic() + TICK_S / 2), Party(monotonic() + 3600)
    until = due.deadline
    sweeper.add(due)
    sweeper.add(later)
    await eventually(lambda: bool(due.calls), "the deadline")
    assert due.calls[0] >= until
    marker = Party(monotonic())
    sweeper.add(marker)
    await eventually(lambda: bool(marker.calls), "another tick")
    assert (len(due.calls), later.calls, errors) == (1, [], [])
    sweeper.close()


@scenario
async def test_a_failing_party_is_dropped_and_told() -> None:
    sweeper, errors = make()
    bad, good = Party(monotonic()), Party(monotonic())
    bad.fails = True
    sweeper.add(bad)
    sweeper.add(good)
    await eventually(lambda: bool(good.calls and bad.calls), "both")
    assert [str(err) for err in errors] == ["a party with a bug"]
    assert sweeper.parties == {good}
    sweeper.close()


@scenario
async def test_one_party_may_end_another_in_the_same_tick() -> None:
    sweeper, _ = make()
    parties = [Party(monotonic()) for _ in range(2)]

    def ends(ended: Party, other: Party) -> None:
        ended.calls.append(0.0)
        ended.deadline = NEVER
        sweeper.discard(other)

    first, second = parties
    first.on_deadline = lambda now: ends(first, second)  # type: ignore[method-assign]
    second.on_deadline = lambda now: ends(second, first)  # type: ignore[method-assign]
    for party in parties:
        sweeper.add(party)
    await eventually(lambda: bool(first.calls or second.calls), "one of them")
    marker = Party(monotonic())
    sweeper.add(marker)
    await eventually(lambda: bool(marker.calls), "another tick")
    assert len(first.calls) + len(second.calls) == 1
    sweeper.close()


@scenario
async def test_nobody_registered_means_no_timer() -> None:
    sweeper, _ = make()
    assert sweeper._handle is None
    party = Party()
    sweeper.add(party)
    sweeper.add(party)
    assert sweeper._handle is not None
    sweeper.discard(party)
    sweeper.discard(party)
    await eventually(lambda: sweeper._handle is None, "the timer's end")
    sweeper.add(party)
    assert sweeper._handle is not None
    sweeper.close()
    assert (sweeper._handle, sweeper.parties) == (None, set())


@scenario
async def test_the_lag_of_the_loop_is_told() -> None:
    sweeper, _ = make()
    party = Party(monotonic())
    sweeper.add(party)
    until = monotonic() + TICK_S + 0.05
    while monotonic() < until:
        pass  # block the loop, to cause a lag
    await eventually(lambda: bool(party.calls), "the tick")
    assert sweeper.lag_s > 0
    sweeper.close()
