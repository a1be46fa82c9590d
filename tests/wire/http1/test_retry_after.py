"""Retry-After: seconds or a date, within bounds; an invalid value is ignored."""

from email.utils import formatdate

import pytest
from hypothesis import given, strategies as st

from router.config.model import Limits
from router.wire.http1.response_reader import ResponseReader
from router.wire.http1.retry_after import LONGEST_S, seconds_of

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"0", 0.0),
        (b" 7 ", 7.0),
        (b"60", 60.0),
        (b"61", LONGEST_S),
        (b"9" * 60, LONGEST_S),
        (b"-1", None),
        (b"1.5", None),
        (b"+5", None),
        (b"", None),
        (b"soon", None),
        (b"9" * 65, None),
        ("٣".encode(), None),
        (b"Wed, 15 Nov 2023 33:00:00 GMT", None),
        (b"Wed, 15 Nov 99999999999999 00:00:00 GMT", None),
        (b"Tue, 14 Nov 2023 22:13:25 GMT", 5.0),  # RFC 1123
        (b"Tuesday, 14-Nov-23 22:13:25 GMT", 5.0),  # RFC 850
        (b"Tue Nov 14 22:13:25 2023", 5.0),  # asctime
        (b"Tue, 14 Nov 2023 22:13:25 -0000", 5.0),
        (b"Tue, 14 Nov 2023 22:13:15 GMT", 0.0),  # the date has passed
        (b"Tue, 14 Nov 2034 22:13:15 GMT", LONGEST_S),
    ],
)
def test_what_it_says(value: bytes, seconds: float | None) -> None:
    assert seconds_of(value, NOW) == seconds


@given(st.floats(-1e9, 1e9))
def test_any_date(offset: float) -> None:
    found = seconds_of(formatdate(NOW + offset, usegmt=True).encode(), NOW)
    assert found is not None
    assert 0.0 <= found <= LONGEST_S
    assert found == pytest.approx(min(max(offset, 0.0), LONGEST_S), abs=1.0)


@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_bytes(value: bytes) -> None:
    found = seconds_of(value, NOW)
    assert found is None or 0.0 <= found <= LONGEST_S


def test_a_response_head_carries_it_and_passes_it_on() -> None:
    raw = b"HTTP/1.1 503 Busy\r\nretry-AFTER:  7 \r\nContent-Length: 0\r\n\r\n"
    for _ in range(2):  # classified, then from the cache
        reader = ResponseReader(Limits())
        reader.feed(raw)
        assert reader.head is not None
        assert reader.head.retry_after == b"7"
        assert reader.head.lines == [b"retry-AFTER:  7 "]
