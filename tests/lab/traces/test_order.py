"""Rows in the order of the requests' ends are returned in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.lab.simulator.traffic import TraceError
from router.lab.traces import lines as log_lines
from router.lab.traces.lines import Lines, by_arrival

Row = tuple[float, float, int, str]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lines]:
    file = tmp_path_factory.mktemp("order") / "f"
    file.write_bytes(b"")
    lines = Lines(str(file))
    yield lines
    lines.close()


requests = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 30)).map(lambda r: (r[0], r[0] + r[1])), max_size=40
)


@given(requests)
def test_a_window_as_long_as_the_longest_request_is_enough(
    lines: Lines, spans: list[tuple[float, float]]
) -> None:
    rows = [(at, end, 1, at) for at, end in sorted(spans, key=lambda span: span[1])]
    longest = max((end - at for at, end in spans), default=0.0)
    found = list(by_arrival(lines, rows, window_s=longest + 1e-6))
    assert found == sorted(at for at, _ in spans)


@given(requests, st.integers(1, 5), st.floats(0, 10))
def test_what_comes_out_is_in_order_or_an_error(
    lines: Lines, spans: list[tuple[float, float]], held: int, window_s: float
) -> None:
    rows = [(at, end, 1, at) for at, end in sorted(spans, key=lambda span: span[1])]
    found: list[float] = []
    try:
        found.extend(by_arrival(lines, rows, held, window_s))
    except TraceError as err:
        assert "sort the rows" in str(err)
    else:
        assert len(found) == len(rows)
    assert found == sorted(found)


def test_no_more_is_held_than_is_allowed(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def rows(blocks: int) -> Iterator[Row]:
        nonlocal read
        for read in range(1, 100):
            yield float(read), float(read), blocks, str(read)

    next(by_arrival(lines, rows(0), 10, 1e9))
    assert read == 11
    monkeypatch.setattr(log_lines, "HELD_BLOCKS", 50)
    next(by_arrival(lines, rows(10), window_s=1e9))
    assert read == 6
    # Returned rows are not held any more: a limit of three rows is enough to the end.
    lags = [read - int(name) for name in by_arrival(lines, rows(10), window_s=3.0)]
    assert lags[:90] == [3] * 90
