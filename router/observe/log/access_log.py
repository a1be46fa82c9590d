"""The access log: one JSON line per request, encoded at once and written in batches by a thread.

`write` costs one call of a C encoder into a buffer. The buffer is passed to a `Sink` after
`flush_s` seconds or 64 KiB, whichever comes first. The timer runs only while lines wait, so an idle
router has no timer. While the sink is slow, blocked or full, at most `queue_bytes` wait. Further
lines are dropped and counted in `dropped`.

Must never: block the event loop or raise into it, whatever path or model a client sends. Everything
here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from router.observe.events import log_event
from router.observe.log.record import Record, repaired
from router.observe.log.salt import Salter
from router.observe.log.sink import CLOSE_TIMEOUT_S, Sink

TEXT_CHARS_MAX = 256  # maximum characters of a path or a model name in a line
BATCH_BYTES = 64 * 1024
STDOUT = 1


class AccessLog:
    """Writes `Record`s to `path`: a file, "-" for standard output, "" for no log.

    `flush_s` is in seconds. `salt` and `blocks` have the same meaning as in `Salter`. Raises
    OSError if the file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        flush_s: float = 0.5,
        queue_bytes: int = 4 << 20,
        salt: str = "",
        blocks: int = 64,
    ) -> None:
        self.enabled = path != ""
        self.salter = Salter(salt, blocks)
        self._flush_s = flush_s
        # Room for two batches is reserved: the one being filled and the one being handed over.
        self._batch_bytes = min(BATCH_BYTES, queue_bytes // 4)
        self._sink: Sink | None = None
        if path:
            room = queue_bytes - self._batch_bytes
            self._sink = Sink(STDOUT if path == "-" else path, room, _report)
        self._encode_into = msgspec.json.Encoder().encode_into
        self._batch = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Lines that were not written, because of a full queue or a failing sink."""
        return self._dropped + (self._sink.lost_lines if self._sink is not None else 0)

    @property
    def is_armed(self) -> bool:
        """Whether a flush timer runs; never while nothing waits."""
        return self._timer is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes encoded and not yet written."""
        return len(self._batch) + (self._sink.waiting_bytes if self._sink is not None else 0)

    def write(self, record: Record) -> None:
        """Encode one line. Must be called in a running event loop, which the flush timer needs."""
        if not self.enabled:
            return
        batch = self._batch
        if len(batch) >= self._batch_bytes:
            if not self._hand_over():
                self._dropped += 1
                return
            batch = self._batch
        if len(record.path) > TEXT_CHARS_MAX:
            record.path = record.path[:TEXT_CHARS_MAX]
        model = record.model
        if model is not None and len(model) > TEXT_CHARS_MAX:
            record.model = model[:TEXT_CHARS_MAX]
        start = len(batch)
        try:
            self._encode_into(record, batch, -1)
        except Exception:
            del batch[start:]
            self._write_repaired(record, batch)
        else:
            batch += b"\n"
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def reopen(self) -> None:
        """Continue in a new file of the same name (after rotation); earlier lines go to the old
        one.

        If the name cannot be opened, the old file stays in use and the error is logged.
        """
        if self._sink is not None:
            self._hand_over()
            self._sink.reopen()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write the waiting lines, for at most `timeout_s` (seconds); 0 leaves them to the
        thread.
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
        """Give the batch to the thread; False if its queue is full."""
        batch = self._batch
        if not batch:
            return True
        assert self._sink is not None
        if not self._sink.put(batch):
            if self._sink.waiting_bytes:
                return False
            self._drop_batch()  # a line that is larger than the whole queue would wait for ever
            return True
        self._batch = bytearray()
        return True

    def _drop_batch(self) -> None:
        self._dropped += self._batch.count(b"\n")
        self._batch = bytearray()

    def _write_repaired(self, record: Record, batch: bytearray) -> None:
        """The slow path for a record that does not encode: lone surrogates become `?`."""
        start = len(batch)
        try:
            self._encode_into(repaired(record), batch, -1)
        except Exception:
            del batch[start:]
            self._dropped += 1
        else:
            batch += b"\n"


def _report(err: OSError) -> None:
    log_event(logging.ERROR, "access log lines lost", error=str(err))
