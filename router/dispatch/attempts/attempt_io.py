"""The I/O of one attempt: sends the request, and holds the response until it has content.

A 200 from an engine does not prove success. So an attempt of an inference request holds the
response back at first:

- An event stream is held until its first content event.
- JSON is held until the response is complete, up to `limits.response_hold` bytes.
- Any other response (audio, lines of JSON) is held until its first bytes.

A failure before the first content can still be hidden from the client. When content comes, the
attempt notifies its request, and the bytes of each later read are relayed to the client at once.

An attempt owns at most one connection, or one place in the queue for a connection to its replica.
It releases the connection or the place exactly once.

Must never: choose a replica, write to the client, or decide whether another attempt follows.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

import msgspec

from router.core.clock import monotonic
from router.core.errors import Reason
from router.core.unreadable import NOT_JSON
from router.dispatch.attempts.engine_priority import refuses
from router.dispatch.attempts.sending import head_and_body
from router.dispatch.client_request import ClientRequest
from router.dispatch.driver.attempt_state import Attempt, Commit, EnginePort
from router.dispatch.driver.placing import falls_back_from
from router.dispatch.driver.request import Request
from router.dispatch.driver.request_driver import RequestDriver
from router.dispatch.driver.retries import (
    ask_without_priority,
    doubts,
    failed,
    keep_error,
    refuses_credential,
    replace,
    went_without_priority,
)
from router.dispatch.driver.retry import PASSING
from router.dispatch.reply import Reply
from router.dispatch.response_head import shown_head
from router.fleet.engines.common.descriptor import Abort
from router.fleet.error_answers import KEY_STATUS
from router.fleet.secret import HiddenSecret
from router.wire.http1.headers import without
from router.wire.http1.heads import ResponseHead
from router.wire.http1.response_reader import COMPLETE, NO_BUFFERING, ResponseReader
from router.wire.http1.sse import EventKind, FirstContent
from router.wire.replica import Owner, ReplicaConnection

BUSY: Final = frozenset({429, 503})
# The reason of an error that is not counted as a failure unless another replica contradicts it.
_REFUSED: Final = Reason.REPLICA_REFUSED
_ERROR_AT: Final = 32  # A body that is only an error names it within this many bytes.
# The bytes with which an event stream may begin, after blanks. No JSON value begins with them.
_BLANKS: Final = b"\r\n "
_EVENT_STARTS: Final = b":deir"
_QUOTE: Final = 0x22
_E: Final = 0x65
# An unfinished event of this many bytes counts as content. Otherwise each further read would scan
# all bytes of the event again.
EVENT_BYTES: Final = 32 * 1024


class AttemptOwner(Request):
    """A request whose attempts are sent over connections (`Exchange`).

    The methods are what an `AttemptIO` reports.
    """

    __slots__ = ()

    @abstractmethod
    def release_body(self) -> None:
        """Stop keeping the request's body, because no other attempt may follow."""

    @abstractmethod
    def body_sent(self) -> None:
        """Called when a replica has read most of the request's body."""

    @abstractmethod
    def interim(self, heads: list[ResponseHead]) -> None:
        """Handle 1xx responses."""

    @abstractmethod
    def content(self, attempt: Attempt, reader: ResponseReader, now: float) -> Reply | None:
        """Relay an attempt that shows its first content, unless another attempt was first.

        Returns the `Reply` that relays the attempt's bytes to the client; `None` if the bytes are
        discarded.
        """

    @abstractmethod
    def completed(self, attempt: Attempt, reader: ResponseReader, now: float) -> None:
        """End the request: the attempt's response is complete and was relayed."""


class AttemptIO(Owner, EnginePort):
    """The connection of one attempt, and the part of the response that was not relayed yet."""

    __slots__ = (
        "_asked",
        "_driver",
        "_examined",
        "_held",
        "_hidden",
        "_holds",
        "_looked",
        "_may_be_events",
        "_passes",
        "_quiet",
        "_reply",
        "_request",
        "_scanner",
        "_secret",
        "_seen_head",
        "_waiting",
        "abort_rule",
        "asks_for_usage",
        "attempt",
        "conn",
        "is_encoded",
        "kept_response",
        "refusal",
        "rid",
    )

    def __init__(
        self, request: AttemptOwner, driver: RequestDriver, asked: ClientRequest, attempt: Attempt
    ) -> None:
        self._request = request
        self._asked = asked
        self._driver = driver
        self.attempt = attempt
        # The name by which the engine can abort the attempt; b"": the attempt has no name.
        self.rid = b""
        self.abort_rule: Abort | None = None  # The engine's abort rule, if the attempt has a name.
        # Whether the router asked for token counts, and the client did not.
        self.asks_for_usage = False
        # The HTTP status with which the engine may refuse the `priority` field; 0: no such status.
        self.refusal = 0
        self.conn: ReplicaConnection | None = None
        self._waiting = False
        self._seen_head = False
        self._holds = False
        self._passes = False  # Whether the response is held only until the first bytes of its body.
        # Whether the body may be an event stream although the head says otherwise.
        self._may_be_events = False
        # The reply that relays the response to the client; `None`: nothing is relayed yet.
        self._reply: Reply | None = None
        # The attempt's error response, which may be sent to the client later (`_keep_error`).
        self.kept_response: ResponseReader | None = None
        # Whether the response is a compressed stream, whose events cannot be read.
        self.is_encoded = False
        self._scanner: FirstContent | None = None
        self._quiet = 0  # `quiet_events` after `_scanner` was dropped.
        # The credential that the replica gets; `None`: none is hidden in the response.
        access, secret = attempt.at.access, request.rules.secret
        self._secret = secret if access is None else access.secret_in(secret)
        self._hidden = None if self._secret is None else HiddenSecret(self._secret)
        self._examined = 0  # Number of parts in which the credential is hidden.
        self._looked = 0  # Number of parts of the response body that were examined.
        self._held = 0  # Total bytes of the parts of the response body that were examined.

    def open(self, fresh: bool) -> None:
        conn = self.attempt.at.pool.acquire(self, fresh=fresh)
        if conn is None:
            self._waiting = True
        else:
            self._send(conn)

    def _send(self, conn: ReplicaConnection) -> None:
        """Send the request over the connection that the attempt just got."""
        request, attempt, driver = self._request, self.attempt, self._driver
        barred = driver.barred(attempt)
        if barred is not None:
            conn.cancel()
            failed(driver, attempt, barred)
            return
        self.conn = conn
        driver.connected(attempt)
        head, body, self.rid, self.asks_for_usage, self.refusal = head_and_body(
            attempt, driver, self._asked
        )
        self.abort_rule = attempt.at.descriptor.abort if self.rid else None
        conn.send(self, head, body, for_head=self._asked.head.method == b"HEAD")
        if request.is_sent_once():
            self._request.release_body()

    def discard(self) -> None:
        """Close the connection of an attempt that its engine has refused."""
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.cancel()

    def drop(self) -> None:
        """Give up the connection, or the place in the queue for one. No more callbacks follow."""
        if self._waiting:
            self._waiting = False
            self.attempt.at.pool.cancel(self)
        conn, self.conn = self.conn, None
        if conn is None:
            return
        attempt, asked = self.attempt, self._asked
        rule, aborter = self.abort_rule, asked.aborter
        if rule is not None and aborter is not None and conn.reader.state != COMPLETE:
            # The engine does not stop when its connection closes.
            authorization = asked.head.authorization if asked.forwards_key else None
            aborter.abort(attempt.at, rule, self.rid, conn, authorization)
        else:
            conn.cancel()

    def free_connection(self) -> None:
        """Release the connection for reuse: the response is complete and was relayed."""
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.release()

    # -- callbacks of the pool and the connection ---------------------------------------------

    # An exception in one of the following callbacks ends this request, and affects no other
    # request.

    def on_connected(self, conn: ReplicaConnection) -> None:
        self._waiting = False
        try:
            self._send(conn)
        except Exception as err:
            self._request.crashed(err)

    def on_connect_failed(self, reason: Reason, detail: str) -> None:
        self._waiting = False
        self._failed(reason)

    def on_lost(self, conn: ReplicaConnection, reason: Reason, detail: str) -> None:
        self.conn = None
        self._failed(reason, unread=conn.reused and not conn.received)

    def on_sent(self) -> None:
        self._request.body_sent()

    def on_data(self, conn: ReplicaConnection) -> None:
        try:
            reply, reader = self._reply, conn.reader
            if self._hidden is not None:
                self._hide(self._hidden, reader)
            if reply is None:
                self._examine(conn)
            elif reply.relay(reader):
                self._request.completed(self.attempt, reader, monotonic())
        except Exception as err:
            self._request.crashed(err)

    def _failed(self, reason: Reason, *, unread: bool = False) -> None:
        try:
            failed(self._driver, self.attempt, reason, unread=unread)
        except Exception as err:
            self._request.crashed(err)

    def _examine(self, conn: ReplicaConnection) -> None:
        """Examine the response until it has content; then begin to relay it."""
        reader = conn.reader
        interim = reader.interim
        if interim is not None:
            reader.interim = None
            at, secret = self.attempt.at, self._secret
            self._request.interim([shown_head(head, at, secret) for head in interim])
        if reader.head is None:
            return
        if not self._seen_head and not self._examine_head(reader):
            return
        if self._holds and not self._examine_body(conn):
            return
        now = monotonic()
        self._reply = reply = self._request.content(self.attempt, reader, now)
        if reply is None:
            return
        self._quiet = self.quiet_events
        self._scanner = None
        if reply.relay(reader):
            self._request.completed(self.attempt, reader, now)

    def _hide(self, hidden: HiddenSecret, reader: ResponseReader) -> None:
        """Hide the replica's credential in the parts of the body that were just received."""
        parts = reader.parts
        start = self._examined if self._reply is None else 0  # A reply takes all parts.
        data = hidden.feed(b"".join(parts[start:]))
        if reader.state == COMPLETE:
            data += hidden.flush()
        del parts[start:]
        if data:
            parts.append(data)
        self._examined = len(parts)

    @property
    def quiet_events(self) -> int:
        """The number of events in the stream that came before any content."""
        return self._quiet if self._scanner is None else self._scanner.quiet

    # -- deciding about the response ----------------------------------------------------------

    def _examine_head(self, reader: ResponseReader) -> bool:
        """Examine the final response head. Returns False if another attempt takes over."""
        self._seen_head = True
        attempt, driver, head = self.attempt, self._driver, reader.head
        assert head is not None
        at = attempt.at
        if head.status > 200 or self._secret is not None or at.access is not None:
            head = reader.head = shown_head(head, at, self._secret)
        driver.state.headed(attempt)
        self.is_encoded = head.is_sse and is_encoded(head.lines)
        if attempt.rest is not None and (head.status != 200 or not head.is_sse or self.is_encoded):
            # An error answer is not the rest of a stream.
            reason = error_of(head.status)
            return self._give_up(Reason.BAD_RESPONSE if reason is Reason.OK else reason)
        if head.status >= 400:
            return self._examine_error(head)
        if head.status == 200 and driver.priority_rejected_by is at:
            went_without_priority(driver, at)
        if self._request.route.inference:
            self._hold(head)
        return True

    def _examine_error(self, head: ResponseHead) -> bool:
        """Examine the head of an error answer. Returns False if another attempt takes over."""
        attempt, driver, request, status = self.attempt, self._driver, self._request, head.status
        state, access = driver.state, attempt.at.access
        if status in KEY_STATUS and (
            request.rules.has_token or (access is not None and access.has_credential)
        ):
            # The answer is about the router's credential, so the client must not get it.
            refuses_credential(driver, attempt, status)
            return self._give_up(Reason.CREDENTIAL_REFUSED)
        is_doubted = request.route.inference and doubts(driver, attempt, status)
        if status == self.refusal:
            # The body of the error answer shows whether the engine rejects the `priority` field.
            self._holds = True
            return True
        if status in BUSY:
            self._was_busy(head.retry_after)
            if not state.is_contested(attempt) and replace(driver, attempt, Reason.REPLICA_BUSY):
                return False
        if not request.route.inference:
            return True
        if status >= 500 and not is_doubted and falls_back_from(driver, attempt, error_of(status)):
            return False
        self._holds = (
            is_doubted
            or (status == 404 and self._lists_model())  # The text may say that it is refused.
            or state.holds_errors()  # Another attempt may succeed, or an earlier error goes first.
            # The client's stream has begun, so the error must be sent as an event of that stream.
            or state.commit == Commit.STATUS
        )
        return True

    def _hold(self, head: ResponseHead) -> None:
        """Decide how much of an answer that is not an error is held before it is relayed."""
        state = self._driver.state
        has_begun = state.commit == Commit.STATUS  # The client's stream has begun.
        if head.status != 200:
            self._holds = has_begun or state.holds_errors()
            return
        self._holds = True
        if head.is_sse and not self.is_encoded:
            self._scanner = FirstContent(min(self._request.rules.response_hold, EVENT_BYTES))
            return
        if not head.is_sse:
            request = self._request
            self._may_be_events = request.view.stream and request.route.streams_events
        self._passes = not has_begun and not head.is_json

    def _examine_body(self, conn: ReplicaConnection) -> bool:
        """Whether enough of the response has come to begin relaying it to the client."""
        reader = conn.reader
        parts = reader.parts
        whole = reader.state == COMPLETE
        if self._may_be_events and parts:
            self._recognise_events(reader)
        scanner = self._scanner
        if scanner is None:
            if not (whole or (self._passes and parts) or self._holds_too_much(parts)):
                return False
            return self._examine_whole_body(reader, whole)
        verdict = EventKind.NOTHING
        new = len(parts) - self._looked
        if new:  # Examine all new parts of one read together.
            verdict = scanner.feed(parts[-1] if new == 1 else b"".join(parts[self._looked :]))
        too_much = self._holds_too_much(parts)
        if verdict == EventKind.BUSY or verdict == EventKind.ERROR:
            busy = verdict == EventKind.BUSY
            if busy:
                self._was_busy(None)
            return self._may_send_error(Reason.REPLICA_BUSY if busy else Reason.STREAM_ERROR)
        if verdict:
            return True
        if whole:
            self.conn = None
            conn.release()
            failed(self._driver, self.attempt, Reason.EMPTY_STREAM)
            return False
        return too_much

    def _recognise_events(self, reader: ResponseReader) -> None:
        """Correct the head if the body begins like an event stream that has another label.

        Such a stream would be held to its end, like a whole answer.
        """
        begin = b"".join(reader.parts).lstrip(_BLANKS)
        head = reader.head
        assert head is not None
        if not begin:
            return
        self._may_be_events = False
        if begin[:1] in _EVENT_STARTS and not is_encoded(head.lines):
            kept = without(head.lines, {b"content-type"})
            head = reader.head = head.copy()
            head.is_sse, head.is_json = True, False
            head.lines = [b"content-type: text/event-stream", NO_BUFFERING, *kept]
            head.joined = b"\r\n" + b"\r\n".join(head.lines)
            self._passes = False
            self._scanner = FirstContent(min(self._request.rules.response_hold, EVENT_BYTES))

    def _examine_whole_body(self, reader: ResponseReader, whole: bool) -> bool:
        """Like `_examine_body`, for a response that is not an event stream.

        Called when the response is complete (`whole`), or when no more of it is held. Returns False
        if the response is not relayed; the attempt has then ended.
        """
        head, state = reader.head, self._driver.state
        assert head is not None
        if head.status != 200:
            reason = error_of(head.status)
            if whole:
                if head.status == 404 and self._lists_model() and _names_model(reader.parts):
                    reason = Reason.MODEL_REFUSED
                    self._driver.context.fleet.read_list(self.attempt.at)
                if head.status == self.refusal:
                    if self._is_refused(reader):
                        return False
                    if head.status in BUSY:
                        self._was_busy(head.retry_after)
                return reason is Reason.OK or self._may_send_error(reason)
        elif whole and head.is_json and _is_only_error(reader.parts):
            if not doubts(self._driver, self.attempt, head.status):
                return not state.holds_errors() or self._may_send_error(_REFUSED)
            return self._may_send_error(_REFUSED)
        elif whole and state.is_contested(self.attempt) and not _is_sound(reader.parts):
            reason = Reason.BAD_RESPONSE
        else:
            return True
        if not state.holds_errors():
            return True
        return self._give_up(reason)

    def _lists_model(self) -> bool:
        """Whether the replica lists the model by the name that it was sent."""
        request, models = self._request, self.attempt.at.models
        target = request.target
        name = self._asked.model if target is None else target.model
        return models is not None and name in models and request.pinned is None

    def _was_busy(self, retry_after: bytes | None) -> None:
        """Report a busy answer to the fleet, so that the replica gets no requests for a while."""
        outcomes = self._driver.context.fleet.outcomes
        outcomes.busy(self.attempt.at, retry_after, monotonic())

    def _give_up(self, reason: Reason) -> bool:
        """Fail the attempt because its answer cannot be used. Always returns False."""
        self.drop()
        failed(self._driver, self.attempt, reason)
        return False

    def _is_refused(self, reader: ResponseReader) -> bool:
        """Whether the engine rejects the `priority` field and the request was sent again without
        it."""
        return refuses(b"".join(reader.parts)) and ask_without_priority(self._driver, self.attempt)

    def _may_send_error(self, reason: Reason) -> bool:
        """Whether an error of the replica may be sent to the client now.

        The error may not be sent if another attempt is running, if another replica is tried, or if
        the error of an earlier attempt has precedence. Then the error is kept (`_keep_error`).
        """
        driver = self._driver
        if self.attempt.rest is not None:
            return self._give_up(reason)
        if not driver.state.is_contested(self.attempt):
            if reason in PASSING and replace(driver, self.attempt, reason):
                return False
            if not (driver.state.holds_errors() or self.attempt.is_doubted):
                return True
        self._keep_error(reason)
        return False

    def _keep_error(self, reason: Reason) -> None:
        """End the attempt and keep its response, which may have to be sent to the client later."""
        conn, self.conn = self.conn, None
        assert conn is not None
        reader = conn.reader
        if reader.state == COMPLETE:
            conn.release()
        else:
            conn.cancel()
            head = reader.head
            assert head is not None
            reader.head = head.copy()  # The head is copied, because other responses share it.
            reader.head.content_length = None
            reader.state = COMPLETE  # No more of the body will be read.
        self.kept_response = reader
        keep_error(self._driver, self.attempt, reason)

    def _holds_too_much(self, parts: list[bytes]) -> bool:
        self._held += sum(map(len, parts[self._looked :]))
        self._looked = len(parts)
        return self._held > self._request.rules.response_hold


def io_of(attempt: Attempt) -> AttemptIO:
    """Return the `AttemptIO` of an attempt in the proxy."""
    io = attempt.io
    assert isinstance(io, AttemptIO)
    return io


def error_of(status: int) -> Reason:
    """Return the `Reason` that corresponds to an engine's response status."""
    if status < 400:
        return Reason.OK
    if status in BUSY:
        return Reason.REPLICA_BUSY
    return Reason.SERVER_ERROR if status >= 500 else Reason.REPLICA_REFUSED


def _names_model(parts: list[bytes]) -> bool:
    """Whether a 404 is about a model. An unknown path or response gets a 404, too."""
    return b"model" in b"".join(parts).lower()


def _is_sound(parts: list[bytes]) -> bool:
    """Whether a complete response is plausible: it has a body, and JSON ends with a brace."""
    body = b"".join(parts).strip()
    return bool(body) and (body[:1] != b"{" or body[-1:] == b"}")


def _is_only_error(parts: list[bytes]) -> bool:
    """Whether a complete JSON response with the status 200 contains an error and nothing else."""
    if not parts or not _begins_with_e(parts[0]):
        return False
    try:
        found = msgspec.json.decode(b"".join(parts))
    except NOT_JSON:
        return False
    return isinstance(found, dict) and len(found) == 1 and bool(found.get("error"))


def _begins_with_e(text: bytes) -> bool:
    """Whether the first name in a JSON object begins with an `e`, as `error` does.

    A loop is faster than the methods of bytes, which cost more than 1,000 instructions.
    """
    end = min(len(text), _ERROR_AT)
    at = 0
    while at < end and text[at] != _QUOTE:
        at += 1
    return at + 1 < end and text[at + 1] == _E


def is_encoded(lines: list[bytes]) -> bool:
    """Whether a stream is compressed. A compressed stream is relayed without being read."""
    return any(line[:17].lower() == b"content-encoding:" for line in lines)
