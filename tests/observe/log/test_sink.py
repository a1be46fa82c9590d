"""The writing thread: whole lines, bounded waiting, and no stop on a bad descriptor."""

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.observe.log.sink import Sink
from tests.observe.helpers import sink_threads, until_sync

PIPE_BYTES = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that holds one page."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            pass
    until_sync(lambda: not sink_threads())


def read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 65536):
        parts.append(part)
    return b"".join(parts)


def test_lines_arrive_in_order_and_the_thread_ends(tmp_path: Path) -> None:
    sink = Sink(str(tmp_path / "log"), 1 << 20)
    assert not sink_threads()  # no thread until there is something to write
    for number in range(1000):
        assert sink.put(b"%d\n" % number)
    sink.close()
    assert (tmp_path / "log").read_bytes() == b"".join(b"%d\n" % n for n in range(1000))
    assert sink.waiting_bytes == 0
    assert not sink_threads()
    assert not sink.put(b"late\n")
    sink.close()


def test_a_sink_never_used_leaves_nothing_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    sink = Sink(str(tmp_path / "log"), 1 << 20)
    sink.reopen()
    sink.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_blocked_descriptor_refuses_what_does_not_fit(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    sink = Sink(writer, 20_000)
    line = b"x" * 999 + b"\n"
    taken = sum(sink.put(line) for _ in range(100))
    assert 20 <= taken < 100
    assert sink.waiting_bytes <= 20_000
    got = b""
    while len(got) < taken * 1000:
        got += os.read(reader, 65536)
    until_sync(lambda: sink.waiting_bytes == 0)
    assert sink.put(line)  # and the sink continues
    sink.close()
    assert sink.lost_lines == 0


def test_closing_does_not_wait_for_a_blocked_descriptor(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    sink = Sink(writer, 1 << 20)
    sink.put(b"x\n" * PIPE_BYTES)
    sink.close(timeout_s=0.05)
    assert sink_threads()  # blocked in write(); a daemon, so the process may still end
    os.set_blocking(reader, False)
    got = b""

    def drained() -> bool:
        nonlocal got
        try:
            got += os.read(reader, 65536)
        except BlockingIOError:
            pass
        return len(got) == 2 * PIPE_BYTES

    until_sync(drained)
    until_sync(lambda: not sink_threads())


def test_a_non_blocking_descriptor_is_waited_for(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    sink = Sink(writer, 1 << 20)
    sink.put(b"y\n" * PIPE_BYTES)
    got = b""
    while len(got) < 2 * PIPE_BYTES:
        got += os.read(reader, 65536)
    sink.close()
    assert got == b"y\n" * PIPE_BYTES


def test_a_non_blocking_descriptor_that_stays_full_is_given_up(pipe: tuple[int, int]) -> None:
    _, writer = pipe
    os.set_blocking(writer, False)
    sink = Sink(writer, 1 << 20)
    sink.put(b"y\n" * PIPE_BYTES)
    sink.close(timeout_s=0.05)
    until_sync(lambda: not sink_threads())
    assert sink.lost_lines == PIPE_BYTES // 2  # the rest fills the pipe


def test_a_full_disk_loses_lines_and_says_so() -> None:
    errors: list[OSError] = []
    sink = Sink("/dev/full", 1 << 20, errors.append)
    sink.put(b"a\nb\n")
    sink.put(b"c\n")
    sink.close()
    assert sink.lost_lines == 3
    assert [err.strerror for err in errors] == ["No space left on device"] * 2


def test_a_reader_that_left_loses_lines(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    sink = Sink(writer, 1 << 20)
    sink.put(b"a\n")
    sink.close()
    assert sink.lost_lines == 1


def test_a_torn_line_is_ended_before_the_next(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    sink = Sink(writer, 1 << 20)
    # Truncate a line: the pipe takes 4,096 bytes of it, and the writer must give up at once.
    sink._give_up_at = 0.0
    sink.put(b"x" * 5000 + b"\n")
    until_sync(lambda: sink.lost_lines == 1)
    assert os.read(reader, 65536) == b"x" * PIPE_BYTES
    sink.put(b"whole\n")
    sink.close()
    assert os.read(reader, 65536) == b"\nwhole\n"


def test_rotation_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = Sink(str(path), 1 << 20)
    for turn in range(5):
        sink.put(b"%d\n" % turn)
        until_sync(lambda: sink.waiting_bytes == 0)
        path.rename(tmp_path / f"log.{turn}")
        sink.put(b"still %d\n" % turn)
        sink.reopen()
    sink.put(b"new\n")
    sink.close()
    for turn in range(5):
        assert (tmp_path / f"log.{turn}").read_bytes() == b"%d\nstill %d\n" % (turn, turn)
    assert path.read_bytes() == b"new\n"


def test_a_reopen_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    errors: list[OSError] = []
    sink = Sink(str(folder / "log"), 1 << 20, errors.append)
    folder.rename(tmp_path / "moved")
    sink.reopen()
    sink.put(b"a\n")
    sink.close()
    assert (tmp_path / "moved" / "log").read_bytes() == b"a\n"
    assert len(errors) == 1


def test_lines_wait_while_no_thread_is_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sink = Sink(str(tmp_path / "log"), 1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert sink.put(b"early\n")
    assert sink.put(b"late\n")
    sink.close()
    assert (tmp_path / "log").read_bytes() == b"early\nlate\n"


def test_a_pipe_without_a_reader_is_an_error_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such device"):
        Sink(str(tmp_path / "fifo"), 1 << 20)


def test_lines_of_two_writers_of_a_pipe_are_not_mixed(pipe: tuple[int, int]) -> None:
    """As the workers of one router share standard output; the reader is slow."""
    reader, writer = pipe
    sinks = [Sink(os.dup(writer), 1 << 20) for _ in range(2)]
    for name, sink in zip((b"a", b"b"), sinks, strict=True):
        assert sink.put(b"".join(name * (100 + n % 300) + b"\n" for n in range(500)))
    found = bytearray()
    while found.count(b"\n") < 1000:
        found += os.read(reader, 1500)
    assert all(len(set(line)) <= 1 for line in found.split(b"\n"))
    for sink in sinks:
        sink.close()
