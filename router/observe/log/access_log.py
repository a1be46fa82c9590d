"""The access log: one JSON line per request, encoded at once and written in batches by a thread.

`write` appends a line to a buffer with one call of a C encoder. The buffer is passed to a `Sink`
after `flush_s` seconds or 64 KiB, whichever comes first. The timer runs only while lines wait, so
an idle router has no timer. If the disk is slow or full, at most `queue_bytes` bytes wait. Further
lines are dropped and counted in `dropped`.

Must never: block the event loop, or raise into it because of a path or model that a client sends.
All methods are called in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

import msgspec

from router.observe.events import log_event
from router.observe.log.record import Line, repaired, timed
from router.observe.log.salt import Salter
from router.observe.log.sink import CLOSE_TIMEOUT_S, Sink

TEXT_CHARS_MAX: Final = 256  # maximum characters of a path or a model name in a line
BATCH_BYTES: Final = 64 * 1024
STDOUT: Final = 1
_NEWLINE: Final = b"\n"


class AccessLog:
    """Writes `Line`s to the file `path`. "-" means standard output, and "" means no log.

    `flush_s`: seconds until a line is written. `salt`, `blocks`: see `Salter`. `iso_time`: adds
    `time` to each line. Raises OSError if the file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        flush_s: float = 0.5,
        queue_bytes: int = 4 << 20,
        salt: str = "",
        blocks: int = 64,
        iso_time: bool = False,
    ) -> None:
        self.enabled = path != ""
        self.salter = Salter(salt, blocks)
        self._flush_s = flush_s
        self._iso_time = iso_time
        # `queue_bytes` also includes two batches of lines: the batch that is being filled, and the
        # batch that is being handed to the sink.
        self._batch_bytes = min(BATCH_BYTES, queue_bytes // 4)
        self._sink: Sink | None = None
        if path:
            room = queue_bytes - self._batch_bytes
            self._sink = Sink(STDOUT if path == "-" else path, room, _report)
        self._encode_into = msgspec.json.Encoder().encode_into
        # The lines that were not handed over yet are the first `_bytes` bytes of the buffer. It
        # keeps its memory, so that it grows only for the first batch.
        self._buffer = bytearray()
        self._bytes = 0
        self._lines = 0
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """The number of lines lost because the queue was full or a write failed."""
        return self._dropped + (self._sink.lost_lines if self._sink is not None else 0)

    @property
    def has_ended(self) -> bool:
        """Whether the log is closed and will lose no more lines."""
        return not self.enabled and (self._sink is None or self._sink.has_ended)

    @property
    def is_armed(self) -> bool:
        """Whether the flush timer runs. It only runs while lines wait."""
        return self._timer is not None

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that were encoded and are not yet written."""
        return self._bytes + (self._sink.waiting_bytes if self._sink is not None else 0)

    def write(self, record: Line) -> None:
        """Encodes one line. Must be called in the event loop, because the flush timer needs it."""
        if not self.enabled:
            return
        if self._bytes >= self._batch_bytes and not self._hand_over():
            self._dropped += 1
            return
        if self._iso_time:
            record = timed(record, datetime.fromtimestamp(round(record.ts, 3), UTC))
        buffer, at = self._buffer, self._bytes
        try:
            self._encode_into(record, buffer, at)
        except Exception:
            # Lone surrogates become `?`.
            try:
                self._encode_into(repaired(record), buffer, at)
            except Exception:
                self._dropped += 1
                return
        buffer += _NEWLINE
        self._bytes = len(buffer)
        self._lines += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def reopen(self) -> None:
        """Opens the file again after log rotation. Lines before the call go to the old file.

        If the file cannot be opened, the old file stays in use and the error is logged.
        """
        if self._sink is not None:
            self._hand_over()
            self._sink.reopen()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Writes the waiting lines, for at most `timeout_s` seconds, and closes the log.

        With 0, the call returns at once, and the thread continues writing.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.enabled = False
        if self._sink is not None:
            if not self._hand_over():
                self._drop_batch()
            self._sink.close(timeout_s)

    def _flush(self) -> None:
        self._timer = None
        if not self._hand_over():
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def _hand_over(self) -> bool:
        """Hands the buffered lines to the sink's thread. Returns False if its queue is full."""
        if not self._lines:
            return True
        assert self._sink is not None
        if self._sink.has_room(self._bytes):
            self._sink.put(bytes(self._buffer[: self._bytes]))
            self._forget_batch()
            return True
        if self._sink.waiting_bytes:
            return False
        self._drop_batch()  # a line that is larger than the whole queue could never be written
        return True

    def _drop_batch(self) -> None:
        self._dropped += self._lines
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._lines = self._bytes = 0


def _report(err: OSError) -> None:
    log_event(logging.ERROR, "access log lines lost", error=str(err))


def milliseconds(seconds: float) -> float:
    """Converts seconds to milliseconds with three decimals, three times as fast as `round`."""
    return int(seconds * 1e6 + 0.5) / 1e3


class ReplacedLogs:
    """The closed access logs of one router."""

    def __init__(self) -> None:
        self._logs: list[AccessLog] = []
        self._dropped = 0  # Lines lost by logs that have ended.

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, log: AccessLog) -> None:
        """Adds a log. Its `close` was called."""
        self._forget_ended()
        self._logs.append(log)

    @property
    def dropped(self) -> int:
        """The number of lines lost by all logs that were added."""
        self._forget_ended()
        return self._dropped + sum(log.dropped for log in self._logs)

    def _forget_ended(self) -> None:
        left: list[AccessLog] = []
        for log in self._logs:
            if log.has_ended:
                self._dropped += log.dropped
            else:
                left.append(log)
        self._logs = left
