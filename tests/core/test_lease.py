"""A lease is taken when it is created and released once; the count of waiting requests is
correct.
"""

from hypothesis import given, strategies as st

from router.core.lease import (
    SETTLE_S,
    Lease,
    poll_begins,
    poll_counted,
    poll_failed,
    signals_lost,
)
from router.core.replica_load import ReplicaLoad


def seen(holder: ReplicaLoad) -> tuple[int, int, int, int]:
    return holder.inflight, holder.waiting, holder.load, holder.pending_tokens


class Polled(ReplicaLoad):
    """A holder with a clock, polled at once."""

    def __init__(self) -> None:
        super().__init__("polled")
        self.now = 1000.0

    def poll(self, running: int | None, waiting: int | None, after_s: float = 0.0) -> None:
        self.now += after_s
        number = poll_begins(self, self.now)
        poll_counted(self, number, running, waiting, self.now)

    def settle(self, running: int, waiting: int) -> None:
        """The gauges now include everything that was sent before."""
        for _ in range(3):
            self.poll(running, waiting, SETTLE_S)


def whole(holder: ReplicaLoad, count: int, tokens: int = 0) -> list[Lease]:
    return [Lease(holder, tokens, streamed=False) for _ in range(count)]


def test_making_a_lease_takes_the_slot() -> None:
    holder = ReplicaLoad("r")
    lease = Lease(holder, tokens=300)
    assert lease.held
    assert seen(holder) == (1, 1, 1, 300)


@given(st.lists(st.integers(0, 9), max_size=60))
def test_only_the_first_release_counts(releases: list[int]) -> None:
    holder = ReplicaLoad("r")
    leases = [Lease(holder) for _ in range(10)]
    for index in releases:
        leases[index].release()
        assert not leases[index].held
    assert holder.inflight == holder.waiting == holder.load == 10 - len(set(releases))


def test_a_released_lease_drops_its_reference_to_its_holder() -> None:
    first, second = ReplicaLoad("r"), ReplicaLoad("r")
    lease = Lease(first)
    Lease(second)
    lease.release()
    lease.release()
    assert (first.inflight, second.inflight) == (0, 1)


def test_a_stream_waits_until_its_first_content() -> None:
    holder = ReplicaLoad("r")
    lease = Lease(holder, tokens=50)
    lease.begun()
    lease.begun()
    assert seen(holder) == (1, 0, 1, 0)
    lease.release()
    assert seen(holder) == (0, 0, 0, 0)


def test_a_poll_takes_over_only_what_was_sent_a_settling_time_before_it() -> None:
    holder = Polled()
    holder.poll(0, 0)
    leases = whole(holder, 2, tokens=50)
    for _ in range(2):
        holder.poll(2, 0, SETTLE_S / 2)  # a later poll need not include them
    assert seen(holder) == (2, 2, 2, 100)
    late = whole(holder, 1, tokens=7)
    holder.poll(2, 0, SETTLE_S)
    assert seen(holder) == (3, 1, 3, 7)
    for lease in leases + late:
        lease.begun()
        lease.release()
    assert seen(holder) == (0, 0, 0, 0)


def test_what_the_gauges_miss_goes_on_waiting() -> None:
    """Gauges miss requests, for example, while an API server is busy with reading them."""
    holder = Polled()
    leases = whole(holder, 50)
    holder.settle(running=4, waiting=6)
    assert (holder.waiting, holder.foreign_waiting) == (46, 0)
    holder.poll(4, 46, 1.0)
    assert (holder.waiting, holder.foreign_waiting) == (46, 0)
    for lease in leases:
        lease.release()
    assert seen(holder) == (0, 0, 0, 0)


def test_an_attempt_that_ends_lets_one_begin_that_waits() -> None:
    holder = Polled()
    leases = whole(holder, 6)
    stream = Lease(holder)
    stream.begun()
    holder.settle(running=4, waiting=3)
    assert holder.waiting == 3
    leases[0].release()
    assert holder.waiting == 2
    stream.release()
    assert holder.waiting == 1
    fresh = whole(holder, 1)
    assert holder.waiting == 2
    fresh[0].release()  # this request ran, so earlier requests have started
    assert holder.waiting == 0
    for lease in leases:
        lease.release()
    assert seen(holder) == (0, 0, 0, 0)


def test_a_poll_that_says_nothing_includes_nothing() -> None:
    holder = Polled()
    (lease,) = whole(holder, 1)
    for _ in range(5):
        holder.poll(None, None, SETTLE_S)
    assert holder.waiting == 1
    lease.release()
    assert holder.waiting == 0


def test_every_answer_and_every_failure_is_reported() -> None:
    holder = Polled()
    holder.poll(1, 0)
    poll_begins(holder, holder.now)
    assert (holder.polls, holder.polls_heard) == (2, 1)
    poll_failed(holder)
    assert holder.polls_heard == 2


def test_what_has_just_ended_and_stands_in_the_gauges_is_not_others() -> None:
    holder = Polled()
    leases = [Lease(holder) for _ in range(4)]
    for lease in leases:
        lease.begun()
    holder.poll(4, 0)
    for lease in leases:
        lease.release()
    holder.poll(4, 0, 0.5)
    assert seen(holder) == (0, 0, 0, 0)
    holder.poll(4, 0, 0.5)  # requests that are still there come from other clients
    assert (holder.load, holder.foreign_load) == (4, 4)


def test_a_stream_that_has_begun_since_the_gauges_is_not_one_of_others_that_waits() -> None:
    holder = Polled()
    lease = Lease(holder)
    lease.begun()
    holder.poll(0, 1)
    assert (holder.waiting, holder.load) == (0, 1)


def test_old_signals_leave_our_own_load() -> None:
    holder = Polled()
    Lease(holder)
    holder.poll(9, 9)
    signals_lost(holder)
    assert (holder.waiting, holder.load) == (1, 1)


def test_the_tokens_that_an_engine_takes_between_two_polls_are_remembered() -> None:
    holder = Polled()
    holder.poll(0, 0)
    leases = whole(holder, 10, tokens=1000)
    holder.poll(10, 0, SETTLE_S)
    holder.poll(10, 0, SETTLE_S)
    assert holder.polled_tokens == 10_000
    whole(holder, 10, tokens=1000)
    holder.poll(10, 5, SETTLE_S)  # the engine queues requests: the limit was too high
    assert holder.polled_tokens == 5000
    assert len(leases) == 10
