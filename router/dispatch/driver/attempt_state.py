"""The attempts of one request as a state machine. Pure: no sockets, no clock of its own.

Rules:
1. An attempt sends the request to one replica. It holds one lease from `begin` until it ends. An
   attempt that has ended stays ended; its later events are ignored.
2. The first attempt that shows content wins (`content`). Only the winner's bytes may reach the
   client. While another attempt is running, an error answer does not count as content: the attempt
   fails, and its answer is kept (`keep_error`). If all attempts fail, the client gets the answer of
   the earliest attempt whose answer was kept.
3. What the client has received limits what may follow:
   - Nothing was received: a failed attempt may be followed by another one.
   - A status was received (a 200, and comments of the event stream): another attempt may follow,
     but an error must be an event in the stream.
   - Content was received: another replica resumes the stream, or the client must see the
     truncation.
4. When the winner has ended before its response was complete, another attempt may be asked for the
   rest of the response (`Attempt.rest`). Only such an attempt can replace a winner, when it shows
   its first content. If it fails, another one may follow, or the response is truncated.
5. The request ends once: by completion, by an answer of the router, or when the client leaves.

    attempt:  CONNECTING → SENT → HEADED → WON → ENDED      any phase may go to ENDED
    request:  NOTHING → STATUS → CONTENT                    a phase may be skipped

A hedge is an attempt that begins while another one waits for its first content. If both fail, the
client gets the failure of the earlier one; the failure of the later one decides about a retry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import Final

from mypy_extensions import trait

from router.core.errors import Reason
from router.core.lease import Lease
from router.core.speed_learner import SpeedSample
from router.dispatch.driver.retry import LOST, UNSENT, RetryChoice, judge
from router.fleet.replica import Replica

# An attempt that ended for one of these reasons does not count towards the maximum number of
# attempts of a request.
UNREACHED: Final = UNSENT | {
    Reason.PREEMPTED,
    Reason.REGION_NOT_ALLOWED,
    Reason.SUSPECT_REQUEST,
}

# The replica has no part in the end of an attempt for one of these reasons.
_NOT_FAILED: Final = frozenset({Reason.PREEMPTED, Reason.INTERNAL})


# The classes below are not enums, because access to an enum member costs a class lookup in compiled
# code.


class Phase:
    """The phase of an attempt."""

    CONNECTING: Final = 0
    SENT: Final = 1
    HEADED: Final = 2
    WON: Final = 3
    ENDED: Final = 4


class Commit:
    """What was sent to the client so far."""

    NOTHING: Final = 0
    STATUS: Final = 1
    CONTENT: Final = 2


class Kind:
    """Why an attempt was begun. Used in the access log and as a metric label."""

    PRIMARY: Final = "primary"
    RETRY: Final = "retry"
    HEDGE: Final = "hedge"
    REST: Final = "continuation"  # An attempt that is asked for the rest of a broken stream.
    FALLBACK: Final = "fallback"  # The first attempt at a fallback.


class Step:
    """What the request driver does next, after an attempt has failed."""

    NOTHING: Final = 0  # Do nothing: the event came too late, or another attempt is running.
    HERE: Final = 1  # Begin another attempt at the same replica, over a new connection.
    ELSEWHERE: Final = 2  # Begin another attempt at another replica.
    BUDGET: Final = 3  # Act as for ELSEWHERE if the retry budget allows it, else as for ANSWER.
    ANSWER: Final = 4  # Send the client an error.
    TRUNCATE: Final = 5  # Content was sent: resume the stream, or make the truncation visible.
    KEPT_ERROR: Final = 6  # Send the client the error answer that was kept first.


@trait
class EnginePort(ABC):
    """What the driver does with one attempt at its engine (`AttemptIO`, or a simulated engine).

    The driver calls the methods of the same names of `Request`.
    """

    __slots__ = ()

    @abstractmethod
    def open(self, fresh: bool) -> None:
        """Send the attempt; it may have ended at the return. `fresh`: use a new connection."""

    @abstractmethod
    def drop(self) -> None:
        """Cancel the attempt, also at its engine. Later events of the attempt have no effect."""

    @abstractmethod
    def discard(self) -> None:
        """Cancel the attempt after its engine has refused it, so the engine needs no abort."""

    @abstractmethod
    def free_connection(self) -> None:
        """Release the connection for reuse: the attempt's response is complete."""


class Lateness:
    """What the hedger knows of one attempt. Times are monotonic seconds."""

    __slots__ = ("ahead", "copy_by", "copy_due", "copy_price", "is_silent", "predicted_s")

    def __init__(self, ahead: int, predicted_s: float) -> None:
        # Uncached prompt tokens that waited at the replica at dispatch, including the attempt's.
        self.ahead = ahead
        # Predicted seconds from the dispatch to the first content; 0: no prediction.
        self.predicted_s = predicted_s
        # Time at which the request's class asks for a hedge; infinity: only the policy does.
        self.copy_by = inf
        # Time at which a hedge that was counted but not sent (`dry_run`) would have answered; 0:
        # there was no such hedge.
        self.copy_due = 0.0
        # The share of the tokens of this hedge that the hedging budget paid, 0 to 1.
        self.copy_price = 1.0
        # Whether a hedge was sent because the replica shows no work.
        self.is_silent = False


class Attempt(Lease):
    """One attempt to get the answer from one replica, and its slot there. Times are monotonic
    seconds."""

    __slots__ = (
        "at",
        "began",
        "connect_due",
        "ended",
        "error_status",
        "first_due",
        "held_blocks",
        "index",
        "io",
        "is_alone",
        "is_doubted",
        "is_overdue",
        "is_sent",
        "is_timed",
        "kind",
        "lateness",
        "overdue_due",
        "phase",
        "reason",
        "rest",
        "sent_priority",
        "speed_sample",
        "stale",
        "work_due",
    )

    def __init__(
        self,
        index: int,
        kind: str,
        at: Replica,
        now: float,
        tokens: int = 0,
        held_blocks: int = 0,
        streamed: bool = True,
        light: bool = False,
    ) -> None:
        """`tokens`: estimated uncached prompt tokens when the replica was chosen. `streamed`,
        `light`: see `Lease`."""
        super().__init__(at, tokens, streamed, light)
        # `at` is the replica object and not its id, because after a reload another replica may have
        # the same id.
        self.at = at
        self.index = index
        self.kind = kind
        self.phase = Phase.CONNECTING
        self.began = now
        self.ended = 0.0
        self.reason = Reason.OK
        # Number of leading prompt blocks that the replica was expected to hold.
        self.held_blocks = held_blocks
        # Whether the replica had already closed the attempt's pooled connection.
        self.stale = False
        self.sent_priority = b""  # The priority number sent to the engine; b"": no number was sent.
        # Sends the attempt and handles its events; set by the proxy or the simulator. `None` after
        # the end of the request, and in tests without engines.
        self.io: EnginePort | None = None
        # The body that asks for the rest of a broken stream; `None`: the client's body is sent.
        self.rest: list[bytes] | None = None
        # Whether the attempt has had a connection, so that its engine may have begun to work.
        self.is_sent = False
        # True if the client has read all the time, so only the engine determines the time to first
        # content.
        self.is_timed = True
        # True if no other request waited at the replica when this attempt was sent.
        self.is_alone = False
        # The time limits, which `Deadlines` and `watch.py` set; infinity: none.
        self.first_due = inf  # Time at which the first content is due.
        # Time at which the first sign of work for the attempt may be overdue.
        self.overdue_due = inf
        # Time of the next check whether the replica works; infinity: content has come.
        self.work_due = inf
        # Time by which the attempt must be connected; set if the request's class has its own
        # connect timeout.
        self.connect_due = inf
        self.is_overdue = False  # The first sign is overdue, which counts against the replica.
        # Set by the hedger at the dispatch; `None`: the hedger does not know the attempt.
        self.lateness: Lateness | None = None
        # The status of the attempt's error answer; 0: it has none, or the comparison of its answer
        # with those of other replicas has ended (`fleet/error_answers.py`).
        self.error_status = 0
        # Whether another replica should get the request before the client gets the error answer.
        self.is_doubted = False
        # The facts from which the replica's speed is learned; `None`: the request is not streamed.
        self.speed_sample: SpeedSample | None = None

    @property
    def replica_id(self) -> str:
        return self.at.id


def engine_of(attempt: Attempt) -> EnginePort:
    """Return the port of an attempt whose request has not ended."""
    io = attempt.io
    assert io is not None
    return io


class AttemptState:
    """All attempts of one request."""

    __slots__ = (
        "_falls_back",
        "_first",
        "attempts",
        "commit",
        "kept_error",
        "live",
        "most",
        "over",
        "winner",
    )

    def __init__(self, most: int) -> None:
        # Maximum number of attempts at the present model that reach a replica. Failed connects,
        # hedges and stale attempts do not count.
        self.most = most
        self.attempts: list[Attempt] = []
        self.live: list[Attempt] = []  # The running attempts, in the order in which they began.
        # Index of the first attempt at the present model. The earlier attempts were at models from
        # which the request went to a fallback.
        self._first = 0
        self._falls_back = False  # Whether the next attempt is the first one at a fallback.
        self.commit = Commit.NOTHING
        self.winner: Attempt | None = None
        self.over = False
        # The earliest attempt whose error answer was kept.
        self.kept_error: Attempt | None = None

    @property
    def reached(self) -> int:
        """The number of attempts that count towards `most`, the limit of attempts.

        Hedges, attempts that reached no replica, and attempts over stale connections do not count
        towards it.
        """
        return sum(
            1
            for a in self.recent
            if a.kind != Kind.HEDGE and a.reason not in UNREACHED and not a.stale
        )

    @property
    def recent(self) -> list[Attempt]:
        """The attempts at the present model."""
        return self.attempts[self._first :] if self._first else self.attempts

    @property
    def last(self) -> Attempt | None:
        """The last attempt at the present model; `None` if there was none."""
        return self.attempts[-1] if len(self.attempts) > self._first else None

    @property
    def lost(self) -> int:
        """The number of attempts that may have begun to run at a replica and returned nothing."""
        return sum(1 for a in self.attempts if a.reason in LOST and not a.stale)

    @property
    def was_hedged(self) -> bool:
        return any(a.kind == Kind.HEDGE for a in self.attempts)

    @property
    def resumptions(self) -> int:
        """The number of attempts that were asked for the rest of a broken stream."""
        return sum(1 for a in self.attempts if a.rest is not None)

    def tried(self, besides: Attempt | None = None) -> list[Replica]:
        """Return the replicas where the request failed.

        An attempt that was preempted or withdrawn has not failed. `besides`: an attempt that has
        not failed either, because it is still running.
        """
        recent = self.recent
        return [a.at for a in recent if a is not besides and a.reason not in _NOT_FAILED]

    def is_contested(self, attempt: Attempt) -> bool:
        """Whether this attempt and at least one other are still running."""
        return len(self.live) > 1 and attempt in self.live

    def holds_errors(self) -> bool:
        """Whether an error must not be sent to the client yet.

        An error must wait if another attempt is running, or if the error of an earlier attempt was
        kept, which has precedence.
        """
        return len(self.live) > 1 or self.kept_error is not None

    def begin(
        self,
        replica: Replica,
        now: float,
        tokens: int = 0,
        held_blocks: int = 0,
        streamed: bool = True,
        *,
        hedge: bool = False,
        rest: list[bytes] | None = None,
        light: bool = False,
    ) -> Attempt:
        """Begin an attempt and take its lease.

        `tokens`, `held_blocks`, `rest`: see `Attempt`; `light`: see `Lease`.
        """
        kind = Kind.RETRY if self.attempts else Kind.PRIMARY
        if self._falls_back:
            kind = Kind.FALLBACK
            self._falls_back = False
        if hedge:
            kind = Kind.HEDGE
        elif rest is not None:
            kind = Kind.REST
        attempt = Attempt(
            len(self.attempts), kind, replica, now, tokens, held_blocks, streamed, light
        )
        attempt.rest = rest
        if self.attempts:
            self.attempts.append(attempt)
            self.live.append(attempt)
        else:
            # Such a list takes less memory than one after an append.
            self.attempts = [attempt]
            self.live = [attempt]
        return attempt

    def fall_back(self) -> None:
        """Begin again at another model. No attempt is running, and no content was sent."""
        self._first = len(self.attempts)
        self._falls_back = True
        self.kept_error = None

    def sent(self, attempt: Attempt) -> None:
        if attempt.phase == Phase.CONNECTING:
            attempt.phase = Phase.SENT
            attempt.is_sent = True

    def headed(self, attempt: Attempt) -> None:
        if attempt.phase == Phase.SENT:
            attempt.phase = Phase.HEADED

    def committed_status(self) -> None:
        if self.commit == Commit.NOTHING:
            self.commit = Commit.STATUS

    def content(self, attempt: Attempt) -> bool:
        """Handle an attempt's content.

        Returns True if the attempt wins. Otherwise the caller must cancel the attempt.
        """
        if attempt.phase == Phase.ENDED or self.over:
            return False
        attempt.begun()
        winner = self.winner
        if winner is None or (attempt.rest is not None and winner.phase == Phase.ENDED):
            self.winner = attempt
            attempt.phase = Phase.WON
            self.commit = Commit.CONTENT
        return self.winner is attempt

    def outrun(self, now: float) -> None:
        """End all attempts except the winner."""
        for attempt in [*self.live]:
            if attempt is not self.winner:
                self._end(attempt, now, Reason.HEDGE_LOST)

    def withdrawn(self, attempt: Attempt, now: float) -> None:
        """End an attempt that could not be sent because of a defect in the router."""
        self._end(attempt, now, Reason.INTERNAL)

    def recalled(self, now: float) -> None:
        """End all running attempts because the request goes back to the queue.

        An attempt that is ended for this reason does not count as failed.
        """
        for attempt in self.attempts:
            self._end(attempt, now, Reason.PREEMPTED)

    def keep_error(self, attempt: Attempt, reason: Reason, now: float) -> None:
        """End an attempt whose answer is an error that the client may have to get later.

        The error of the earliest attempt is kept.
        """
        self._end(attempt, now, reason)
        kept = self.kept_error
        if kept is None or attempt.index < kept.index:
            self.kept_error = attempt

    def kept_error_wins(self) -> None:
        """Make the attempt whose error was kept the winner; its answer goes to the client."""
        self.winner = self.kept_error
        self.commit = Commit.CONTENT
        self.over = True

    def completed(self, attempt: Attempt, now: float, reason: Reason = Reason.OK) -> None:
        """End the request: the winner's response is complete."""
        if attempt.phase == Phase.ENDED:
            return
        self._end(attempt, now, reason)
        self.over = True

    def failed(
        self,
        attempt: Attempt,
        reason: Reason,
        now: float,
        *,
        unread: bool = False,
        repeatable: bool,
        known_dead: bool,
    ) -> int:
        """End a failed attempt, release its lease, and return the next `Step`.

        `unread`, `repeatable`: see `judge`.
        """
        if attempt.phase == Phase.ENDED:
            return Step.NOTHING
        self._end(attempt, now, reason)
        if self.over:
            return Step.NOTHING
        if self.commit == Commit.CONTENT:
            speaks = self.winner is attempt or attempt.rest is not None
            return Step.TRUNCATE if speaks else Step.NOTHING
        if self.live:
            return Step.NOTHING
        if self.kept_error is not None:
            return Step.KEPT_ERROR
        verdict = judge(reason, unread=unread, repeatable=repeatable, known_dead=known_dead)
        if verdict == RetryChoice.NO:
            return Step.ANSWER
        if verdict == RetryChoice.HERE:
            # A request over a stale connection was not executed, so the attempt does not count.
            # This exception applies to one attempt at each replica.
            again = any(a.stale and a.replica_id == attempt.replica_id for a in self.attempts)
            attempt.stale = True
            return Step.ANSWER if again else Step.HERE
        if self._has_died_with_it(attempt, reason) and self.lost > 1:
            return Step.ANSWER
        if reason in LOST and self.lost > 1:
            # The request itself may crash replicas, so it must not reach more than two.
            return Step.ANSWER
        if len(self.recent) >= MOST_CONNECTS or (
            self.reached >= self.most
            and (verdict == RetryChoice.BUDGET or reason is Reason.CREDENTIAL_REFUSED)
        ):
            return Step.ANSWER
        return Step.ELSEWHERE if verdict == RetryChoice.ELSEWHERE else Step.BUDGET

    def end(self, reason: Reason, now: float) -> None:
        """End the request because the client left or the router answered."""
        self.over = True
        for attempt in self.attempts:
            self._end(attempt, now, reason)

    @property
    def blame(self) -> Reason:
        """Return why the request failed, after all attempts have failed.

        The reason is that of the last attempt. If the last attempt was a hedge, and the attempt
        before the hedge reached a replica or the hedge was withdrawn, the reason is that of the
        attempt before the hedge. The same applies if the last attempt could not connect to a
        replica that had just lost the request.
        """
        last = self.attempts[-1]
        if last.reason is Reason.CONNECT_FAILED and last.index:
            before = self.attempts[last.index - 1]
            if before.at is last.at and before.reason in LOST and not before.stale:
                return before.reason
        if last.kind == Kind.HEDGE:
            first = self.attempts[last.index - 1]
            if first.reason not in UNSENT or last.reason is Reason.INTERNAL:
                return first.reason
        return last.reason

    def _has_died_with_it(self, attempt: Attempt, reason: Reason) -> bool:
        """Whether a failed connection shows that the process died while it had the request.

        Its pooled connection to the request was not stale then: the request may have been executed.
        """
        has_died = False
        if reason is Reason.CONNECT_FAILED:
            for other in self.attempts:
                if other.stale and other.at is attempt.at:
                    other.stale = False
                    has_died = True
        return has_died

    def _end(self, attempt: Attempt, now: float, reason: Reason) -> None:
        if attempt.phase != Phase.ENDED:
            if attempt in self.live:
                self.live.remove(attempt)
            attempt.phase = Phase.ENDED
            attempt.ended = now
            attempt.reason = reason
            attempt.release()


# Maximum number of attempts of one request at one model, including failed connects, so that in a
# fleet that is mostly down not every replica is tried.
MOST_CONNECTS = 10
