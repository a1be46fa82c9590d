"""One event stream on its way to a client, continued over several replicas if necessary.

`Continuation` is used in place of the stream's `UsageTap`, and keeps the relayed events. For each
token, the event is only appended to a list. Events are parsed some thousands of bytes at a time;
then only their text is kept.

1. Only whole events are relayed (`UsageTap.relay_whole_events`). So the client's part of a broken
   stream ends between two events. An event that was incomplete at the break is sent by the next
   replica.
2. An event that reports a failure of the engine is withheld with all following events, until it is
   known whether another replica continues. If no replica continues, the withheld events are sent
   (`take_withheld`).

The caller calls `feed` for every read. When the stream breaks, `rest` returns the replicas that may
be asked for the rest, and the body. When such a replica shows content, the caller calls `resumes`,
then `feed` again. At the end of the request, the caller calls `close`.

Must never: keep more bytes than the `Store` allows, choose a replica, or send anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router.addons.continuation.request import continued
from router.addons.continuation.store import Outcome, Store
from router.addons.continuation.transcript import Seam, Transcript
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt, AttemptState
from router.dispatch.resumption import Others, Rest, ResumableStream
from router.dispatch.usage.token_counts import Usage
from router.dispatch.usage.usage_tap import UsageTap
from router.wire.http1.sse import find_error

_UNREAD: Final = 8 * 1024  # Maximum bytes of relayed, unparsed events; about 40 tokens.
# Maximum bytes withheld after an error. If more bytes follow, the engine has not stopped, and all
# withheld bytes are relayed.
_WITHHELD: Final = 16 * 1024
# Marks of reasoning inside the text. Chat templates remove reasoning from assistant messages, so a
# text with these marks is not continued.
_THOUGHTS: Final = ("<think>", "</think>")
# A stream that broke for one of these reasons, or a continuation that failed for one of them, may
# be continued by another replica.
_BREAKS: Final = frozenset(
    {
        Reason.REPLICA_RESET,
        Reason.BAD_RESPONSE,
        Reason.TOKEN_GAP_TIMEOUT,
        Reason.STREAM_ERROR,
        Reason.EMPTY_STREAM,
        Reason.SERVER_ERROR,
        Reason.REPLICA_BUSY,
        Reason.CONNECT_FAILED,
        Reason.CONNECT_TIMEOUT,
    }
)


class Continuation(ResumableStream):
    """A stream that may be continued. The client gets the bytes that `feed` and `flush` return."""

    __slots__ = (
        "_kind",
        "_most",
        "_obstacle",
        "_seam",
        "_store",
        "_taken",
        "_tap",
        "_transcript",
        "_unread",
        "_unread_bytes",
        "_withheld",
    )

    def __init__(self, kind: str, store: Store, tap: UsageTap) -> None:
        """`kind`: the route's kind, one of `request.KINDS`. `tap`: reads the stream."""
        super().__init__()
        tap.relay_whole_events()
        self._kind = kind
        self._most = store.attempts
        self._store = store
        self._tap = tap
        self._transcript = Transcript()
        self._seam: Seam | None = None
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._taken = 0
        self._obstacle: Outcome | None = None
        self._withheld = b""
        if store.take(_UNREAD):
            self._taken = _UNREAD
        else:
            self._obstacle = Outcome.SIZE

    def feed(self, data: bytes) -> bytes:
        data = self._tap.feed(data)
        if self._seam is not None:
            data = self._seam.mend(data)
        if self._tap.has_seen_error:
            data = self._without_failure(data)
        if self._obstacle is None:
            self._unread.append(data)
            self._unread_bytes += len(data)
            if self._unread_bytes > _UNREAD:
                self._read()
        return data

    def flush(self) -> bytes:
        rest = self._tap.flush()
        if self._seam is not None:
            rest = self._seam.mend(rest)
        if not self.is_broken:
            return rest
        self.has_ended = True
        self._withheld += rest
        return b""

    def take_withheld(self) -> bytes:
        self.is_broken = False
        said, self._withheld = self._withheld, b""
        return said

    def rest(
        self,
        state: AttemptState,
        attempt: Attempt,
        why: Reason,
        body: bytes,
        others: Others,
        take_budget: Callable[[], bool],
    ) -> Rest | None:
        rest = self._rest(state, why, body, others, take_budget)
        if not isinstance(rest, Outcome):
            return rest
        # If the failed attempt is not the winner, the attempt was a continuation that failed.
        has_begun = attempt is state.winner
        if why is not Reason.PREEMPTED and (why in _BREAKS or not has_begun):
            self._store.count(rest if has_begun else Outcome.FAILED)
        return None

    def _rest(
        self,
        state: AttemptState,
        why: Reason,
        body: bytes,
        others: Others,
        take_budget: Callable[[], bool],
    ) -> Rest | Outcome:
        # A move to another replica is not a failure, so it needs no retry budget.
        is_moved = why is Reason.PREEMPTED
        if not is_moved and why not in _BREAKS:
            return Outcome.FAILED
        # The request itself may crash replicas, so it must not reach more than two.
        if state.resumptions >= self._most or (state.lost > 1 and not is_moved):
            return Outcome.BUDGET
        asked = self.asked(body)
        if isinstance(asked, Outcome):
            return asked
        found = [replica for replica in others() or () if replica.descriptor.continues]
        if not found:
            return Outcome.NO_REPLICA
        if not is_moved and not take_budget():
            return Outcome.BUDGET
        return found, asked

    def asked(self, body: bytes) -> list[bytes] | Outcome:
        """Return the body of the request for the rest of the stream, or the reason why there is no
        continuation.

        `body`: the body of the client's request.
        """
        if self._obstacle is None:
            self._read()
        if self._obstacle is not None:
            return self._obstacle
        transcript = self._transcript
        text = transcript.text.decode()
        if not text or any(mark in text for mark in _THOUGHTS):
            return Outcome.STREAM
        if self._tap.has_cut_event:
            # An unfinished event was too long to be held and was partly relayed, so the stream is
            # not continued.
            return Outcome.STREAM
        asked = continued(self._kind, body, text, transcript.tokens)
        return asked if isinstance(asked, Outcome) else [asked]

    def resumes(self, tap: UsageTap) -> int:
        tap.relay_whole_events()
        self._store.count(Outcome.CONTINUED)
        transcript = self._transcript
        assert transcript.names is not None, "the stream could not be continued"
        self._seam = Seam(transcript.names, transcript.tokens, transcript.prompt_tokens)
        transcript.resume()
        self._tap = tap
        self.take_withheld()  # The withheld error is discarded.
        self.has_ended = False
        return transcript.tokens

    def usage(self, is_whole: bool) -> Usage:
        usage = self._tap.result(is_whole)
        return usage if self._seam is None else self._seam.added_up(usage)

    def close(self) -> None:
        self._unread.clear()
        self._store.give(self._taken)
        self._taken = 0

    def _without_failure(self, data: bytes) -> bytes:
        """Return the bytes before an error of the engine. The rest is withheld."""
        if self.is_broken:
            self._withheld += data
            return b"" if len(self._withheld) <= _WITHHELD else self.take_withheld()
        at = find_error(data) if self._tap.blames_server else -1
        if at < 0:
            return data
        self.is_broken = True
        self._withheld = data[at:]
        return data[:at]

    def _read(self) -> None:
        """Read the relayed events and keep only their text."""
        transcript, store = self._transcript, self._store
        had = len(transcript.text)
        transcript.add(b"".join(self._unread))
        self._unread.clear()
        self._unread_bytes = 0
        more = len(transcript.text) - had
        if transcript.obstacle is not None:
            self._give_up(transcript.obstacle)
        elif len(transcript.text) <= store.each and store.take(more):
            self._taken += more
        else:
            self._give_up(Outcome.SIZE)

    def _give_up(self, obstacle: Outcome) -> None:
        self._obstacle = obstacle
        self._transcript.text.clear()
        self.close()
