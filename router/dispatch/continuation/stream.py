"""One event stream on its way to a client, continued over several replicas if necessary.

`Continuation` is used in place of the stream's `UsageTap`, and keeps the relayed events. For each
token, the event is only appended to a list. Events are parsed some thousands of bytes at a time;
then only their text is kept.

1. Only whole events are relayed (`UsageTap` with `whole`). So the client's part of a broken stream
   ends between two events. An event that was incomplete at the break is sent by the next replica.
2. An event that reports a failure of the engine is withheld with all following events, until it is
   known whether another replica continues. If no replica continues, the withheld events are sent
   (`take_withheld`).

The caller calls `feed` for every read. When the stream breaks, `rest` returns the body for each
replica that is asked for the rest. When such a replica shows content, the caller calls `resume`,
then `feed` again. At the end of the request, the caller calls `close`.

Must never: keep more bytes than the `Store` allows, or be created if continuations are off.
"""

from __future__ import annotations

from typing import Final

from router.dispatch.continuation.outcome import Outcome
from router.dispatch.continuation.request import continued
from router.dispatch.continuation.seam import Seam
from router.dispatch.continuation.store import Store
from router.dispatch.continuation.transcript import Transcript
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


class Continuation:
    """A stream that may be continued. The client gets the bytes that `feed` and `flush` return."""

    __slots__ = (
        "_kind",
        "_obstacle",
        "_seam",
        "_store",
        "_taken",
        "_tap",
        "_transcript",
        "_unread",
        "_unread_bytes",
        "_withheld",
        "is_broken",
    )

    def __init__(self, kind: str, store: Store, tap: UsageTap) -> None:
        """`kind`: the route's kind, one of `request.KINDS`. `tap`: must relay whole events only."""
        self._kind = kind
        self._store = store
        self._tap = tap
        self._transcript = Transcript()
        self._seam: Seam | None = None
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._taken = 0
        self._obstacle: Outcome | None = None
        self._withheld = b""
        # The engine has reported a failure, which the client has not received.
        self.is_broken = False
        if store.take(_UNREAD):
            self._taken = _UNREAD
        else:
            self._obstacle = Outcome.SIZE

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to relay, given the bytes of one read. This runs for every token."""
        data = self._tap.feed(data)
        if self._seam is not None:
            data = self._seam.mend(data)
        if self._tap.errors.has_seen:
            data = self._without_failure(data)
        if self._obstacle is None:
            self._unread.append(data)
            self._unread_bytes += len(data)
            if self._unread_bytes > _UNREAD:
                self._read()
        return data

    def flush(self) -> bytes:
        """Return the held bytes at the normal end of the stream: an incomplete last event."""
        rest = self._tap.flush()
        if self._seam is not None:
            rest = self._seam.mend(rest)
        if not self.is_broken:
            return rest
        self._withheld += rest
        return b""

    def take_withheld(self) -> bytes:
        """Return the withheld bytes for the client, because no replica continues the stream."""
        self.is_broken = False
        said, self._withheld = self._withheld, b""
        return said

    @property
    def tokens(self) -> int:
        """The number of tokens of the text so far."""
        return self._transcript.tokens

    def rest(self, body: list[bytes]) -> list[bytes] | Outcome:
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
        asked = continued(self._kind, b"".join(body), text, transcript.tokens)
        return asked if isinstance(asked, Outcome) else [asked]

    def resume(self, tap: UsageTap) -> None:
        """Begin another replica's stream at the position where the first stream broke."""
        transcript = self._transcript
        assert transcript.names is not None, "the stream could not be continued"
        self._seam = Seam(transcript.names, transcript.tokens, transcript.prompt_tokens)
        transcript.resume()
        self._tap = tap
        self.take_withheld()  # The withheld error is discarded.

    def usage(self, is_whole: bool) -> Usage:
        """Return the token counts of all parts of the stream whose counts are known."""
        usage = self._tap.result(is_whole)
        return usage if self._seam is None else self._seam.added_up(usage)

    def close(self) -> None:
        """Release everything that is kept, because the request has ended."""
        self._unread.clear()
        self._store.give(self._taken)
        self._taken = 0

    def _without_failure(self, data: bytes) -> bytes:
        """Return the bytes before an error of the engine. The rest is withheld."""
        if self.is_broken:
            self._withheld += data
            return b"" if len(self._withheld) <= _WITHHELD else self.take_withheld()
        at = find_error(data) if self._tap.errors.blames_server else -1
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
