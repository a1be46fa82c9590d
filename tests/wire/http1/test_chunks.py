"""The framing of chunks."""

import pytest

from router.wire.http1.chunks import chunk
from router.wire.http1.sse import ERROR_MARKS, is_error_line


@pytest.mark.parametrize("size", [1, 9, 10, 15, 16, 255, 511, 512, 513, 70_000])
def test_a_chunk_has_its_size_in_hexadecimal(size: int) -> None:
    line, data, rest = chunk(b"x" * size).split(b"\r\n")
    assert int(line, 16) == len(data) == size
    assert line == b"%x" % size and rest == b""


@pytest.mark.parametrize("mark", ERROR_MARKS)
@pytest.mark.parametrize("before", [b"", b"event: x\n"])
def test_every_mark_of_an_error_is_found(mark: bytes, before: bytes) -> None:
    assert is_error_line(before + mark + b"\n\n", len(before))
    assert not is_error_line(before + mark[:-1] + b"\n\n", len(before))
    assert not is_error_line(before + b" " + mark, len(before))
