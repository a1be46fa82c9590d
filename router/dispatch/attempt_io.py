"""One attempt on the wire: gets a connection, sends, holds the response until it says something.

An engine's 200 is not an answer yet. For inference an attempt keeps what comes until the first
content event (streams of events), until the response is whole (JSON, up to `limits.response_hold`)
or until its first bytes (everything else: audio, lines of JSON), so that a failure before that can
still be hidden from the client. Then it tells its request, and from there on each read goes
straight to the client.

An attempt owns at most one connection or one place in a pool's queue, and gives it up exactly once.
Must never: choose a replica, write to the client, decide whether to try again.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from router.core.errors import Reason
from router.dispatch.attempts import Attempt, Commit
from router.dispatch.client_request import ClientRequest
from router.dispatch.engine_priority import refuses
from router.dispatch.reply import Reply
from router.dispatch.retry import PASSING
from router.dispatch.routed_request import RoutedRequest
from router.dispatch.rules import Rules
from router.fleet.engines.common.descriptor import Abort
from router.wire.heads import ResponseHead
from router.wire.pool import Waiter
from router.wire.replica import ReplicaConnection
from router.wire.response_reader import COMPLETE, ResponseReader
from router.wire.sse import FirstContent, Verdict

BUSY: Final = frozenset({429, 503})
# An event that is longer before its end counts as content: its bytes are looked at again and again.
_EVENT_BYTES: Final = 32 * 1024


class AttemptedRequest(RoutedRequest):
    """A request, as its attempts on the wire see it."""

    __slots__ = ("asked", "body", "rules")
    asked: ClientRequest
    body: list[bytes] | None  # as its client wrote it, kept while it may be sent again
    rules: Rules  # those that it began with

    @abstractmethod
    def send(self, io: AttemptIO, conn: ReplicaConnection) -> None:
        """An attempt has its connection."""

    @abstractmethod
    def body_sent(self) -> None:
        """A replica has read most of what it was sent."""

    @abstractmethod
    def abort(self, attempt: Attempt, rule: Abort, conn: ReplicaConnection) -> None:
        """An attempt is given up that its engine may not give up by itself."""

    @abstractmethod
    def interim(self, heads: list[ResponseHead]) -> None:
        """1xx came."""

    @abstractmethod
    def content(self, io: AttemptIO, reader: ResponseReader) -> Reply | None:
        """An attempt shows content: commit to it. Where its bytes go; None: nowhere."""

    @abstractmethod
    def completed(self, io: AttemptIO, reader: ResponseReader) -> None:
        """An attempt's response is whole, and all of it was relayed."""


class AttemptIO(Waiter):
    """One attempt's connection and what it has shown."""

    __slots__ = (
        "_driver",
        "_held",
        "_holds",
        "_looked",
        "_passes",
        "_reply",
        "_request",
        "_scanner",
        "_seen_head",
        "_waiting",
        "abort_rule",
        "asks_for_usage",
        "attempt",
        "conn",
        "is_encoded",
        "refusal",
        "said",
    )

    def __init__(self, request: AttemptedRequest, attempt: Attempt) -> None:
        self._request = request
        self._driver = request.driver
        self.attempt = attempt
        self.conn: ReplicaConnection | None = None
        self._waiting = False
        self._seen_head = False
        self._holds = False
        self._passes = False  # ... only until there is something of the body
        self._reply: Reply | None = None  # where the response goes, once it is committed to
        self.refusal = 0  # the status of an engine that does not know the priority it is told
        self.abort_rule: Abort | None = None  # its engine knows it by `attempt.rid`
        self.asks_for_usage = False  # and its client did not: the answer to that is ours
        self.said: ResponseReader | None = None  # the error that was put aside
        self.is_encoded = False  # a compressed stream: its bytes say nothing to us
        self._scanner: FirstContent | None = None
        self._looked = 0  # parts of the body that were looked at
        self._held = 0  # their bytes

    def start(self, fresh: bool) -> None:
        conn = self.attempt.at.pool.acquire(self, fresh=fresh)
        if conn is None:
            self._waiting = True
        else:
            self._request.send(self, conn)

    def discard(self) -> None:
        """Close the connection of an attempt that its engine has refused."""
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.cancel()

    def cancel(self) -> None:
        """Give up whatever is held; nothing is heard any more."""
        if self._waiting:
            self._waiting = False
            self.attempt.at.pool.cancel(self)
        conn, self.conn = self.conn, None
        if conn is None:
            return
        rule = self.abort_rule
        if rule is not None and conn.reader.state != COMPLETE:
            self._request.abort(self.attempt, rule, conn)
        else:
            conn.cancel()

    def finish(self) -> None:
        """The response is whole and relayed: the connection may serve another."""
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.release()

    # -- what the pool and the connection say -------------------------------------------------

    # A defect that shows in one of these calls ends the request, and nothing else.

    def on_connected(self, conn: ReplicaConnection) -> None:
        self._waiting = False
        try:
            self._request.send(self, conn)
        except Exception as err:
            self._request.crashed(err)

    def on_connect_failed(self, reason: Reason, detail: str) -> None:
        self._waiting = False
        self._failed(reason, reused=False, received=False)

    def on_lost(self, conn: ReplicaConnection, reason: Reason, detail: str) -> None:
        self.conn = None
        self._failed(reason, reused=conn.reused, received=conn.received)

    def on_sent(self) -> None:
        self._request.body_sent()

    def on_data(self, conn: ReplicaConnection) -> None:
        try:
            self._read(conn)
        except Exception as err:
            self._request.crashed(err)

    def _failed(self, reason: Reason, *, reused: bool, received: bool) -> None:
        try:
            self._driver.failed(self.attempt, reason, reused=reused, received=received)
        except Exception as err:
            self._request.crashed(err)

    def _read(self, conn: ReplicaConnection) -> None:
        reader = conn.reader
        reply = self._reply
        if reply is not None:
            if reply.relay(reader):
                self._request.completed(self, reader)
            return
        if reader.interim:
            self._request.interim(reader.interim)
            reader.interim.clear()
        if reader.head is None:
            return
        if not self._seen_head and not self._look_at_head(conn):
            return
        if self._holds and not self._may_commit(conn):
            return
        self._reply = reply = self._request.content(self, reader)
        if reply is not None and reply.relay(reader):
            self._request.completed(self, reader)

    @property
    def quiet_events(self) -> int:
        """Events of the stream that came before any content."""
        return 0 if self._scanner is None else self._scanner.quiet

    # -- the gate -----------------------------------------------------------------------------

    def _look_at_head(self, conn: ReplicaConnection) -> bool:
        """The final head is here. False: another attempt takes over."""
        self._seen_head = True
        request = self._request
        head = conn.reader.head
        assert head is not None
        self._driver.state.headed(self.attempt)
        self.is_encoded = head.is_sse and _is_encoded(head.lines)
        if self.attempt.rest is not None and (
            head.status != 200 or not head.is_sse or self.is_encoded
        ):
            reason = error_of(head.status)  # whatever it is, it does not go on in the stream
            return self._give_up(Reason.BAD_RESPONSE if reason is Reason.OK else reason)
        if head.status == 200 and self._driver.untold is self.attempt.at:
            self._driver.went_without_priority(self.attempt.at)
        if head.status == self.refusal:
            self._holds = True  # what it says decides whether it is asked again without
            return True
        if head.status in BUSY:
            self._driver.refused(self.attempt, head.retry_after)
            contested = self._driver.is_contested(self.attempt)
            if not contested and self._driver.replace(self.attempt, Reason.REPLICA_BUSY):
                return False
        if not request.route.inference:
            return True
        if head.status != 200 and self._driver.holds_errors():
            self._holds = True  # another copy may still do better, or has the first word
        elif self._driver.state.commit == Commit.STATUS and (
            head.status != 200 or not head.is_sse or self.is_encoded
        ):
            self._holds = True  # has to be told inside a stream that has begun
        elif head.status == 200:
            self._holds = True
            if head.is_sse and not self.is_encoded:
                self._scanner = FirstContent(min(request.rules.response_hold, _EVENT_BYTES))
            else:
                self._passes = not head.is_json
        return True

    def _may_commit(self, conn: ReplicaConnection) -> bool:
        """Whether what is held says enough to go to the client."""
        reader = conn.reader
        parts = reader.parts
        whole = reader.state == COMPLETE
        scanner = self._scanner
        if scanner is None:
            if not (whole or (self._passes and parts) or self._holds_too_much(parts)):
                return False
            return self._may_commit_whole(reader, whole)
        verdict = Verdict.NOTHING
        new = len(parts) - self._looked
        if new:  # one look a read, in however many chunks it came
            verdict = scanner.feed(parts[-1] if new == 1 else b"".join(parts[self._looked :]))
        too_much = self._holds_too_much(parts)
        if verdict == Verdict.BUSY or verdict == Verdict.ERROR:
            busy = verdict == Verdict.BUSY
            if busy:
                self._driver.refused(self.attempt, None)
            return self._may_tell(Reason.REPLICA_BUSY if busy else Reason.STREAM_ERROR)
        if verdict:
            return True
        if whole:
            self.conn = None
            conn.release()
            self._driver.failed(
                self.attempt, Reason.EMPTY_STREAM, reused=conn.reused, received=True
            )
            return False
        return too_much

    def _may_commit_whole(self, reader: ResponseReader, whole: bool) -> bool:
        """The same of what is no stream, and here as a whole or too large to be held."""
        head = reader.head
        assert head is not None
        if head.status != 200:
            reason = error_of(head.status)
            if whole:
                if head.status == self.refusal:
                    if self._is_refused(reader):
                        return False
                    if head.status in BUSY:
                        self._driver.refused(self.attempt, head.retry_after)
                return reason is Reason.OK or self._may_tell(reason)
        elif whole and self._driver.is_contested(self.attempt) and not _is_sound(reader.parts):
            reason = Reason.BAD_RESPONSE
        else:
            return True
        if not self._driver.holds_errors():
            return True
        return self._give_up(reason)

    def _give_up(self, reason: Reason) -> bool:
        """What the replica says is of no use: the attempt has failed. False, for its callers."""
        self.cancel()
        self._driver.failed(self.attempt, reason, reused=False, received=True)
        return False

    def _is_refused(self, reader: ResponseReader) -> bool:
        """Whether the engine knows no priority, and is asked again without."""
        return refuses(b"".join(reader.parts)) and self._driver.ask_without_priority(self.attempt)

    def _may_tell(self, reason: Reason) -> bool:
        """Whether an error that a replica answered is for the client: not while another copy
        lives, not where another replica may do it, and not where an earlier one has to be told."""
        driver = self._driver
        if self.attempt.rest is not None:
            return self._give_up(reason)
        if not driver.is_contested(self.attempt):
            if reason in PASSING and driver.replace(self.attempt, reason):
                return False
            if not driver.holds_errors():
                return True
        self._put_aside(reason)
        return False

    def _put_aside(self, reason: Reason) -> None:
        """Keep what the replica says: it may have to be told."""
        conn, self.conn = self.conn, None
        assert conn is not None
        reader = conn.reader
        if reader.state == COMPLETE:
            conn.release()
        else:
            conn.cancel()
            head = reader.head
            assert head is not None
            reader.head = head.copy()  # others share it
            reader.head.content_length = None
            reader.state = COMPLETE  # what came is all that there will be
        self.said = reader
        self._driver.put_aside(self.attempt, reason)

    def _holds_too_much(self, parts: list[bytes]) -> bool:
        self._held += sum(map(len, parts[self._looked :]))
        self._looked = len(parts)
        return self._held > self._request.rules.response_hold


def error_of(status: int) -> Reason:
    """How an engine's own status counts."""
    if status < 400:
        return Reason.OK
    if status in BUSY:
        return Reason.REPLICA_BUSY
    return Reason.SERVER_ERROR if status >= 500 else Reason.REPLICA_REFUSED


def _is_sound(parts: list[bytes]) -> bool:
    """Whether a whole answer can be one: it says something, and JSON does not end in the middle."""
    body = b"".join(parts).strip()
    return bool(body) and (body[:1] != b"{" or body[-1:] == b"}")


def _is_encoded(lines: list[bytes]) -> bool:
    """A compressed stream is opaque: it passes as it comes."""
    return any(line[:17].lower() == b"content-encoding:" for line in lines)
