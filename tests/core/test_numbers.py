"""Which texts are numbers. Python's own functions accept each of the rejected ones, or raise."""

import math

import pytest
from hypothesis import given, strategies as st

from router.core.numbers import decimal_number, whole_number

# Python accepts all of these as numbers.
LENIENT = ["1_000", " 1", "1 ", "1\n", "+1", "\u0661", "\uff11"]
NO_NUMBERS = ["", "-", ".", "e1", "1e", "0x10", "1,5", "--1", "1.2.3", "\u00b2", "None"]


@pytest.mark.parametrize("text", [*LENIENT, *NO_NUMBERS, "-1", "1.0", "1e1", "nan", "inf"])
def test_texts_that_are_no_whole_number(text: str) -> None:
    assert whole_number(text, 9) is None


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("123456789", 123456789)])
def test_whole_numbers(text: str, number: int) -> None:
    assert whole_number(text, 9) == number


def test_the_number_of_digits_is_limited() -> None:
    assert whole_number("1" * 10, 9) is None
    assert whole_number("9" * 5000, 9) is None  # `int` raises ValueError


@pytest.mark.parametrize(
    "text", [*LENIENT, *NO_NUMBERS, "nan", "inf", "-inf", "infinity", "1e999", "-1e999", "9" * 5000]
)
def test_texts_that_are_no_decimal_number(text: str) -> None:
    assert decimal_number(text.encode()) is None


@given(st.binary(max_size=12))
def test_any_bytes_are_a_finite_number_or_none(text: bytes) -> None:
    number = decimal_number(text)
    assert number is None or (math.isfinite(number) and number == float(text))


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_none(text: str) -> None:
    number = whole_number(text, 12)
    assert number is None or text.lstrip("0") in (str(number), "")
