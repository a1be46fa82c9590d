"""The estimate of a replica's KV cache usage between two reports of its engine."""

import pytest
from hypothesis import given, strategies as st

from router.core.kv_estimate import kv_estimate, report_kv
from router.core.lease import Lease, poll_begins, poll_counted, signals_lost
from router.core.replica_load import ReplicaLoad

KV_TOKENS = 10_000


def replica(kv_tokens: int | None = KV_TOKENS) -> ReplicaLoad:
    found = ReplicaLoad("r")
    found.kv_tokens = kv_tokens
    return found


def begun(holder: ReplicaLoad, count: int, tokens: int = 0) -> list[Lease]:
    leases = [Lease(holder, tokens) for _ in range(count)]
    for lease in leases:
        lease.begun()
    return leases


def poll(
    holder: ReplicaLoad, usage: float | None, running: int | None, waiting: int | None = 0
) -> None:
    poll_counted(holder, poll_begins(holder, 0.0), running, waiting, 0.0)
    report_kv(holder, usage, running)


@pytest.mark.parametrize(
    ("usage", "running", "ended", "started", "kv_tokens", "now"),
    [
        # Eight requests ran when the usage was reported; each new one has 500 uncached tokens.
        (0.8, 8, 0, 0, KV_TOKENS, 0.8),  # as reported
        (0.8, 8, 4, 0, KV_TOKENS, 0.4),  # each request that ended frees its share
        (0.8, 8, 8, 0, KV_TOKENS, 0.0),
        (0.8, 8, 4, 4, KV_TOKENS, 0.8),  # as many requests as before
        (0.8, 8, 4, 2, KV_TOKENS, 0.6),
        (0.8, 8, 0, 1, KV_TOKENS, 0.85),  # each request that is new adds its prompt
        (0.8, 8, 0, 2, KV_TOKENS, 0.9),
        (0.8, 8, 2, 4, KV_TOKENS, 0.9),  # two requests more, net
        (0.8, 8, 0, 40, KV_TOKENS, 1.0),  # never above 1
        (0.0, 8, 0, 2, KV_TOKENS, 0.1),
        (1.0, 8, 0, 1, KV_TOKENS, 1.0),
        (0.8, 8, 4, 0, None, 0.4),  # a cache of unknown size: new requests add nothing
        (0.8, 8, 0, 4, None, 0.8),
        (0.8, 8, 0, 4, 0, 0.8),
        (0.8, None, 4, 0, KV_TOKENS, 0.8),  # it is unknown which requests hold the cache
        (0.8, None, 0, 2, KV_TOKENS, 0.9),
        (0.8, None, 4, 2, KV_TOKENS, 0.8),
        (None, 8, 4, 2, KV_TOKENS, None),  # unknown stays unknown
    ],
)
def test_the_estimate_follows_the_requests_since_the_report(
    usage: float | None,
    running: int | None,
    ended: int,
    started: int,
    kv_tokens: int | None,
    now: float | None,
) -> None:
    holder = replica(kv_tokens)
    leases = begun(holder, 8, tokens=500)
    poll(holder, usage, running)
    for lease in leases[:ended]:
        lease.release()
    begun(holder, started, tokens=500)
    assert holder.kv_usage == (None if now is None else pytest.approx(now))


def test_requests_that_wait_at_the_engine_are_added_until_they_run() -> None:
    holder = replica()
    begun(holder, 4, tokens=100)
    poll(holder, 0.4, 4)
    waiting = [Lease(holder, 2000) for _ in range(2)]
    assert holder.kv_usage == pytest.approx(0.8)
    poll(holder, 0.4, 4, 2)
    assert holder.kv_usage == pytest.approx(0.8)
    waiting[0].release()
    assert holder.kv_usage == pytest.approx(0.6)
    waiting[1].begun()
    poll(holder, 0.65, 5, 0)
    assert holder.kv_usage == 0.65


def test_requests_of_other_clients_count() -> None:
    holder = replica()
    poll(holder, 0.8, 4)
    assert holder.load == 4
    assert holder.kv_usage == 0.8
    poll_counted(holder, poll_begins(holder, 0.0), 1, 0, 0.0)  # a poll without a KV usage
    assert holder.kv_usage == pytest.approx(0.2)


def test_requests_without_gpu_do_not_count() -> None:
    holder = replica()
    poll(holder, 0.8, 0)
    lease = Lease(holder, 5000, light=True)
    assert holder.kv_usage == 0.8
    lease.release()
    assert holder.kv_usage == 0.8


def test_lost_signals_make_it_unknown() -> None:
    holder = replica()
    leases = begun(holder, 2, tokens=100)
    poll(holder, 0.8, 2)
    report_kv(holder, None, None)
    signals_lost(holder)
    assert holder.kv_usage is None
    assert kv_estimate(holder) == kv_estimate(holder, 3, 1000) == -1.0
    leases[0].release()
    assert holder.kv_usage is None
    poll(holder, 0.4, 1)
    assert holder.kv_usage == 0.4


def test_a_look_ahead_is_what_the_lease_then_makes_of_it() -> None:
    holder = replica()
    leases = begun(holder, 4, tokens=100)
    poll(holder, 0.4, 4)
    for _ in range(3):
        expected = kv_estimate(holder, 1, 700)
        begun(holder, 1, tokens=700)
        assert holder.kv_usage == expected
    for lease in leases:
        lease.release()
    expected = kv_estimate(holder, 2, 1400)
    begun(holder, 2, tokens=700)
    assert holder.kv_usage == expected


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 5000)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(
            st.just("poll"),
            st.none() | st.floats(0.0, 1.0),
            st.none() | st.integers(0, 20),
            st.none() | st.integers(0, 20),
        ),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from((None, 0, 1, KV_TOKENS)))
def test_it_is_a_share_and_always_up_to_date(
    steps: list[tuple[object, ...]], kv_tokens: int | None
) -> None:
    holder = replica(kv_tokens)
    leases: list[Lease] = []
    for what, *values in steps:
        if what == "send":
            leases += begun(holder, 1, *values)  # type: ignore[arg-type]
        elif what == "end" and leases:
            leases.pop(values[0] % len(leases)).release()  # type: ignore[operator]
        elif what == "poll":
            poll(holder, *values)  # type: ignore[arg-type]
        usage = holder.kv_usage
        assert usage is None or 0.0 <= usage <= 1.0
        assert (usage is None) is (holder.kv_reported < 0.0)
        assert kv_estimate(holder) == (-1.0 if usage is None else usage)
