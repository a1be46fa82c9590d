"""Writes bytes to a file descriptor in a thread, so that no other thread waits for a disk or pipe.

Invariants: at most `queue_bytes` bytes wait. Data that exceeds them is refused (`put` returns
False). Data that cannot be written (disk full, broken pipe) is dropped and counted, and not written
later. Two lines are never joined: after a partial write the next write begins on a new line.

Must never: block its callers, raise out of the thread, or keep the process from exiting. `put`,
`reopen` and `close` must not be called by two threads at once. Each counter is changed by only one
thread.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue

CLOSE_TIMEOUT_S = 1.0
# While a non-blocking descriptor accepts no bytes, the thread checks for a `close` after each of
# these periods, in milliseconds.
_POLL_MS = 200


class _Order(Enum):
    REOPEN = "reopen"
    CLOSE = "close"


class Sink:
    """Writes whole lines to a path, which is opened for appending, or to an open descriptor.

    Raises OSError if the path cannot be opened. `on_error` is called in the writer's thread for
    every failed write or reopen; it must not raise.
    """

    def __init__(
        self,
        target: str | int,
        queue_bytes: int,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        self.path = target if isinstance(target, str) else None
        self.queue_bytes = queue_bytes
        self.lost_lines = 0  # changed by the writer's thread only
        self._fd = _open(target) if isinstance(target, str) else target
        self._on_error = on_error
        self._queue: SimpleQueue[bytes | _Order] = SimpleQueue()
        self._put_bytes = 0  # changed by callers only
        self._done_bytes = 0  # changed by the writer's thread only
        self._is_pipe = stat.S_ISFIFO(os.fstat(self._fd).st_mode)
        self._torn = False
        self._give_up_at: float | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that were accepted and are not yet written or dropped."""
        return self._put_bytes - self._done_bytes

    @property
    def has_ended(self) -> bool:
        """Whether `close` was called and the thread has ended."""
        return self._closed and (self._thread is None or not self._thread.is_alive())

    def has_room(self, size: int) -> bool:
        """Whether `put` accepts `size` bytes now."""
        return not self._closed and self.waiting_bytes + size <= self.queue_bytes

    def put(self, lines: bytes) -> bool:
        """Accepts whole lines, each with its newline. Returns False if too many bytes wait."""
        if not self.has_room(len(lines)):
            return False
        self._put_bytes += len(lines)
        self._order(lines)
        return True

    def reopen(self) -> None:
        """Opens the path again, after all earlier data was written. A descriptor stays as it is."""
        if self.path is not None and not self._closed:
            self._order(_Order.REOPEN)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Writes waiting data for at most `timeout_s` seconds, and ends the thread.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            self._close_fd()
            return
        self._give_up_at = time.monotonic() + timeout_s
        self._queue.put(_Order.CLOSE)
        # A thread that is blocked in a write keeps running. It ends with the process, because it
        # is a daemon thread.
        self._thread.join(timeout_s)

    def _order(self, item: bytes | _Order) -> None:
        self._queue.put(item)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="hedgerow-sink", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started; the next call tries again
                return
            self._thread = thread

    # The methods below run in the writer's thread.

    def _run(self) -> None:
        while (item := self._queue.get()) is not _Order.CLOSE:
            if isinstance(item, _Order):
                self._reopen()
            else:
                self._write(item)
                self._done_bytes += len(item)
        self._close_fd()

    def _write(self, lines: bytes) -> None:
        rest = memoryview(lines)
        try:
            if self._torn:
                self._write_some(memoryview(b"\n"))
                self._torn = False
            while rest:
                rest = rest[self._write_some(self._piece(rest)) :]
        except OSError as err:
            written = len(lines) - len(rest)
            if written:
                self._torn = lines[written - 1] != ord("\n")
            self.lost_lines += bytes(rest).count(b"\n")
            self._report(err)

    def _piece(self, rest: memoryview) -> memoryview:
        """Return what one write may have: whole lines for a pipe, which other processes may share.

        A pipe never mixes writes of at most PIPE_BUF bytes (pipe(7)). A longer line is not divided.
        """
        if not self._is_pipe or len(rest) <= select.PIPE_BUF:
            return rest
        end = bytes(rest[: select.PIPE_BUF]).rfind(b"\n") + 1
        return rest[:end] if end else rest[: bytes(rest).find(b"\n") + 1]

    def _write_some(self, data: memoryview) -> int:
        while True:
            try:
                return os.write(self._fd, data)
            except BlockingIOError:
                # Another process that shares standard output may have made it non-blocking.
                if self._give_up_at is not None and time.monotonic() >= self._give_up_at:
                    raise
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll(_POLL_MS)

    def _reopen(self) -> None:
        assert self.path is not None
        try:
            fresh = _open(self.path)
        except OSError as err:
            self._report(err)  # the path cannot be opened, so the old file stays in use
            return
        os.close(self._fd)
        self._fd = fresh
        self._torn = False

    def _close_fd(self) -> None:
        if self.path is not None:
            try:
                os.close(self._fd)
            except OSError as err:  # a network file system may report a failed write only at close
                self._report(err)

    def _report(self, err: OSError) -> None:
        if self._on_error is not None:
            self._on_error(err)


def _open(path: str) -> int:
    # O_APPEND keeps the file correct if several processes write to it, or if log rotation copies
    # and truncates it. O_NONBLOCK is set only while the file is opened: to open a pipe without a
    # reader then fails, instead of blocking.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o640)
    os.set_blocking(fd, True)
    return fd
