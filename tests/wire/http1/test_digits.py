"""Numbers are read from bytes as a regular expression reads them."""

import re

import pytest
from hypothesis import given, strategies as st

from router.wire.http1.digits import number_at


@pytest.mark.parametrize(
    ("data", "at", "most", "expected"),
    [
        (b"200 OK", 0, 3, (200, 3)),
        (b"x42", 1, 9, (42, 3)),
        (b"007", 0, 3, (7, 3)),
        (b"0", 0, 1, (0, 1)),
        (b"", 0, 3, (-1, 0)),
        (b"12", 2, 3, (-1, 2)),
        (b"12", 5, 3, (-1, 5)),
        (b"-1", 0, 3, (-1, 0)),
        (b"+1", 0, 3, (-1, 0)),
        (b" 1", 0, 3, (-1, 0)),
        (b"1_0", 0, 3, (1, 1)),
        (b"/:", 0, 3, (-1, 0)),  # "/" precedes "0", ":" follows "9"
        (b"\xb21", 0, 3, (-1, 0)),  # a digit of Latin-1
    ],
)
def test_a_number(data: bytes, at: int, most: int, expected: tuple[int, int]) -> None:
    assert number_at(data, at, most) == expected


def test_a_number_of_too_many_digits_is_none() -> None:
    assert number_at(b"1234", 0, 4) == (1234, 4)
    assert number_at(b"1234", 0, 3)[0] == -1
    assert number_at(b"1" * 100_000, 0, 18) == (-1, 19)  # the number is not read to its end


@given(
    st.text("0159/: ", max_size=8).map(str.encode) | st.binary(max_size=8),
    st.integers(0, 5),
    st.integers(1, 5),
)
def test_it_reads_what_a_pattern_reads(data: bytes, at: int, most: int) -> None:
    found = re.compile(rb"[0-9]*").match(data, min(at, len(data)))
    assert found is not None
    value, end = number_at(data, at, most)
    digits = found.group()
    if 0 < len(digits) <= most and at < len(data):
        assert (value, end) == (int(digits), found.end())
    else:
        assert value == -1
        assert at <= end <= max(at, len(data))
