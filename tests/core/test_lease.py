"""A lease is taken when it is made and given back once; what waits follows the four rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.core.lease import Lease, poll_begins, poll_counted, signals_lost
from tests.harness.slots import Counted


def seen(holder: Counted) -> tuple[int, int, int, int]:
    return holder.inflight, holder.waiting, holder.load, holder.pending_tokens


def test_making_a_lease_takes_the_slot() -> None:
    holder = Counted()
    lease = Lease(holder, tokens=300)
    assert lease.held
    assert seen(holder) == (1, 1, 1, 300)


@given(st.lists(st.integers(0, 9), max_size=60))
def test_only_the_first_release_counts(releases: list[int]) -> None:
    holder = Counted()
    leases = [Lease(holder) for _ in range(10)]
    for index in releases:
        leases[index].release()
        assert not leases[index].held
    assert holder.inflight == holder.waiting == holder.load == 10 - len(set(releases))


def test_a_released_lease_lets_go_of_its_holder() -> None:
    first, second = Counted(), Counted()
    lease = Lease(first)
    Lease(second)
    lease.release()
    lease.release()
    assert (first.inflight, second.inflight) == (0, 1)


def test_a_stream_waits_until_its_first_content() -> None:
    holder = Counted()
    lease = Lease(holder, tokens=50)
    lease.begun()
    lease.begun()
    assert seen(holder) == (1, 0, 1, 0)
    lease.release()
    assert seen(holder) == (0, 0, 0, 0)


def test_a_stream_waits_through_polls() -> None:
    """The engine has begun its prefill, so nothing waits there; its first token is still due."""
    holder = Counted()
    Lease(holder, tokens=50)
    poll_counted(holder, poll_begins(holder), running=1, waiting=0)
    assert seen(holder) == (1, 1, 1, 50)


def test_a_whole_answer_waits_until_a_poll_includes_it() -> None:
    holder = Counted()
    lease = Lease(holder, tokens=50, streamed=False)
    number = poll_begins(holder)
    late = Lease(holder, tokens=7, streamed=False)  # that poll may not have seen this one
    assert holder.waiting == 2
    poll_counted(holder, number, running=1, waiting=0)
    assert seen(holder) == (2, 1, 2, 7)
    lease.begun()
    lease.release()
    late.release()
    assert seen(holder) == (0, 0, 0, 0)


def test_a_poll_that_says_nothing_includes_nothing() -> None:
    holder = Counted()
    lease = Lease(holder, streamed=False)
    poll_counted(holder, poll_begins(holder), running=None, waiting=None)
    assert holder.waiting == 1
    lease.release()
    assert holder.waiting == 0


def test_others_load_is_what_a_poll_counts_beyond_ours() -> None:
    holder = Counted()
    Lease(holder)
    poll_counted(holder, poll_begins(holder), running=5, waiting=3)
    assert (holder.waiting, holder.load) == (3, 8)
    poll_counted(holder, poll_begins(holder), running=1, waiting=0)
    assert (holder.waiting, holder.load) == (1, 1)


def test_old_signals_leave_our_own_load() -> None:
    holder = Counted()
    Lease(holder)
    poll_counted(holder, poll_begins(holder), running=9, waiting=9)
    signals_lost(holder)
    assert (holder.waiting, holder.load) == (1, 1)


class Counting(RuleBasedStateMachine):
    """Leases, first tokens, ends and polls in any order, some polls never answered."""

    def __init__(self) -> None:
        super().__init__()
        self.holder = Counted()
        self.leases: list[Lease] = []
        self.poll: int | None = None

    @rule(tokens=st.integers(0, 1000), streamed=st.booleans())
    def dispatch(self, tokens: int, streamed: bool) -> None:
        self.leases.append(Lease(self.holder, tokens, streamed))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def first_content(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.leases)).begun()

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.leases)).release()

    @rule()
    def send_poll(self) -> None:
        self.poll = poll_begins(self.holder)

    counts = st.none() | st.integers(0, 50)

    @precondition(lambda self: self.poll is not None)
    @rule(running=counts, waiting=counts)
    def hear_poll(self, running: int | None, waiting: int | None) -> None:
        assert self.poll is not None
        poll_counted(self.holder, self.poll, running, waiting)
        self.poll = None

    @rule()
    def lose_signals(self) -> None:
        signals_lost(self.holder)

    @invariant()
    def nothing_is_negative(self) -> None:
        assert all(value >= 0 for value in vars(self.holder).values()), vars(self.holder)
        assert self.holder.inflight == sum(lease.held for lease in self.leases)
        assert self.holder.load >= self.holder.inflight

    def teardown(self) -> None:
        for lease in self.leases:
            lease.release()
        signals_lost(self.holder)
        left = {name: v for name, v in vars(self.holder).items() if not name.startswith("polls")}
        assert not any(left.values()), left


TestCounting = Counting.TestCase
