"""The progress line: where it is shown, how often, and its text."""

import io

import pytest

from router.lab.replay.job import CLOCK_EVERY, EVERY_S, ProgressLine
from router.lab.simulator.simulation import simulate
from router.lab.simulator.workloads import Unique
from tests.lab.simulator.worlds import BLOCK, Kept, world


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Wall:
    """A clock that advances at each read."""

    def __init__(self, step_s: float) -> None:
        self.now = 100.0
        self.looks = 0
        self.step_s = step_s

    def __call__(self) -> float:
        self.looks += 1
        self.now += self.step_s
        return self.now


class Half:
    def share(self) -> float:
        return 0.5


def test_it_says_how_far_the_run_is_and_what_is_left() -> None:
    out = Terminal()
    line = ProgressLine("kv_aware", Half(), out=out, clock=Wall(40.0))
    line(3725.0, CLOCK_EVERY * 10, 2000)
    shown = "kv_aware: 1:02 h simulated, 2,000 requests, 64/s, 50%, 40 s left"
    assert out.getvalue() == "\r" + shown
    line.close()
    assert out.getvalue() == "\r" + shown + "\r" + " " * len(shown) + "\r"


def test_a_source_of_unknown_size_gives_no_share() -> None:
    out = Terminal()
    line = ProgressLine("random", object(), out=out, clock=Wall(1.0))
    line(75.0, CLOCK_EVERY, 200)
    assert out.getvalue() == f"\rrandom: 1:15 min simulated, 200 requests, {CLOCK_EVERY}/s"


def test_it_is_for_terminals_unless_it_is_forced() -> None:
    for out, forced, shown in (
        (io.StringIO(), False, False),
        (io.StringIO(), True, True),
        (Terminal(), False, True),
    ):
        line = ProgressLine("x", out=out, forced=forced, clock=Wall(1.0))
        line(1.0, CLOCK_EVERY, 1)
        line.close()
        assert bool(out.getvalue()) is shown


def test_the_line_is_written_a_few_times_a_second_with_few_clock_reads() -> None:
    out, wall = Terminal(), Wall(EVERY_S / 4)
    line = ProgressLine("x", out=out, clock=wall)
    for arrived in range(1, CLOCK_EVERY * 40 + 1):
        line(0.0, arrived, arrived)
    assert wall.looks == 41
    assert out.getvalue().count("\r") == 10


def test_a_closed_terminal_does_not_end_the_run() -> None:
    out = Terminal()
    line = ProgressLine("x", out=out, clock=Wall(1.0))
    out.close()
    line(1.0, CLOCK_EVERY, 1)
    line(2.0, CLOCK_EVERY * 2, 1)
    line.close()


@pytest.mark.parametrize("shown", [False, True])
def test_it_does_not_change_a_run(shown: bool) -> None:
    traffic = Unique(rate=50.0, duration_s=10.0, block_tokens=BLOCK)
    plain, watched = Kept(), Kept()
    simulate(world(), traffic, plain)
    out = Terminal() if shown else io.StringIO()
    line = ProgressLine("x", traffic, out=out, clock=Wall(1.0))
    simulate(world(), traffic, watched, progress=line)
    assert plain.lines() == watched.lines()
    assert bool(out.getvalue()) is shown
