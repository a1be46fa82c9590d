"""Bytes are split into lines: line numbers, gzip, and files that are not text."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from router.lab.simulator.traffic import TraceError
from router.lab.traces import lines as log_lines
from router.lab.traces.lines import LINE_MAX, Lines, by_arrival


def lines_of(file: Path) -> list[tuple[int, bytes]]:
    lines = Lines(str(file))
    try:
        return [(lines.number, line) for line in lines]
    finally:
        lines.close()


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_blank_lines_are_counted_and_left_out(tmp_path: Path, pack: type[bytes]) -> None:
    file = tmp_path / "f"
    file.write_bytes(pack(b"\xef\xbb\xbfa\n\n \r\nb\r\nc"))
    assert lines_of(file) == [(1, b"a\n"), (4, b"b\r\n"), (5, b"c")]


def test_a_byte_order_mark_alone_is_no_line(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbf")
    assert lines_of(file) == []


def test_a_line_may_be_as_long_as_the_limit_and_no_longer(tmp_path: Path) -> None:
    file = tmp_path / "f"
    with file.open("wb") as out:
        out.truncate(LINE_MAX)  # a sparse file: no data is written
    assert [len(line) for _, line in lines_of(file)] == [LINE_MAX]
    with file.open("ab") as out:
        out.write(b"x")
    with pytest.raises(TraceError, match="over 64 MiB") as caught:
        lines_of(file)
    assert caught.value.line == 1


def test_damaged_or_truncated_gzip_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "f.gz"
    whole = gzip.compress(b"one\ntwo\n" * 100_000)
    file.write_bytes(whole[:-40])
    with pytest.raises(TraceError, match="damaged gzip data") as caught:
        lines_of(file)
    assert caught.value.line > 1
    file.write_bytes(whole[:20] + b"\xff\xff\xff\xff" + whole[24:])
    with pytest.raises(TraceError, match="damaged gzip data"):
        lines_of(file)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_position_goes_from_the_beginning_to_the_end(tmp_path: Path, pack: type[bytes]) -> None:
    file = tmp_path / "f"
    file.write_bytes(pack(b"".join(b"%d\n" % (i * 7919) for i in range(200_000))))
    size = file.stat().st_size
    lines = Lines(str(file))
    assert lines.position() == (0, size)
    seen = [lines.position()[0] for _ in lines]
    assert 0 < seen[0] < size / 2
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    lines.close()
    lines.close()
    assert lines.position() == (size, size)


def test_a_line_without_an_end_is_the_last_one(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a\nb")
    lines = Lines(str(file))
    assert [lines.is_cut for _ in lines] == [False, True]
    lines.close()


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
