"""Priority numbers of requests sent at different times are comparable.

An earlier request is more urgent. A higher class overtakes a lower one only within its time offset.
SGLang preempts only a request of another class.
"""

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.core.urgency import class_of, stepped
from router.fleet.engines.common import registry
from router.fleet.engines.common.priority import (
    EPOCH,
    LEAST_LEVEL_S,
    MOST_LEVEL_S,
)

DEADLINES = ("vllm", "sglang", "sglang-low-first")
DIALECTS = (*DEADLINES, "trtllm")
THRESHOLD = 10  # SGLang's --priority-scheduling-preemption-threshold
ON_SCALE = st.floats(0, 4)
NUMBERS = st.builds(stepped, ON_SCALE, st.integers(0, 10_000))
ARRIVALS = st.floats(EPOCH, EPOCH + 10 * 365 * 86_400.0)
LEVELS = st.floats(LEAST_LEVEL_S, MOST_LEVEL_S)


def number_for(
    dialect: str, is_bounded: bool, number: float, arrived: float, level: float
) -> bytes:
    return registry.DIALECTS[dialect].write(number, arrived, level, is_bounded)


def there(
    dialect: str, number: float, arrived: float, level: float = 300.0, is_bounded: bool = False
) -> float:
    """The number as the engine compares it: a lower number is served earlier."""
    value = float(number_for(dialect, is_bounded, number, arrived, level))
    return -value if dialect in ("sglang", "trtllm") else value


@pytest.mark.parametrize("dialect", DEADLINES)
@given(number=NUMBERS, first=ARRIVALS, second=ARRIVALS, level=LEVELS)
def test_earlier_is_at_least_as_urgent_at_equal_steps(
    dialect: str, number: float, first: float, second: float, level: float
) -> None:
    early, late = min(first, second), max(first, second)
    assert there(dialect, number, early, level) <= there(dialect, number, late, level)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("is_bounded", [False, True])
@given(a=NUMBERS, b=NUMBERS, arrived=ARRIVALS, level=LEVELS)
def test_of_two_that_come_together_the_more_urgent_is_never_behind(
    dialect: str, is_bounded: bool, a: float, b: float, arrived: float, level: float
) -> None:
    if a > b:
        a, b = b, a
    first = there(dialect, a, arrived, level, is_bounded)
    second = there(dialect, b, arrived, level, is_bounded)
    assert first <= second
    if round(a) == a and class_of(a) < class_of(b):
        assert first < second, "classes never meet"


@pytest.mark.parametrize("dialect", ["sglang", "sglang-low-first"])
@pytest.mark.parametrize("is_bounded", [False, True])
@given(a=NUMBERS, b=NUMBERS, arrived=ARRIVALS, apart_s=st.floats(0, 15), level=LEVELS)
def test_sglang_displaces_for_another_class_only(
    dialect: str,
    is_bounded: bool,
    a: float,
    b: float,
    arrived: float,
    apart_s: float,
    level: float,
) -> None:
    first = there(dialect, a, arrived, level, is_bounded)
    second = there(dialect, b, arrived + apart_s, level, is_bounded)
    if class_of(a) == class_of(b):
        assert abs(first - second) <= THRESHOLD
    together = there(dialect, b, arrived, level, is_bounded)
    if class_of(a) != class_of(b):
        assert abs(first - together) > THRESHOLD


def test_an_engine_that_keeps_numbers_gets_few_of_them() -> None:
    found = {
        number_for("sglang", True, stepped(float(rank), steps), EPOCH + 97.3 * steps, 300.0)
        for rank in range(5)
        for steps in range(2000)
    }
    assert len(found) <= 45


@pytest.mark.parametrize(
    ("dialect", "is_bounded"),
    [("vllm", False), ("trtllm", False), ("sglang", True), ("sglang-low-first", True)],
)
def test_the_first_steps_of_a_flow_can_be_told_apart(dialect: str, is_bounded: bool) -> None:
    for rank in range(5):
        numbers = [stepped(float(rank), step) for step in range(3)]
        said = [there(dialect, number, EPOCH + 1e7, 300.0, is_bounded) for number in numbers]
        assert said == sorted(set(said))


@pytest.mark.parametrize(
    ("dialect", "is_bounded", "words"),
    [
        ("vllm", False, ["-41000", "-2000", "1000", "4000", "7000"]),
        ("sglang", False, ["273", "13", "-7", "-27", "-47"]),
        ("sglang-low-first", False, ["-273", "-13", "7", "27", "47"]),
        ("sglang", True, ["280", "20", "0", "-20", "-40"]),
        ("sglang-low-first", True, ["-280", "-20", "0", "20", "40"]),
        ("trtllm", False, ["0.9000", "0.7000", "0.5000", "0.3000", "0.1000"]),
    ],
)
def test_the_classes_of_requests_that_come_together(
    dialect: str, is_bounded: bool, words: list[str]
) -> None:
    said = [number_for(dialect, is_bounded, float(n), EPOCH + 100.0, 300.0) for n in range(5)]
    assert said == [word.encode() for word in words]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(number=NUMBERS, arrived=st.floats(0.0, EPOCH + 30 * 365 * 86_400.0), level=LEVELS)
def test_what_is_said_is_what_the_engine_takes(
    dialect: str, number: float, arrived: float, level: float
) -> None:
    value = msgspec.json.decode(number_for(dialect, False, number, arrived, level))
    if dialect == "trtllm":
        assert 0.0 <= value <= 1.0
    else:
        assert isinstance(value, int) and abs(value) < 2**53
