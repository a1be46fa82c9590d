"""The waiting queue: the order of places after any arrivals and departures, and no leak."""

from hypothesis import given, strategies as st

from router.lab.emulator.core.request import Queue, Request

steps = st.lists(st.tuples(st.sampled_from(["push", "pop", "drop"]), st.integers(0, 5)))


@given(steps)
def test_the_first_item_has_the_lowest_key(
    steps: list[tuple[str, int]],
) -> None:
    queue: Queue[Request] = Queue()
    waiting: list[Request] = []
    peak = 0
    for number, (what, choice) in enumerate(steps):
        if what == "push":
            request = Request(str(number), 1, 1)
            request._place = (choice, 0.0, number)
            queue.push(request)
            waiting.append(request)
            waiting.sort(key=lambda one: one._place)
        elif waiting and what == "pop":
            assert queue.head() is waiting.pop(0)
            queue.pop()
        elif waiting:
            queue.drop(waiting.pop(choice % len(waiting)))
        peak = max(peak, len(waiting))
        assert queue.ordered() == waiting
        assert (queue.waiting, queue.peak) == (len(waiting), peak)
        if waiting:
            assert queue.head() is waiting[0]
