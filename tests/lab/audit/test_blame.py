"""Which party is blamed for a wait, on timelines small enough to compute by hand.

A stay at a replica is written (party, start, prefill seconds, first token, end); its prefill is the
last part of the time before its first token.
"""

import pytest
from hypothesis import given, strategies as st

from router.lab.audit.blame import Blame, Wait
from router.lab.audit.residency import Row, Stay, stay_of, sweep

A, B, C = 0, 1, 2


def stay(
    party: int, start: float, alone: float, first: float, end: float, replica: str = "r0"
) -> Stay:
    row = Row(ts=start, reason="ok", kind="chat", replica=replica, stream=True)
    row.duration_ms, row.ttft_ms = (end - start) * 1e3, (first - start) * 1e3
    found = stay_of(row, party)
    assert found is not None
    found.place(alone, 0.0)
    return found


def waits(*stays: Stay) -> dict[int, Wait]:
    """The wait of each stay, by the stay's number."""
    blame = Blame()
    found = {}
    for now, what, one in sweep(sorted(stays, key=lambda one: one.start)):
        wait = blame.happens(now, what, one)
        if wait is not None:
            found[stays.index(one)] = wait
    assert not blame._lines, "something is kept of an empty replica"
    return found


def test_an_earlier_prefill_causes_the_whole_wait() -> None:
    found = waits(stay(A, 0.0, 4.0, 4.0, 9.0), stay(B, 1.0, 0.5, 4.5, 9.0))
    assert found[0].blamed == {}
    assert found[1].blamed == pytest.approx({A: 3.0})
    assert found[1].alone == pytest.approx(0.5)


def test_a_later_request_is_not_a_cause() -> None:
    found = waits(
        stay(A, 0.0, 4.0, 4.0, 9.0), stay(B, 1.0, 0.5, 4.5, 9.0), stay(C, 1.1, 2.0, 6.5, 9.0)
    )
    assert found[1].blamed == pytest.approx({A: 3.0})
    # C waits 2.9 s for A's prefill and 0.5 s for B's, in the queue that began with A.
    assert found[2].blamed == pytest.approx({A: 3.4 * 4.0 / 4.5, B: 3.4 * 0.5 / 4.5})


def test_decoding_requests_are_causes_if_no_prefill_runs() -> None:
    # Two sequences of A and one of C hold all slots until 10, when one of A's ends.
    found = waits(
        stay(A, 0.0, 0.1, 0.1, 10.0),
        stay(A, 1.0, 0.1, 1.1, 30.0),
        stay(C, 2.0, 0.1, 2.1, 30.0),
        stay(B, 4.0, 0.5, 10.5, 12.0),
    )
    assert found[3].blamed == pytest.approx({A: 4.0, C: 2.0})


def test_decoding_is_not_a_cause_while_a_prefill_runs() -> None:
    found = waits(
        stay(C, 0.0, 0.1, 0.1, 30.0), stay(A, 1.0, 4.0, 5.0, 9.0), stay(B, 2.0, 0.5, 5.5, 9.0)
    )
    assert found[2].blamed == pytest.approx({A: 3.0})


def test_a_queue_left_by_an_ended_request_is_caused_by_it() -> None:
    # A's prefill delays ten requests of B; later requests of B wait for those ten.
    stays = [stay(A, 0.0, 10.0, 10.0, 11.0)]
    stays += [stay(B, float(n), 0.5, 10.5 + 0.5 * n, 40.0) for n in range(10)]
    stays += [stay(B, 11.0, 0.5, 15.5, 40.0)]
    last = waits(*stays)[11]
    assert last.blamed == pytest.approx({A: 4.0})


def test_a_partys_own_burst_is_caused_by_itself() -> None:
    stays = [stay(A, 0.0, 0.2, 0.2, 9.0)]
    stays += [stay(B, 0.1, 0.5, 0.7 + 0.5 * n, 9.0) for n in range(10)]
    last = waits(*stays)[10]
    assert last.blamed == pytest.approx({B: 4.5, A: 0.1})


def test_two_causers_in_one_step_share_the_delay() -> None:
    found = waits(stay(A, 0.0, 0.6, 1.0, 3.0), stay(B, 0.0, 0.6, 1.0, 3.0))
    assert found[0].blamed == pytest.approx({B: 0.4})
    assert found[1].blamed == pytest.approx({A: 0.4})


def test_a_stall_is_unexplained() -> None:
    found = waits(stay(A, 0.0, 1.0, 1.0, 2.0), stay(B, 1.5, 0.5, 9.0, 9.5))
    assert found[1].blamed == pytest.approx({A: 0.5})
    assert found[1].unexplained == pytest.approx(6.5)


def test_time_before_the_dispatch_counts_for_the_router() -> None:
    row = Row(ts=0.0, reason="ok", kind="chat", replica="r0", stream=True)
    row.duration_ms, row.ttft_ms = 5000.0, 3000.0
    row.attempts = [("r1", "primary", "replica_reset", 1990.0), ("r0", "retry", "ok", 3000.0)]
    one = stay_of(row)
    assert one is not None
    one.place(1.0, 0.0)
    assert waits(one)[0].router == pytest.approx(2.0)


def test_only_streams_are_victims_and_all_requests_can_be_causers() -> None:
    whole = stay(A, 0.0, 2.0, 3.0, 3.0)
    whole.streamed = False
    whole.output = 11
    whole.place(2.0, 0.1)
    found = waits(whole, stay(B, 0.5, 0.5, 2.5, 9.0))
    assert list(found) == [1]
    assert found[1].blamed == pytest.approx({A: 1.5})


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["r0", "r1"]),
            st.floats(0.0, 20.0),
            st.floats(0.0, 3.0),
            st.floats(0.0, 5.0),
            st.floats(0.0, 9.0),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_every_second_is_accounted_for_once(
    drawn: list[tuple[int, str, float, float, float, float]],
) -> None:
    stays = [
        stay(party, at, alone, at + ttft, at + ttft + decode, replica)
        for party, replica, at, alone, ttft, decode in drawn
    ]
    found = waits(*stays)
    assert len(found) == len(stays)
    for number, wait in found.items():
        one = stays[number]
        parts = [wait.alone, wait.router, wait.unexplained, *wait.blamed.values()]
        assert all(part >= 0.0 for part in parts)
        assert sum(parts) == pytest.approx(one.ttft, abs=1e-6)
        there = {
            other.party
            for other in stays
            if other.replica == one.replica and other.start <= one.first
        }
        assert set(wait.blamed) <= there
