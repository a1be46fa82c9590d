"""Bytes are split into lines: line numbers, gzip, and files that are not text."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from router.lab.simulator.traffic import TraceError
from router.lab.traces.lines import LINE_MAX, Lines


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
