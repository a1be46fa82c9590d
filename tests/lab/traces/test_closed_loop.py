"""A log in a closed loop: each session sends its requests one by one; none is lost."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
from hypothesis import given, strategies as st

from router.core.errors import Reason
from router.lab.simulator.arrival import Logged
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Fault
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival
from router.lab.traces.closed_loop import FULL, ClosedLoop
from tests.examples import examples
from tests.lab.simulator.worlds import BLOCK, Kept, world

# In the small scenarios a prompt of 100 tokens with 3 output tokens takes 152 ms alone.
ALONE_S = 0.152


@dataclass(frozen=True, slots=True)
class Row:
    """A request of the log: arrival in seconds, session ("": none), duration in seconds."""

    at: float
    session: str
    took_s: float
    prompt: int = 100
    output: int = 3


class Log:
    """Traffic of these rows. Every iteration creates its arrivals again."""

    name = "log"
    block_tokens = BLOCK

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row.at)

    def __iter__(self) -> Iterator[Arrival]:
        for number, row in enumerate(self.rows):
            yield Arrival(
                number,
                row.at,
                row.prompt,
                row.output,
                tuple(1000 * number + block for block in range(row.prompt // BLOCK)),
                session=row.session or None,
                logged=Logged("ok", row.took_s),
            )

    def follow(self, ended: Arrival, now: float) -> Sequence[Arrival]:
        return ()


def play(log: Log, scenario: Any = None, **limits: Any) -> tuple[Kept, ClosedLoop]:
    kept, loop = Kept(), ClosedLoop(log, **limits)
    simulate(scenario or world(), loop, kept)
    return kept, loop


def came(kept: Kept) -> list[float]:
    """The arrival time of each request, by number."""
    return [kept[number].arrival.at for number in range(len(kept.outcomes))]


# -- one session ----------------------------------------------------------------------------------


def test_a_slower_fleet_gets_the_next_turn_later_and_a_faster_one_earlier() -> None:
    for took_s in (0.05, 3.0):
        kept, _ = play(Log([Row(0.0, "s", took_s), Row(10.0, "s", took_s), Row(15.0, "s", 1.0)]))
        first, second = 10.0 - took_s, 5.0 - took_s  # the think times
        assert came(kept) == pytest.approx(
            [0.0, ALONE_S + first, ALONE_S + first + ALONE_S + second], abs=1e-6
        )


def test_a_turn_that_failed_is_followed_as_well() -> None:
    dead = Fault(at=0.0, replica=0, kind="kill", until=5.0)
    kept, _ = play(Log([Row(1.0, "s", 2.0), Row(9.0, "s", 2.0)]), world(faults=(dead,)))
    assert kept[0].reason is not Reason.OK
    assert kept[1].arrival.at == pytest.approx(kept[0].ended + 6.0)
    assert kept[1].reason is Reason.OK


def test_calls_that_an_agent_sends_at_once_follow_the_answer_before_them() -> None:
    rows = [Row(0.0, "s", 4.0), Row(5.0, "s", 9.0), Row(5.1, "s", 2.0), Row(8.0, "s", 1.0)]
    kept, _ = play(Log(rows))
    first = kept[0].ended
    assert came(kept)[1:3] == pytest.approx([first + 1.0, first + 1.1])
    # The fourth request came after the end of the third, while the second still ran.
    assert kept[3].arrival.at == pytest.approx(kept[2].ended + 0.9)


# -- limits ---------------------------------------------------------------------------------------


def test_what_was_not_read_yet_comes_when_it_is_read() -> None:
    rows = [Row(0.0, "s", 40.0), *(Row(float(n), "", 1.0) for n in range(1, 41)), Row(41.0, "s", 1)]
    kept, _ = play(Log(rows), ahead_s=10.0)
    assert kept[41].arrival.at == 30.0  # its request was due at 1.15 s; the next row is at 31 s
    kept, _ = play(Log(rows), ahead_s=50.0)
    assert kept[41].arrival.at == pytest.approx(1.0 + ALONE_S)


def test_when_too_many_wait_the_first_comes_before_its_turn() -> None:
    slow = [Row(0.0, "s", 0.5, output=900), *(Row(1.0 + n, "s", 0.5) for n in range(6))]
    others = [Row(1.5 + n, "", 0.5) for n in range(6)]
    kept, loop = play(Log(slow + others), held_rows=3)
    assert kept[0].ended > 15.0
    # The second request does not wait for the first; the others follow the second.
    assert loop.notes() == {FULL: 1}
    assert kept[1].arrival.at == 2.5  # the time at which a fourth row had to be read
    assert all(kept[number].arrival.at < 10.0 for number in range(12))
    kept, loop = play(Log(slow + others))
    assert loop.notes() == {}
    assert kept[1].arrival.at == pytest.approx(kept[0].ended + 0.5)


def test_blocks_of_prompts_are_limited_too() -> None:
    rows = [Row(0.0, "s", 0.5, output=900), *(Row(1.0, "s", 9.0, prompt=160) for _ in range(5))]
    _, loop = play(Log(rows), held_blocks=30)  # ten blocks for each waiting request
    assert loop.notes() == {FULL: 2}
    _, loop = play(Log(rows), held_blocks=51)
    assert loop.notes() == {}


def test_forgotten_sessions_begin_anew() -> None:
    others = [Row(3.0, "", 1.0), Row(4.0, "", 1.0)]
    rows = [Row(0.0, "a", 5.0), Row(1.0, "b", 5.0), *others, Row(9.0, "a", 1.0)]
    kept, _ = play(Log(rows), sessions=2, ahead_s=0.0)  # the last row is read 4 s after the start
    assert kept[4].arrival.at == pytest.approx(4.0 + ALONE_S)
    kept, _ = play(Log(rows), sessions=1, ahead_s=0.0)
    assert kept[4].arrival.at == 9.0
    _, loop = play(Log([Row(float(n), f"{n}", 0.5) for n in range(50)]), sessions=7)
    assert len(loop._sessions) <= 7


@pytest.mark.parametrize(
    "wrong", [{"speedup": 0.0}, {"ahead_s": -1.0}, {"held_rows": 0}, {"sessions": 0}], ids=str
)
def test_limits_out_of_their_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ClosedLoop(Log([]), **wrong)


# -- any log --------------------------------------------------------------------------------------

tenths = st.integers(0, 200).map(lambda tenths: tenths / 10)
rows = st.builds(
    Row,
    tenths,
    st.sampled_from(["", "a", "b", "c", "d"]),
    st.integers(0, 60).map(lambda tenths: tenths / 10),
    st.integers(1, 600),
    st.integers(1, 90),
)


def turns(log: Log, ended: list[float]) -> list[float]:
    """The due time of each request, by definition. `ended`: the requests' ends in the run."""
    found = []
    for this, row in enumerate(log.rows):
        before = [
            (other.at + other.took_s, number)
            for number, other in enumerate(log.rows)
            if number < this
            and other.session == row.session != ""
            and other.at + other.took_s <= row.at
        ]
        if before:
            logged_end, number = max(before)
            found.append(ended[number] + row.at - logged_end)
        else:
            found.append(row.at)
    return found


@examples(150)
@given(st.lists(rows, max_size=30), st.sampled_from([None, 1, 2, 7]), st.sampled_from([0.0, 5.0]))
def test_no_arrival_is_lost_and_each_has_its_turn(
    asked: list[Row], held_rows: int | None, ahead_s: float
) -> None:
    log = Log(asked)
    limits: dict[str, Any] = {"ahead_s": 1e6}
    if held_rows is not None:
        limits = {"held_rows": held_rows, "ahead_s": ahead_s}
    loop = ClosedLoop(log, **limits)
    most = 0

    class Watching(Kept):
        def ended(self, outcome: Outcome) -> None:
            nonlocal most
            most = max(most, loop.held)
            super().ended(outcome)

    kept = Watching()
    simulate(world(replicas=2), loop, kept)
    assert Counter(one.arrival.number for one in kept.outcomes) == Counter(range(len(asked)))
    assert most <= (inf if held_rows is None else held_rows)
    assert (loop.held, loop._blocks) == (0, 0)
    at = came(kept)
    expected = turns(log, [kept[number].ended for number in range(len(asked))])
    for number, row in enumerate(log.rows):
        if held_rows is None:
            assert at[number] == pytest.approx(expected[number], abs=1e-6)
        assert min(row.at, expected[number]) - 1e-6 <= at[number]
        assert at[number] <= max(row.at, expected[number]) + 1e-6
