"""Instruction counts of each part stay below the recorded count and below the goal."""

import shutil

import pytest

from bench.overhead import instructions
from bench.overhead.parts import PARTS, Part
from router.core.build import is_compiled

PART = Part("a", "a part", 10, "")
GOAL = 10 * instructions.INSTRUCTIONS_PER_US


@pytest.mark.parametrize(
    ("count", "counted", "same_build", "fails"),
    [
        (GOAL, None, True, False),
        (GOAL + 1, None, True, True),
        (GOAL + 1, GOAL, True, True),  # the goal was met, and is missed now
        (2 * GOAL, 2 * GOAL, True, False),  # a known excess
        (2.1 * GOAL, 2 * GOAL, True, True),  # a known excess that has grown
        (0.56 * GOAL, 0.5 * GOAL, True, True),  # within the goal, but worse than before
        (0.51 * GOAL, 0.5 * GOAL, True, False),
        (0.6 * GOAL, 0.5 * GOAL, False, False),  # another compiler: only the goal counts
        (1.1 * GOAL, 0.5 * GOAL, False, True),
    ],
)
def test_a_part_fails_above_its_goal_and_above_what_was_counted(
    count: float, counted: float | None, same_build: bool, fails: bool
) -> None:
    known = None if counted is None else int(counted)
    judged = instructions.judge(PART, count, known, same_build=same_build)
    assert judged.fails is fails
    assert ("missed" in judged.words) is (fails or count > GOAL)


def test_a_count_that_is_too_high_is_repeated() -> None:
    most = instructions.COUNTED["token"]
    counts = [{"token": 2.0 * most}, {"token": float(most)}, {"token": 3.0 * most}]
    (judged,) = instructions.judge_counts(lambda: counts.pop(0))
    assert (judged.count, judged.fails, len(counts)) == (most, False, 1)


def test_every_part_has_a_limit() -> None:
    """The part `internal` has no instruction limit: its clock is inside the request."""
    assert instructions.COUNTED.keys() == {part.name for part in PARTS} - {"internal"}


@pytest.mark.skipif(not is_compiled(), reason="limits are of compiled code")
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs Debian's valgrind")
def test_no_part_takes_more_instructions_than_it_may() -> None:
    judged = instructions.judge_counts(instructions.count)
    assert len(judged) == len(instructions.COUNTED)
    for each in judged:
        print(f"{each.part.title}: {each.count:,.0f}: {each.words}")
    assert not [f"{each.part.title}: {each.words}" for each in judged if each.fails]
