"""The I/O of a warm-up copy: reads its response until the first token, and relays nothing.

The copy is cancelled at its first token (`driver/warm_copy.py`). Bytes of the response are dropped
as they are read.

Must never: write to the client, or end the request of the copy.
"""

from __future__ import annotations

from time import monotonic

from router.core.errors import Reason
from router.dispatch.attempts.attempt_io import BUSY, EVENT_BYTES, AttemptIO, error_of, is_encoded
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import COMPLETE
from router.wire.http1.sse import EventKind, FirstContent
from router.wire.replica import ReplicaConnection


class WarmCopyIO(AttemptIO):
    """The connection of one warm-up copy."""

    __slots__ = ()

    def on_connected(self, conn: ReplicaConnection) -> None:
        self._waiting = False
        try:
            self._request.send(self, conn)
        except Exception as err:
            self._crashed(err)

    def on_data(self, conn: ReplicaConnection) -> None:
        try:
            self._read(conn)
        except Exception as err:
            self._crashed(err)

    def _crashed(self, err: Exception) -> None:
        """End the copy after an unexpected exception; its request goes on."""
        self._request.context.log_defect(err)
        self._give_up(Reason.INTERNAL)

    def _failed(self, reason: Reason, *, reused: bool, received: bool) -> None:
        try:
            self._driver.failed(self.attempt, reason, reused=reused, received=received)
        except Exception as err:
            self._request.context.log_defect(err)

    def _read(self, conn: ReplicaConnection) -> None:
        reader = conn.reader
        reader.interim = None
        head = reader.head
        if head is None or (not self._seen_head and not self._is_stream(head)):
            return
        parts, scanner = reader.parts, self._scanner
        assert scanner is not None
        verdict = scanner.feed(b"".join(parts)) if parts else EventKind.NOTHING
        parts.clear()
        if verdict == EventKind.CONTENT:
            self._driver.copy_shown(self.attempt, monotonic())
        elif verdict == EventKind.BUSY:
            self._driver.refused(self.attempt, None)
            self._give_up(Reason.REPLICA_BUSY)
        elif verdict == EventKind.ERROR:
            self._give_up(Reason.STREAM_ERROR)
        elif reader.state == COMPLETE:
            self.finish()
            self._failed(Reason.EMPTY_STREAM, reused=conn.reused, received=True)

    def _is_stream(self, head: ResponseHead) -> bool:
        """Whether the response is a stream of events that can be read; else the copy ends."""
        self._seen_head = True
        self._driver.state.headed(self.attempt)
        if head.status in BUSY:
            self._driver.refused(self.attempt, head.retry_after)
        if head.status != 200:
            self._give_up(error_of(head.status))
            return False
        if not head.is_sse or is_encoded(head.lines):
            # Nothing shows when the prompt is computed, which is not a failure of the replica.
            self._give_up(Reason.HEDGE_LOST)
            return False
        self._scanner = FirstContent(EVENT_BYTES)
        return True
