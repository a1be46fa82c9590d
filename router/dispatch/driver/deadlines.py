"""All time limits of one request, and the one time at which they must be checked next.

    limit            set by                          not checked
    the total        the arrival                     -
    reading          `paused`: the client stops      -
    the silence      `content`, at the first one     while the client does not read, or while
                                                     another replica is asked for the rest
    the client's     `limited`                       while the client does not read, while the
    own deadline                                     request is queued (the queue checks it then),
                                                     and after the first content
    the comment      the arrival, `commented`        -
    of each attempt  `began`: its connection, sign   first content: while the client does not read;
                     of work and first content       sign of work: from `paused` until the client
                                                     reads again, of the attempts that then run

Not here: the time limits of the queue (`admission/timers.py`), of a connect by the pool
(`wire/pool.py`; a shorter connect timeout of the request's class is here) and of the wait for a
first probe (`first_probes.py`), and the alarm of a hedge or of a pause before a retry
(`request_driver.py`).

Each event is one method. An event that may bring a limit forward updates `next_check`. So
`next_check` is never later than a limit that is checked. A token is no event: the time of the last
content is read when the silence is examined (`is_silent`). `watch.py` acts on the limits that have
passed.

Pure: the times are monotonic seconds, and are passed in. Must never: end an attempt or a request.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from router.dispatch.driver.attempt_state import Attempt, AttemptState, Commit
from router.dispatch.rules import Times
from router.intake.routes import Route
from router.wire.sweep import NEVER

# The value of `waits_since` if the request does not wait in the queue.
NOT_SINCE: Final = -1.0


class Passed:
    """Which limit has passed. The limits of the attempts are checked if no other one has passed."""

    NOTHING: Final = 0
    TOTAL: Final = 1
    READING: Final = 2
    SILENCE: Final = 3
    DEADLINE: Final = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class Deadlines:
    """The time limits of one request. Its owner calls `check` of `watch.py` at `next_check`."""

    __slots__ = (
        "_arrived",
        "_comment_due",
        "_read_due",
        "_route",
        "_silence_due",
        "_streams",
        "_waited_s",
        "client_deadline",
        "next_check",
        "state",
        "times",
        "waits_since",
    )

    def __init__(
        self, times: Times, route: Route, arrived: float, *, streams: bool, most: int
    ) -> None:
        """`streams`: the client wants an event stream. `most`: see `AttemptState`."""
        self.state = AttemptState(most)
        self.times = times  # The limits of the request's priority class.
        self._route = route
        self._arrived = arrived
        self._streams = streams
        self._read_due = self._silence_due = NEVER
        # Time at which a silent stream gets a comment, the first one with an early 200.
        self._comment_due = NEVER
        if times.commit_after_s and streams and route.streams_events:
            self._comment_due = arrived + times.commit_after_s
        # The client's own deadline; an answer that begins later is useless to the client.
        self.client_deadline = NEVER
        self.waits_since = NOT_SINCE  # Time since which the request waits in the queue.
        self._waited_s = 0.0  # Total seconds of the earlier waits in the queue.
        self.next_check = self.next_due()

    @property
    def total_due(self) -> float:
        """The time at which the total timeout passes."""
        total_s = self.times.total_s
        return self._arrived + total_s if total_s else NEVER

    @property
    def waits_for_whole(self) -> bool:
        """Whether the request is not streamed, so its first content is the whole answer."""
        return self._route.inference and not self._streams and not self._route.light

    @property
    def first_s(self) -> float:
        """The maximum seconds that an attempt may take to its first content."""
        if self._read_due != NEVER:
            return NEVER
        if not self.waits_for_whole:
            return self.times.first_token_s
        # There is no limit if the client waits for a whole answer and has sent its own timeout.
        return self.times.whole_s if self.client_deadline == NEVER else NEVER

    def _deadline_due(self) -> float:
        if self.waits_since >= 0.0 or self.state.commit == Commit.CONTENT:
            return NEVER
        return self.client_deadline

    def next_due(self) -> float:
        """Return the earliest time at which a limit may pass."""
        due = min(self.total_due, min(self._comment_due, self._read_due))
        if self._read_due == NEVER:
            due = min(due, min(self._silence_due, self._deadline_due()))
        for attempt in self.state.live:
            due = min(due, min(attempt.first_due, min(attempt.work_due, attempt.connect_due)))
        return due

    def passed(self, now: float) -> int:
        """Return which limit has passed, as a value of `Passed`. The silence must be examined."""
        if self.total_due <= now:
            return Passed.TOTAL
        if self._read_due != NEVER:
            return Passed.READING if self._read_due <= now else Passed.NOTHING
        if self._silence_due <= now:
            return Passed.SILENCE
        return Passed.DEADLINE if self._deadline_due() <= now else Passed.NOTHING

    def needs_comment(self, now: float) -> bool:
        return self._comment_due <= now

    def update(self) -> None:
        """Set `next_check`. Called after an event that sets or moves a limit, and by each check.

        The simulator overrides it, to set its timer; the proxy's sweep reads `next_check`.
        """
        self.next_check = self.next_due()

    # -- before the answer ------------------------------------------------------------------------

    def limited(self, until: float) -> None:
        """The client wants the answer to begin until a time. Called before the first attempt."""
        self.client_deadline = until
        self.update()

    def queued(self, now: float) -> None:
        """The request waits in the queue from now on."""
        self.waits_since = now
        self.update()

    def granted(self, now: float) -> None:
        """The wait in the queue ends, and the request is about to be sent."""
        self._waited_s = self.waited_s(now)
        self.waits_since = NOT_SINCE
        if self._comment_due != NEVER and self.state.commit == Commit.NOTHING:
            # An early 200 was due but postponed, because the request could still be refused.
            self._comment_due = self._arrived + self.times.commit_after_s
        self.update()

    def waited_s(self, now: float) -> float:
        """Return the total seconds that the request has waited in the queue."""
        since = self.waits_since
        return self._waited_s if since < 0.0 else self._waited_s + now - since

    def began(self, attempt: Attempt, now: float) -> None:
        """An attempt begins."""
        attempt.first_due = now + self.first_s
        self._expect_work(attempt, now)
        if self.times.is_own:
            # The connect timeout of the class is shorter than that of the pool of connections.
            attempt.connect_due = now + self.times.connect_s
        self.update()

    def connected(self, attempt: Attempt) -> None:
        """An attempt has its connection."""
        attempt.connect_due = NEVER

    def won(self, attempt: Attempt) -> None:
        """An attempt shows its first content, or an error that is relayed."""
        attempt.first_due = attempt.work_due = NEVER

    def _expect_work(self, attempt: Attempt, now: float) -> None:
        """Begin to check whether the replica works (`driver/watch.py`)."""
        route = self._route
        if not (self._streams or (route.inference and route.is_known and not route.light)):
            return  # The engine may answer such a request without a sign of work.
        replica = attempt.at
        attempt.work_due = now + replica.health.suspect_min_s
        if not attempt.is_overdue:
            tokens = replica.pending_tokens
            attempt.overdue_due = now + replica.overdue_after_s(tokens, self._streams)

    # -- while the answer is relayed --------------------------------------------------------------

    def content(self, now: float, has_comments: bool) -> None:
        """The first content of the winner came; also of one that resumes a broken stream."""
        self._silence_due = now + self.times.token_gap_s
        self._comment_due = NEVER
        if has_comments and self.times.commit_after_s:
            self._comment_due = now + self.times.commit_after_s
        self.update()

    def awaits_rest(self) -> None:
        """Another replica was asked for the rest of a broken stream."""
        self._silence_due = NEVER
        self.update()

    def is_silent(self, last_at: float, now: float) -> bool:
        """Whether the relayed answer, whose last bytes came at `last_at`, must be cut off.

        An engine may generate for minutes without sending a byte: tool-call parsers hold text back.
        So the gap of an engine's answer counts from the replica's last sign of work, and is at most
        as long as an answer that is not streamed may take.
        """
        gap_s, winner, route = self.times.token_gap_s, self.state.winner, self._route
        due = last_at + gap_s
        if due <= now and winner is not None and route.inference and not route.light:
            worked_at = winner.at.progress.after(last_at)
            due = min(worked_at + gap_s, max(due, last_at + self.times.whole_s))
        self._silence_due = due
        return due <= now

    def commented(self, now: float, quiet_until: float = 0.0) -> None:
        """A comment was sent, or is not needed before `quiet_until`."""
        due = now + self.times.commit_after_s
        self._comment_due = quiet_until if quiet_until > now else due
        self.update()

    # -- the client -------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the client does not read."""
        return self._read_due != NEVER

    @property
    def is_relayed(self) -> bool:
        """Whether an answer is relayed, and not broken."""
        return self._silence_due != NEVER

    def paused(self, now: float, stall_s: float) -> None:
        """The client stops reading. It must read again within `stall_s` seconds.

        Meanwhile the router does not read from the replicas. So the time to first content would not
        measure the replicas.
        """
        self._read_due = now + stall_s
        for attempt in self.state.live:
            attempt.is_timed = False
            attempt.first_due = attempt.work_due = NEVER
        self.update()

    def resumed(self, now: float) -> None:
        """The client reads again. The silence before was the client's.

        The first content is due after the time of a gap, or when it was due before, whichever is
        later. The time after which a sign of work is overdue starts again.
        """
        self._read_due = NEVER
        soonest = now + self.times.token_gap_s
        if self._silence_due != NEVER:
            self._silence_due = soonest
        for attempt in self.state.live:
            if attempt is not self.state.winner:
                attempt.first_due = max(soonest, attempt.began + self.first_s)
                self._expect_work(attempt, now)
        self.update()
