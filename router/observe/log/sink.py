"""One thread that writes bytes to one file descriptor, so that no other thread waits for a disk or
for the reader of a pipe.

Invariants: at most `queue_bytes` wait. Data that does not fit is refused (`put` returns False).
Data that the descriptor refuses (disk full, broken pipe) is dropped and counted, never retried. Two
lines are never joined: after a partial write the next write starts on a new line.

Must never: block its callers, raise out of the thread, or keep the process from exiting. `put`,
`reopen` and `close` belong to one thread at a time; each number here has one writer.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue

CLOSE_TIMEOUT_S = 1.0
# seconds after which a writer blocked on a full non-blocking descriptor notices a close
_POLL_MS = 200


class _Order(Enum):
    REOPEN = "reopen"
    CLOSE = "close"


class Sink:
    """Writes batches of whole lines to a path (opened for appending) or to a borrowed descriptor.

    Raises OSError if the path cannot be opened. `on_error` is called in the writer's thread for
    every write or reopen that fails; it must not raise.
    """

    def __init__(
        self,
        target: str | int,
        queue_bytes: int,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        self.path = target if isinstance(target, str) else None
        self.queue_bytes = queue_bytes
        self.lost_lines = 0  # written by the thread only
        self._fd = _open(target) if isinstance(target, str) else target
        self._on_error = on_error
        self._queue: SimpleQueue[bytes | bytearray | _Order] = SimpleQueue()
        self._put_bytes = 0  # written by callers only
        self._done_bytes = 0  # written by the thread only
        self._torn = False
        self._give_up_at: float | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes accepted and not yet written or dropped."""
        return self._put_bytes - self._done_bytes

    def put(self, lines: bytes | bytearray) -> bool:
        """Accepts whole lines with their last newline. Returns False if there is no room."""
        if self._closed or self.waiting_bytes + len(lines) > self.queue_bytes:
            return False
        self._put_bytes += len(lines)
        self._order(lines)
        return True

    def reopen(self) -> None:
        """Reopens the path after all earlier data is written. A borrowed descriptor is not
        reopened.
        """
        if self.path is not None and not self._closed:
            self._order(_Order.REOPEN)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Writes waiting data for at most `timeout_s` (seconds) and ends the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            self._close_fd()
            return
        self._give_up_at = time.monotonic() + timeout_s
        self._queue.put(_Order.CLOSE)
        # A thread blocked inside write() is left; as a daemon it ends with the process.
        self._thread.join(timeout_s)

    def _order(self, item: bytes | bytearray | _Order) -> None:
        self._queue.put(item)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="hedgerow-sink", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can start: the item waits for the next call
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

    def _write(self, lines: bytes | bytearray) -> None:
        rest = memoryview(lines)
        try:
            if self._torn:
                self._write_some(memoryview(b"\n"))
                self._torn = False
            while rest:
                rest = rest[self._write_some(rest) :]
        except OSError as err:
            written = len(lines) - len(rest)
            if written:
                self._torn = lines[written - 1] != ord("\n")
            self.lost_lines += bytes(rest).count(b"\n")
            self._report(err)

    def _write_some(self, data: memoryview) -> int:
        while True:
            try:
                return os.write(self._fd, data)
            except BlockingIOError:
                # Another process may share standard output and have made it non-blocking.
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
            self._report(err)  # the new file cannot be opened: keep writing to the old file
            return
        os.close(self._fd)
        self._fd = fresh
        self._torn = False

    def _close_fd(self) -> None:
        if self.path is not None:
            try:
                os.close(self._fd)
            except OSError as err:  # a network file system may report a lost write only here
                self._report(err)

    def _report(self, err: OSError) -> None:
        if self._on_error is not None:
            self._on_error(err)


def _open(path: str) -> int:
    # Appending: several writers and copy-and-truncate rotation both stay correct. Non-blocking only
    # while it opens: a pipe without a reader is then an error, not a hang.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o640)
    os.set_blocking(fd, True)
    return fd
