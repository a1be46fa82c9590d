"""The life of one request as a state machine of attempts. Pure: no sockets, no clock of its own.

Rules:
1. An attempt is one sending of the request to one replica. It holds one lease from `begin` until it
   ends, whatever ends it; ending is final, and an ended attempt's events are ignored.
2. The first attempt to show content wins (`content`); only the winner's bytes may reach the client.
3. Nothing committed: a failed attempt may be followed by another. Status committed (the client has
   a 200 and comments): so it may, but a final error must be told inside the stream. Content
   committed: never again; the client must see the truncation.
4. The request is over once: by completion, by an answer of the router's own, by the client leaving.

    attempt:  CONNECTING → SENT → HEADED → WON → ENDED      any phase may go to ENDED
    request:  NOTHING → STATUS → CONTENT                    commitment only grows
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from router.core.errors import Reason
from router.core.lease import Lease, Slots
from router.dispatch.retry import UNSENT, Verdict, judge


class Phase(IntEnum):
    CONNECTING = 0
    SENT = 1
    HEADED = 2
    WON = 3
    ENDED = 4


class Commit(IntEnum):
    NOTHING = 0
    STATUS = 1
    CONTENT = 2


class Kind(StrEnum):
    __hash__ = str.__hash__  # see core.errors.Reason

    PRIMARY = "primary"
    RETRY = "retry"


class Step(IntEnum):
    """What the owner of the request does next."""

    NOTHING = 0  # the event was too late, or another attempt is still alive
    HERE = 1  # begin another attempt at the same replica, on a new connection
    ELSEWHERE = 2  # begin another attempt at another replica
    BUDGET = 3  # the same, if the retry budget allows; otherwise answer
    ANSWER = 4  # tell the client that it failed
    TRUNCATE = 5  # content is out: make the client see that the rest is missing


class Attempt:
    """One sending of a request to a replica. Times are monotonic seconds."""

    __slots__ = (
        "at",
        "began",
        "ended",
        "held",
        "index",
        "kind",
        "lease",
        "phase",
        "reason",
        "replica_id",
        "stale",
        "tokens",
    )

    def __init__(
        self,
        index: int,
        kind: Kind,
        replica_id: str,
        at: Slots,
        lease: Lease,
        now: float,
        tokens: int,
        held: int,
    ) -> None:
        self.at = at  # the replica: another may have its id after a reload
        self.index = index
        self.kind = kind
        self.replica_id = replica_id
        self.lease = lease
        self.phase = Phase.CONNECTING
        self.began = now
        self.ended = 0.0
        self.reason = Reason.OK
        self.tokens = tokens  # uncached prompt tokens, estimated at the choice
        self.held = held  # leading blocks that the replica was taken to hold
        self.stale = False  # it met a pooled connection that was dead already


class Life:
    """All attempts of one request."""

    __slots__ = ("attempts", "commit", "most", "over", "resent", "winner")

    def __init__(self, most: int) -> None:
        self.most = most  # attempts that may reach a replica; failed connects do not count
        self.attempts: list[Attempt] = []
        self.commit = Commit.NOTHING
        self.winner: Attempt | None = None
        self.over = False
        self.resent = 0  # attempts made after one that a replica may have begun to execute

    @property
    def reached(self) -> int:
        """Attempts that may have reached a replica."""
        return sum(1 for a in self.attempts if a.reason not in UNSENT and not a.stale)

    def begin(
        self,
        replica_id: str,
        slots: Slots,
        now: float,
        tokens: int = 0,
        held: int = 0,
        streamed: bool = True,
    ) -> Attempt:
        """A new attempt; takes its lease. `tokens` and `held` as in `Attempt`."""
        kind = Kind.RETRY if self.attempts else Kind.PRIMARY
        lease = Lease(slots, tokens, streamed)
        attempt = Attempt(len(self.attempts), kind, replica_id, slots, lease, now, tokens, held)
        self.attempts.append(attempt)
        return attempt

    def sent(self, attempt: Attempt) -> None:
        if attempt.phase == Phase.CONNECTING:
            attempt.phase = Phase.SENT

    def headed(self, attempt: Attempt) -> None:
        if attempt.phase == Phase.SENT:
            attempt.phase = Phase.HEADED

    def committed_status(self) -> None:
        if self.commit == Commit.NOTHING:
            self.commit = Commit.STATUS

    def content(self, attempt: Attempt) -> bool:
        """The attempt shows content. True if it wins; a loser must be cancelled by its owner."""
        if attempt.phase == Phase.ENDED or self.over:
            return False
        attempt.lease.begun()
        if self.winner is None:
            self.winner = attempt
            attempt.phase = Phase.WON
            self.commit = Commit.CONTENT
        return self.winner is attempt

    def completed(self, attempt: Attempt, now: float, reason: Reason = Reason.OK) -> None:
        """The winner's response is whole: the request is over."""
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
        reused: bool,
        received: bool,
        repeatable: bool,
        known_dead: bool,
    ) -> Step:
        """The attempt failed; what now? Releases its lease."""
        if attempt.phase == Phase.ENDED:
            return Step.NOTHING
        self._end(attempt, now, reason)
        if self.over:
            return Step.NOTHING
        if self.commit == Commit.CONTENT:
            return Step.TRUNCATE if self.winner is attempt else Step.NOTHING
        if any(other.phase != Phase.ENDED for other in self.attempts):
            return Step.NOTHING
        verdict = judge(
            reason,
            reused=reused,
            received=received,
            repeatable=repeatable,
            known_dead=known_dead,
        )
        if verdict == Verdict.NO:
            return Step.ANSWER
        if verdict == Verdict.HERE:
            # A stale connection executed nothing, so it uses nothing up; but only once a replica.
            again = any(a.stale and a.replica_id == attempt.replica_id for a in self.attempts)
            attempt.stale = True
            return Step.ANSWER if again else Step.HERE
        if reason in (Reason.REPLICA_RESET, Reason.EMPTY_STREAM, Reason.STREAM_ERROR):
            # A request that kills replicas must not tour the fleet: one more, never two.
            self.resent += 1
            if self.resent > 1:
                return Step.ANSWER
        if len(self.attempts) >= MOST_CONNECTS or (
            verdict == Verdict.BUDGET and self.reached >= self.most
        ):
            return Step.ANSWER
        return Step.ELSEWHERE if verdict == Verdict.ELSEWHERE else Step.BUDGET

    def end(self, reason: Reason, now: float) -> list[Attempt]:
        """The request is over, by the client's leaving or an answer of ours. Returns the attempts
        that were alive: their connections are closed by whoever owns them."""
        self.over = True
        alive = [a for a in self.attempts if a.phase != Phase.ENDED]
        for attempt in alive:
            self._end(attempt, now, reason)
        return alive

    @staticmethod
    def _end(attempt: Attempt, now: float, reason: Reason) -> None:
        if attempt.phase != Phase.ENDED:
            attempt.phase = Phase.ENDED
            attempt.ended = now
            attempt.reason = reason
            attempt.lease.release()


# A fleet that is mostly dead is not searched to its end for one request.
MOST_CONNECTS = 10
