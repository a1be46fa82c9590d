"""Records the results of attempts at replicas, and turns against replicas that fail.

A result that only shows that a replica was silent does not count while the replica shows work.

Must never: do I/O, or let a late result of a removed replica change the fleet.
"""

from __future__ import annotations

from typing import Final

from router.core.clock import time
from router.core.errors import Reason
from router.core.progress import smoothed
from router.fleet.error_answers import ErrorKind, kind_of
from router.fleet.health import BLAMED, RACES, SILENT
from router.fleet.membership import Duty
from router.fleet.replica import Replica
from router.fleet.table.table import Table
from router.wire.http1.retry_after import seconds_of
from router.wire.sweep import NEVER

# Number of replicas up to which each answer "busy" (429 or 503) rebuilds the table at once. In a
# larger fleet, the next tick of the sweep handles all such answers together.
LARGE: Final = 64
# These failures show that the address cannot be reached.
UNCONNECTED: Final = frozenset((Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT))
# Work that a replica shows within this many seconds after an attempt's last content is that
# content, and not work for another request.
_SAME_S: Final = 0.001


class Outcomes:
    """The results of the attempts of one fleet. All times are monotonic seconds."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

    def succeeded(
        self, replica: Replica, dispatched: float | None = None, *, content: bool = True
    ) -> None:
        """Record that an attempt succeeded. `content`: the attempt was a request to generate
        content."""
        replica.health.served += 1
        if content and not replica.errors.is_clean:
            replica.errors.worked()
        health = replica.health
        if health.refusals:
            health.took(dispatched)
        if health.failures or health.half_open or health.suspected_at is not None:
            if health.succeeded(self._table.clock(), content=content, dispatched=dispatched):
                self._table.hooks.event("recovered", replica)
            self._table.rebuild()

    def showed_content(
        self,
        replica: Replica,
        now: float,
        dispatched: float,
        ttft_s: float | None,
        tokens: int,
        is_alone: bool = True,
        is_timed: bool = True,
    ) -> None:
        """Record the first content of an attempt. `ttft_s`: time to first token; `None` if the
        content is the whole answer.

        `is_alone`: no other request waited at the replica when this one was sent. `is_timed`: False
        if the content may have arrived before it was read; then the time is not used.
        """
        progress = replica.progress
        progress.at = now
        if not is_timed:
            pass
        elif ttft_s is not None:
            if ttft_s < replica.speed.rtt_s:  # No content comes sooner than a round trip takes.
                replica.timed(ttft_s, self._table.clock())
            replica.ttft_s = smoothed(replica.ttft_s, ttft_s)
            progress.first_token(ttft_s, tokens, is_alone)
        else:
            progress.whole_answer(now - dispatched)
        health = replica.health
        if health.suspected_at is not None or health.zombie:
            if health.showed_content(now, dispatched):
                self._table.hooks.event("recovered", replica)
            self._table.rebuild()
        elif health.races_lost or health.refusals:
            health.showed_content(now, dispatched)
        self._table.hooks.room(replica)

    def paced(self, replica: Replica, tpot_s: float) -> None:
        """Record that a stream took `tpot_s` seconds per output token after the first token."""
        replica.tpot_s = smoothed(replica.tpot_s, tpot_s)

    def works_until(
        self, replica: Replica, dispatched: float, now: float, is_streamed: bool
    ) -> float:
        """Return until when a replica with an attempt without content counts as working.

        `dispatched`: when the attempt was sent. A replica shows no work if the result is not later
        than `now`. NEVER: the work for the attempt cannot be seen.
        """
        if is_streamed or (replica.health.zombie and self.is_unfit(replica, dispatched, now)):
            silence_s = replica.silence_s(now)
        else:
            silence_s = replica.whole_silence_s(now)
        return max(replica.progress.at, dispatched) + silence_s

    def is_unfit(self, replica: Replica, dispatched: float, now: float) -> bool:
        """Return whether a replica is down, or was ejected after an attempt was sent at
        `dispatched` and has not proved itself since."""
        health = replica.health
        if not health.up or health.is_ejected(now):
            return True
        return health.half_open and dispatched < health.ended

    def overdue(
        self,
        replica: Replica,
        dispatched: float,
        now: float,
        is_streamed: bool = True,
        request_id: bytes = b"",
    ) -> None:
        """Record that the first sign of work for an attempt is overdue, and that the replica shows
        no work for other requests either (`works_until`). `dispatched`: when the attempt was sent.
        """
        if replica.removed:
            return
        table = self._table
        silent_since = max(replica.progress.at, dispatched)
        health = replica.health
        was_suspect = health.is_suspect(now) or health.is_ejected(now)
        is_ejected = health.overdue(now, table.rng, table.may_eject(replica, now), dispatched)
        if not is_ejected and (was_suspect or not health.is_suspect(now)):
            return
        waited = f"{now - dispatched:.1f} s"
        if is_streamed:
            lacks = f"no first token for {waited}, usual {replica.progress.first_s:.2f} s"
        else:
            lacks = f"no answer for {waited}"
        silent_s = now - silent_since
        health.why = f"{lacks}, and no sign of work for {silent_s:.1f} s{_by(request_id)}"
        self._turned_against(replica, is_ejected)

    def outrun(self, replica: Replica, dispatched: float, now: float) -> bool:
        """Record that an attempt lost the race to its hedged copy, which was sent later.

        Returns True if the lost race makes the replica suspect or ejects it. If the replica has
        shown work since `dispatched`, it was busy and did not hang. Then only its weight is lowered
        for a while.
        """
        if replica.removed:
            return False
        table = self._table
        health = replica.health
        health.lags(now)
        replica.weight = replica.config.weight * health.factor(now)
        table.schedule_check(now)
        if replica.progress.at > dispatched:
            return False
        was_suspect = health.is_suspect(now)
        may_eject = health.races_lost + 1 >= RACES and table.may_eject(replica, now)
        is_ejected = health.outrun(now, table.rng, may_eject)
        if not is_ejected and (was_suspect or not health.is_suspect(now)):
            return False
        health.why = f"{health.races_lost} races in a row lost to copies, without a sign of work"
        self._turned_against(replica, is_ejected)
        return True

    def _turned_against(self, replica: Replica, is_ejected: bool) -> None:
        """Report that the replica has just become suspect or was ejected, and rebuild the table."""
        self._table.hooks.event("ejected" if is_ejected else "suspect", replica)
        if is_ejected:
            replica.give_up()
        self._table.rebuild()

    def busy(self, replica: Replica, retry_after: bytes | None, now: float) -> None:
        """Record an answer 429 or 503: the replica is busy, and is avoided for a while.

        `retry_after`: the value of the answer's Retry-After header; `None`: it has none.
        """
        if replica.removed:
            return
        pause_s = None if retry_after is None else seconds_of(retry_after, time())
        if not replica.health.refused(now, self._table.rng, pause_s):
            return
        if len(self._table.replicas) <= LARGE:
            self._table.rebuild()
        else:
            # If all replicas are busy, rebuilding the table for each answer would take too much CPU
            # time.
            self._table.rebuild_soon(now)

    def gave_error(self, replica: Replica, status: int, now: float) -> bool:
        """Record an error answer. Returns whether another replica should get its request, too.

        An error comes sooner than an answer, so the replica seems to have little load. After some
        errors in a row it pauses, so that it does not get more requests than the others. Rejected
        requests cause no pause: a burst of them comes from one client, before any is compared.
        """
        errors, health, kind = replica.errors, replica.health, kind_of(status)
        is_doubted = errors.came(kind) or (health.half_open and health.ejected_by == kind)
        if kind not in (ErrorKind.BUSY, ErrorKind.REJECTED) and errors.pauses(kind):
            self.busy(replica, None, now)
        return is_doubted

    def contradicted(
        self,
        replica: Replica,
        status: int,
        evidence: int | None,
        dispatched: float,
        request_id: bytes = b"",
    ) -> None:
        """Record that another replica has answered the request of an error answer.

        `status`: the status of the error answer. `evidence`: a hash of the request's client and
        body; `None`: the error is about the router's own credential, so the client has no part in
        it. `dispatched`: when the attempt with the error answer was sent.
        """
        if replica.removed or dispatched < replica.health.ended:
            return  # An error from before the last ejection has had its effect.
        table, health, kind = self._table, replica.health, kind_of(status)
        now = table.clock()
        is_enough = replica.errors.contradicted(kind, evidence, now)
        if kind == ErrorKind.BUSY:
            # A replica with requests is busy, and not sick.
            is_enough = is_enough and not replica.inflight and not replica.foreign_load
        may_eject = table.may_eject(replica, now)
        if health.contradicted(now, table.rng, may_eject, kind, dispatched, is_enough=is_enough):
            health.why = f"{status} for requests that other replicas answer{_by(request_id)}"
            self._turned_against(replica, True)

    def failed(
        self,
        replica: Replica,
        reason: Reason,
        dispatched: float = NEVER,
        shown: float = NEVER,
        *,
        was_overdue: bool = False,
        request_id: bytes = b"",
    ) -> None:
        """Record that an attempt at the replica failed.

        `dispatched`: when the attempt was sent. `shown`: when the attempt last showed content, or
        else `dispatched`.
        """
        if reason not in BLAMED or replica.removed:
            return
        if reason is Reason.CONNECT_FAILED and replica.standing.duty != Duty.IN_SERVICE:
            return  # Requests that wait for a connection leave a reclaimed replica.
        table = self._table
        now = table.clock()
        if reason is Reason.CONNECT_FAILED:
            table.died(replica)
        if reason in UNCONNECTED:
            self._unconnected(replica, reason, now)
        worked_at = replica.progress.at
        if (
            reason in SILENT
            and worked_at > shown + _SAME_S
            and now - worked_at < replica.silence_s(now)
        ):
            return  # The replica works for other requests, so the failure does not count.
        health = replica.health
        if health.failed(
            now,
            table.rng,
            table.may_eject(replica, now),
            was_overdue=was_overdue,
            dispatched=None if dispatched == NEVER else dispatched,
            kind=ErrorKind.FAILED if reason is Reason.SERVER_ERROR else 0,
        ):
            last = f"{reason.value}{_by(request_id)}"
            health.why = f"{health.failures} failures in a row, the last: {last}"
            self._turned_against(replica, True)

    def _unconnected(self, replica: Replica, reason: Reason, now: float) -> None:
        """Record a failure at the other ranks of an address: no rank of it can be reached."""
        table = self._table
        for other in replica.ranks:
            if other is replica or other.removed:
                continue
            if other.health.failed(now, table.rng, table.may_eject(other, now)):
                other.health.why = f"{reason.value} at rank {replica.rank_number}"
                self._turned_against(other, True)


def _by(request_id: bytes) -> str:
    """Return text for people that names the request by its id; "" if the request has no id."""
    return f"; request {request_id.decode('latin-1')}" if request_id else ""
