"""Writes are made at the end of a turn, in order, and never for a transport that is closing."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, strategies as st

from router.wire.outbox import DIRECT, FEW, LARGE, Outbox


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.written.append(data)


class Turns:
    """An event loop of which only the end of a turn exists."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.made = 0

    def call_soon(self, call: Callable[[], object]) -> None:
        self.made += 1
        self.calls.append(call)

    def end(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def make(transports: int = 1) -> tuple[Any, Turns, list[Transport]]:
    turns: Any = Turns()
    return Outbox(turns), turns, [Transport() for _ in range(transports)]


def test_writes_wait_for_the_end_of_the_turn() -> None:
    outbox, turns, (a, b) = make(2)
    for n in range(FEW):
        outbox.write(a if n % 2 else b, b"%d" % n)
    assert a.written == b.written == []
    assert turns.made == 1
    turns.end()
    assert (b.written, a.written) == ([b"0", b"2"], [b"1", b"3"])
    outbox.write(a, b"next")
    assert a.written == [b"1", b"3"]


def test_a_turn_with_few_writes_turns_collecting_off_for_a_while() -> None:
    outbox, turns, (a,) = make()
    for _ in range(FEW - 1):
        outbox.write(a, b".")
    turns.end()
    for n in range(DIRECT):
        outbox.write(a, b".")
        assert len(a.written) == FEW + n
    outbox.write(a, b"waits")
    assert a.written[-1] == b"."
    turns.end()
    assert a.written[-1] == b"waits"


def test_a_large_write_follows_the_collected_ones_at_once() -> None:
    outbox, turns, (a,) = make()
    outbox.write(a, b"first")
    outbox.write(a, b"x" * LARGE)
    assert a.written == []
    outbox.write(a, b"x" * (LARGE + 1))
    assert [len(data) for data in a.written] == [5, LARGE, LARGE + 1]
    turns.end()
    assert len(a.written) == 3


def test_flush_makes_the_writes_now_and_only_once() -> None:
    outbox, turns, (a,) = make()
    outbox.flush()
    outbox.write(a, b"last")
    outbox.flush()
    assert a.written == [b"last"]
    a.closing = True
    turns.end()
    assert a.written == [b"last"]


def test_a_closing_transport_is_never_written_to() -> None:
    outbox, turns, (a, b) = make(2)
    outbox.write(a, b"1")
    outbox.write(b, b"2")
    a.closing = True
    outbox.write(a, b"x" * (LARGE + 1))
    turns.end()
    assert (a.written, b.written) == ([], [b"2"])
    b.closing = True
    outbox.write(b, b"3")
    turns.end()
    for _ in range(DIRECT + 1):
        outbox.write(b, b"3")
    turns.end()
    assert b.written == [b"2"]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([1, 1, LARGE + 1]))
        | st.sampled_from(["turn", "flush"]),
        max_size=200,
    )
)
def test_each_transport_gets_its_writes_in_order_within_the_turn(steps: list[Any]) -> None:
    outbox, turns, transports = make(3)
    sent: list[list[bytes]] = [[], [], []]
    for number, step in enumerate([*steps, "turn"]):
        if step == "flush":
            outbox.flush()
        elif step == "turn":
            turns.end()
        else:
            which, size = step
            data = (b"%d." % number).ljust(size, b".")
            sent[which].append(data)
            outbox.write(transports[which], data)
            continue
        assert [transport.written for transport in transports] == sent
