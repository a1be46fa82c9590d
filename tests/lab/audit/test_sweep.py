"""Stays at replicas as events in the order of time."""

from hypothesis import given, strategies as st

from router.lab.audit.residency import END, FIRST, PREFILL, START, Row, Stay, stay_of, sweep


def stay(start: float, prefill: float, first: float, end: float, replica: str = "r0") -> Stay:
    row = Row(ts=start, reason="ok", kind="chat", replica=replica, stream=True)
    row.duration_ms, row.ttft_ms = (end - start) * 1e3, (first - start) * 1e3
    found = stay_of(row)
    assert found is not None
    found.prefill, found.first, found.end = prefill, first, end
    return found


def test_one_stay_is_four_events_even_if_they_are_one_moment() -> None:
    one = stay(5.0, 5.0, 5.0, 5.0)
    assert [(now, what) for now, what, _ in sweep([one])] == [
        (5.0, START),
        (5.0, PREFILL),
        (5.0, FIRST),
        (5.0, END),
    ]


def test_a_request_that_ends_when_another_starts_does_not_overlap() -> None:
    first, second = stay(1.0, 1.0, 2.0, 3.0), stay(3.0, 3.0, 4.0, 5.0)
    events = [(what, one is first) for _, what, one in sweep([first, second])]
    assert events.index((END, True)) < events.index((START, False))


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)),
        max_size=40,
    )
)
def test_time_never_goes_back_and_every_stay_passes_in_its_order(
    lengths: list[tuple[float, float, float, float]],
) -> None:
    stays = [stay(a, a + b, a + b + c, a + b + c + d) for a, b, c, d in sorted(lengths)]
    seen: dict[int, list[int]] = {}
    last = -1.0
    for now, what, one in sweep(stays):
        assert now >= last
        last = now
        seen.setdefault(id(one), []).append(what)
    assert all(whats == [START, PREFILL, FIRST, END] for whats in seen.values())
    assert len(seen) == len(stays)


def test_a_stay_that_is_out_of_order_happens_at_once() -> None:
    late = stay(1.0, 1.2, 1.5, 9.0)
    events = list(sweep([stay(5.0, 5.0, 6.0, 7.0), late]))
    assert [now for now, _, one in events if one is late] == [5.0, 5.0, 5.0, 9.0]
