"""The attempts of one request as a state machine. Pure: no sockets, no clock of its own.

Rules:
1. An attempt is one sending of the request to one replica. It holds one lease from `begin` until it
   ends, whatever ends it; ending is final, and an ended attempt's events are ignored.
2. The first attempt to show content wins (`content`); only the winner's bytes may reach the client.
   While another attempt lives an error is no content: the attempt is put aside (`aside`) with what
   it said, which is told only if the others fail as well, the earliest one first.
3. Nothing committed: a failed attempt may be followed by another. Status committed (the client has
   a 200 and comments): so it may, but a final error must be told inside the stream. Content
   committed: the client must see the truncation, or a continuation succeeds the winner.
4. A continuation begins when the winner has ended before its response did, and says what the winner
   left unsaid. It, and nothing else, becomes the winner after a winner, by its first content; until
   then the one before it stays. It fails as a winner does: another may follow, or it is truncated.
5. The request is over once: by completion, by an answer of the router's own, by the client leaving.

    attempt:  CONNECTING → SENT → HEADED → WON → ENDED      any phase may go to ENDED
    request:  NOTHING → STATUS → CONTENT                    commitment only grows

A hedge is an attempt that begins while another one waits for its first content. If both fail, the
client is told the failure of the earlier one; the failure of the later one decides about a retry.
"""

from __future__ import annotations

from math import inf
from typing import Final

from router.core.errors import Reason
from router.core.lease import Lease
from router.dispatch.retry import LOST, UNSENT, Verdict, judge
from router.fleet.replica import Replica

# What does not count among the attempts a request may have.
UNREACHED: Final = UNSENT | {Reason.PREEMPTED}


# Plain numbers and words: a member of an enum costs compiled code a search in its class.


class Phase:
    """How far an attempt is."""

    CONNECTING: Final = 0
    SENT: Final = 1
    HEADED: Final = 2
    WON: Final = 3
    ENDED: Final = 4


class Commit:
    """What the client has been sent."""

    NOTHING: Final = 0
    STATUS: Final = 1
    CONTENT: Final = 2


class Kind:
    """Why an attempt was begun: log field and metric label."""

    PRIMARY: Final = "primary"
    RETRY: Final = "retry"
    HEDGE: Final = "hedge"
    CONTINUATION: Final = "continuation"


class Step:
    """What the owner of the request does next."""

    NOTHING: Final = 0  # the event was too late, or another attempt is still alive
    HERE: Final = 1  # begin another attempt at the same replica, on a new connection
    ELSEWHERE: Final = 2  # begin another attempt at another replica
    BUDGET: Final = 3  # the same, if the retry budget allows; otherwise answer
    ANSWER: Final = 4  # tell the client that it failed
    TRUNCATE: Final = 5  # content is out: continue it, or show the client that the rest is missing
    ASIDE: Final = 6  # pass on what the earliest attempt that was put aside has said


class Attempt:
    """One sending of a request to a replica. Times are monotonic seconds."""

    __slots__ = (
        "ahead",
        "at",
        "began",
        "connect_due",
        "copy_due",
        "ended",
        "first_due",
        "held",
        "index",
        "io",
        "is_alone",
        "is_overdue",
        "is_sent",
        "is_timed",
        "kind",
        "lease",
        "overdue_due",
        "phase",
        "predicted_s",
        "reason",
        "replica_id",
        "rest",
        "rid",
        "sent_priority",
        "stale",
        "tokens",
    )

    def __init__(
        self,
        index: int,
        kind: str,
        at: Replica,
        lease: Lease,
        now: float,
        tokens: int,
        held: int,
    ) -> None:
        self.at = at  # the replica: another may have its id after a reload
        self.index = index
        self.kind = kind
        self.replica_id = at.id
        self.lease = lease
        self.phase = Phase.CONNECTING
        self.began = now
        self.ended = 0.0
        self.reason = Reason.OK
        self.tokens = tokens  # uncached prompt tokens, estimated at the choice
        self.held = held  # leading blocks that the replica was taken to hold
        self.stale = False  # it met a pooled connection that was dead already
        self.rid = b""  # by which its engine can be told to stop; b"": closing has to do
        self.sent_priority = b""  # the number that told its engine how urgent it is; b"": none did
        self.io: object = None  # what sends it and hears of it; the port's own
        self.rest: list[bytes] | None = None  # the body that asks for a broken stream's rest
        self.is_sent = False  # it has had a connection, so its engine may have begun
        # Its client has read all the time, so what it takes to its first content is its engine's.
        self.is_timed = True
        self.first_due = inf  # when its first content has to be there
        self.is_alone = False  # no other request waited at the replica when this one was sent
        self.overdue_due = inf  # when the fleet is asked whether its first token is too late
        self.is_overdue = False  # it is, and that counts against the replica
        self.connect_due = inf  # where its class has less patience than the pool
        self.predicted_s = 0.0  # from `began` to its first content; 0: no prediction
        # Uncached prompt tokens, its own among them, that waited there when it left; -1: not seen.
        self.ahead = -1
        # When a copy would have answered that was only counted, not sent; 0: there was none.
        self.copy_due = 0.0


class AttemptState:
    """All attempts of one request."""

    __slots__ = ("attempts", "commit", "most", "over", "put_aside", "winner")

    def __init__(self, most: int) -> None:
        self.most = most  # attempts that may reach a replica; failed connects do not count
        self.attempts: list[Attempt] = []
        self.commit = Commit.NOTHING
        self.winner: Attempt | None = None
        self.over = False
        self.put_aside: Attempt | None = None  # the earliest one that ended with an error to tell

    @property
    def reached(self) -> int:
        """Attempts that may have reached a replica; a hedge is not one of those `most` allows."""
        return sum(
            1
            for a in self.attempts
            if a.kind != Kind.HEDGE and a.reason not in UNREACHED and not a.stale
        )

    @property
    def lost(self) -> int:
        """Attempts that a replica may have begun to execute, and of which nothing came."""
        return sum(1 for a in self.attempts if a.reason in LOST and not a.stale)

    @property
    def was_hedged(self) -> bool:
        return any(a.kind == Kind.HEDGE for a in self.attempts)

    @property
    def continuations(self) -> int:
        return sum(1 for a in self.attempts if a.kind == Kind.CONTINUATION)

    @property
    def alive(self) -> list[Attempt]:
        return [a for a in self.attempts if a.phase != Phase.ENDED]

    def is_alone(self, attempt: Attempt) -> bool:
        """Whether no other attempt lives."""
        return not any(a.phase != Phase.ENDED for a in self.attempts if a is not attempt)

    def begin(
        self,
        replica: Replica,
        now: float,
        tokens: int = 0,
        held: int = 0,
        streamed: bool = True,
        *,
        hedge: bool = False,
        continues: bool = False,
        light: bool = False,
    ) -> Attempt:
        """A new attempt; takes its lease. `tokens`, `held`: see `Attempt`; `light`: see `Lease`."""
        kind = Kind.RETRY if self.attempts else Kind.PRIMARY
        if hedge:
            kind = Kind.HEDGE
        elif continues:
            kind = Kind.CONTINUATION
        lease = Lease(replica, tokens, streamed, light)
        attempt = Attempt(len(self.attempts), kind, replica, lease, now, tokens, held)
        self.attempts.append(attempt)
        return attempt

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
        """The attempt shows content. True if it wins; a loser must be cancelled by its owner."""
        if attempt.phase == Phase.ENDED or self.over:
            return False
        attempt.lease.begun()
        winner = self.winner
        if winner is None or (attempt.kind == Kind.CONTINUATION and winner.phase == Phase.ENDED):
            self.winner = attempt
            attempt.phase = Phase.WON
            self.commit = Commit.CONTENT
        return self.winner is attempt

    def outrun(self, now: float) -> list[Attempt]:
        """There is a winner: all others end. Returns those, to be cancelled by their owner."""
        losers = [a for a in self.attempts if a.phase != Phase.ENDED and a is not self.winner]
        for attempt in losers:
            self._end(attempt, now, Reason.HEDGE_LOST)
        return losers

    def recalled(self, now: float) -> None:
        """The request goes back to the queue: what lives ends, and none of it has failed."""
        for attempt in self.alive:
            self._end(attempt, now, Reason.PREEMPTED)

    def aside(self, attempt: Attempt, reason: Reason, now: float) -> bool:
        """An attempt ends with an error that may have to be told, while another one lives.

        True: keep what it said, it is the earliest one.
        """
        self._end(attempt, now, reason)
        kept = self.put_aside
        if kept is not None and kept.index < attempt.index:
            return False
        self.put_aside = attempt
        return True

    def put_aside_wins(self) -> None:
        """What was put aside goes to the client: it is the answer."""
        self.winner = self.put_aside
        self.commit = Commit.CONTENT
        self.over = True

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
    ) -> int:
        """The attempt failed; what now? Releases its lease."""
        if attempt.phase == Phase.ENDED:
            return Step.NOTHING
        self._end(attempt, now, reason)
        if self.over:
            return Step.NOTHING
        if self.commit == Commit.CONTENT:
            speaks = self.winner is attempt or attempt.kind == Kind.CONTINUATION
            return Step.TRUNCATE if speaks else Step.NOTHING
        if not self.is_alone(attempt):
            return Step.NOTHING
        if self.put_aside is not None:
            return Step.ASIDE
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
        if reason in LOST and self.lost > 1:
            # A request that kills replicas must not tour the fleet: two, never three.
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

    @property
    def blame(self) -> Reason:
        """Why a request failed whose attempts all did: the reason of the earliest one that reached
        a replica, where the last one was its hedge."""
        last = self.attempts[-1]
        if last.kind == Kind.HEDGE:
            first = self.attempts[last.index - 1]
            if first.reason not in UNSENT:
                return first.reason
        return last.reason

    @staticmethod
    def _end(attempt: Attempt, now: float, reason: Reason) -> None:
        if attempt.phase != Phase.ENDED:
            attempt.phase = Phase.ENDED
            attempt.ended = now
            attempt.reason = reason
            attempt.lease.release()


# A fleet that is mostly dead is not searched to its end for one request.
MOST_CONNECTS = 10
