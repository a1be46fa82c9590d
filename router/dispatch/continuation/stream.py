"""One stream of events on its way to a client, over as many replicas as it takes.

It stands where a stream's `UsageTap` does and keeps what was relayed: appended on the path of a
token, read some thousands of bytes at a time, and only its text is kept for longer.

1. Only whole events are relayed (`UsageTap` with `whole`): what a broken stream leaves with its
   client ends between two events, and what it had begun to say is the next replica's to say.
2. An event in which an engine tells of its own failure is withheld with all that follows it, until
   it is known whether somebody goes on. If nobody does, it is told (`let_go`).

Life: `feed` for every read; the stream breaks: `rest` says what to ask, once per replica that is
asked; that replica shows content: `resume`, then `feed` again; `close` at the end.

Must never: hold more than the store allows, or be made where continuations are off.
"""

from __future__ import annotations

from typing import Final

from router.dispatch.continuation.outcome import Outcome
from router.dispatch.continuation.request import continued
from router.dispatch.continuation.seam import Seam
from router.dispatch.continuation.store import Store
from router.dispatch.continuation.transcript import Transcript
from router.dispatch.usage import Usage, UsageTap
from router.wire.sse import find_error

_UNREAD: Final = 8 * 1024  # bytes of events that are kept as they came: some forty tokens
_WITHHELD: Final = 16 * 1024  # bytes from an error on; an engine that says more is not at its end
# Thoughts inside of the text: chat templates cut them out of what the assistant has said.
_THOUGHTS: Final = ("<think>", "</think>")


class Continuation:
    """A stream that may be continued. Its client gets what `feed` and `flush` return."""

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
        """`kind` of route, one of `request.KINDS`; the tap relays whole events only."""
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
        self.is_broken = False  # the engine has told that it failed; its client was not
        if store.take(_UNREAD):
            self._taken = _UNREAD
        else:
            self._obstacle = Outcome.SIZE

    def feed(self, data: bytes) -> bytes:
        """This is the path of a token: what goes to the client of what has come."""
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
        """The stream has ended as it should: what is left of it, an event without its end."""
        rest = self._tap.flush()
        if self._seam is not None:
            rest = self._seam.mend(rest)
        if not self.is_broken:
            return rest
        self._withheld += rest
        return b""

    def let_go(self) -> bytes:
        """Nobody goes on: what was withheld, for the client after all."""
        self.is_broken = False
        said, self._withheld = self._withheld, b""
        return said

    @property
    def tokens(self) -> int:
        """That made the text so far."""
        return self._transcript.tokens

    def rest(self, body: list[bytes]) -> list[bytes] | Outcome:
        """The stream has broken: the body that asks for the rest, or why there is none.

        `body`: the client's own.
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
            return Outcome.STREAM  # it was too long to be held
        asked = continued(self._kind, b"".join(body), text, transcript.tokens)
        return asked if isinstance(asked, Outcome) else [asked]

    def resume(self, tap: UsageTap) -> None:
        """Another replica's stream begins where `rest` said that this one ended."""
        transcript = self._transcript
        assert transcript.names is not None, "the stream could not be continued"
        self._seam = Seam(transcript.names, transcript.tokens, transcript.prompt_tokens)
        transcript.resume()
        self._tap = tap
        self.let_go()  # to nobody

    def usage(self, is_whole: bool) -> Usage:
        """What is known of the tokens of all its parts."""
        usage = self._tap.result(is_whole)
        return usage if self._seam is None else self._seam.added_up(usage)

    def close(self) -> None:
        """The request is over: nothing is kept any more."""
        self._unread.clear()
        self._store.give(self._taken)
        self._taken = 0

    def _without_failure(self, data: bytes) -> bytes:
        """What has come up to the engine's word that it failed, which is withheld."""
        if self.is_broken:
            self._withheld += data
            return b"" if len(self._withheld) <= _WITHHELD else self.let_go()
        at = find_error(data) if self._tap.errors.blames_server else -1
        if at < 0:
            return data
        self.is_broken = True
        self._withheld = data[at:]
        return data[:at]

    def _read(self) -> None:
        """Of what was relayed only the text is kept."""
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
