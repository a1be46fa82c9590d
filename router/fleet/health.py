"""Decides whether a replica is fit for requests, by active probes and by the results of requests.

The rules and their reasons are in docs/decisions/health.md. In short:

- *Probes*: `rise` good ones in a row bring a replica up, `fall` bad ones take it down. A new
  replica (`await_probe`) is not up; its first probe alone decides.
- *Failures* in a row eject a replica for a period that doubles with each ejection (Envoy's outlier
  detection). A good probe never ends an ejection, because `/health` may answer 200 while generation
  hangs. After the period, one attempt at a time is the trial (half-open). Only an attempt that was
  sent after the end of the ejection decides the trial.
- *Error answers* count only if other replicas answer the same requests (`error_answers.py`).
- *Busy*: after 429 or 503 the replica is avoided for the time that it asks for, or for a short
  pause that doubles. It is not ejected for this.
- *Zombie*: a replica that generates nothing. The caller reports an overdue token, a timeout or a
  lost hedging race only while the replica shows no work (`core/progress.py`). The first overdue
  token, or `RACES` lost races in a row, make it suspect; the next overdue token, the failure of the
  overdue attempt, or a race lost after the suspicion ejects it. Only work clears the suspicion, and
  work ends the ejection at once (`revived`).
- *Weight*: a replica that came up or returned begins slowly (Envoy's slow start, aggression 1). One
  that lost a hedging race gets fewer requests for `LAG_S` seconds, even if it shows work, because
  its load does not show that it is slow: its attempt was cancelled.

Must never: read a clock, or draw random numbers except from the generator that is passed in.
"""

from __future__ import annotations

from random import Random
from typing import Final

from router.config.model import Health as Rules
from router.core.errors import Reason

# Results of an attempt that count as failures of the replica.
BLAMED: frozenset[Reason] = frozenset(
    {
        Reason.CONNECT_FAILED,
        Reason.CONNECT_TIMEOUT,
        Reason.REPLICA_RESET,
        Reason.BAD_RESPONSE,
        Reason.TTFT_TIMEOUT,
        Reason.WHOLE_TIMEOUT,
        Reason.TOKEN_GAP_TIMEOUT,
        Reason.EMPTY_STREAM,
        Reason.STREAM_ERROR,
        Reason.SERVER_ERROR,
    }
)

# The results in BLAMED that only show that a replica was silent. A replica that works for other
# requests is not blamed for these results.
SILENT: frozenset[Reason] = frozenset(
    {Reason.TTFT_TIMEOUT, Reason.WHOLE_TIMEOUT, Reason.TOKEN_GAP_TIMEOUT}
)

# After this many failures in a row a replica counts as dead. A request that fails at a dead replica
# may be retried without the retry budget, because overload is not the cause of its failures.
KNOWN_DEAD = 3

# An ejection because of error answers lasts at most this many times `eject_base_s`. A trial is
# cheap: its error comes at once, and another replica gets the request. So the replica returns soon
# after its repair.
ANSWERED_MOST: Final = 2.0

# The smallest share of its weight that a replica gets in its slow start (Envoy: 10 %).
COLDEST = 0.1

# Number of lost hedging races in a row that makes a replica suspect. A healthy replica may lose one
# race by chance, but hardly three in a row.
RACES: Final = 3

# Seconds until a replica that lost a hedging race gets its full share of requests again.
LAG_S: Final = 15.0

# The first and the longest pause, in seconds, for a busy replica that sends no Retry-After.
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0

# A replica that fails is probed after at most FAST_S seconds. While it is down, each failure makes
# the pause longer by the factor SLOWER, up to SLOW_INTERVALS intervals and SLOW_S seconds. So the
# pause is about a sixth of the outage. A repaired replica returns after SLOW_S seconds, jitter and
# the timeout of one probe at the latest.
FAST_S: Final = 1.0
SLOWER: Final = 1.2
SLOW_S: Final = 15.0
SLOW_INTERVALS: Final = 3.0

# The states of a circuit breaker, the best first. The metric shows a state as its index.
BREAKERS: Final = ("closed", "suspect", "half_open", "open")


class Health:
    """The health state of one replica. `now` is in monotonic seconds.

    The results in `table/` (`outcomes.py`, `probe_results.py`, `poll_results.py`), the checks of
    `table/table.py`, and `table/fleet.py` at the end of an attempt write it. `Replica` gives it
    other rules, and the state of a replica that it continues.
    """

    __slots__ = (
        "before_trial",
        "busy_since",
        "busy_until",
        "ejected_at",
        "ejected_by",
        "ejected_until",
        "ejections",
        "ended",
        "failures",
        "half_open",
        "is_new",
        "lost_at",
        "probe_streak",
        "races_lost",
        "refusals",
        "rules",
        "served",
        "suspect_factor",
        "suspect_min_s",
        "suspected_at",
        "up",
        "warm_since",
        "why",
        "why_down",
        "zombie",
    )

    def __init__(self, rules: Rules) -> None:
        self.adopt(rules)
        self.up = True  # Whether the probes show that the replica is up; True without probes.
        self.is_new = False  # True: the first probe has not returned yet; see `await_probe`.
        # Above 0: number of good probes in a row; below 0: number of bad probes in a row.
        self.probe_streak = 0
        # Number of attempts in a row that failed and count against the replica.
        self.failures = 0
        # Number of recent ejections without a long healthy time between them; each doubles the
        # period of the next one.
        self.ejections = 0
        self.ended = 0.0  # Time at which the last ejection ended.
        self.ejected_at = 0.0
        self.ejected_until = 0.0
        self.half_open = False  # True: the ejection is over, and one trial request is allowed.
        # Number of attempts in progress that were sent before the half-open trial began.
        self.before_trial = 0
        self.served = 0  # Number of attempts that succeeded.
        # The kind of the error answers (`ErrorKind`) that caused the last ejection; 0: another
        # cause.
        self.ejected_by = 0
        # When the replica became suspect, by an overdue first token or lost races; `None`: it is
        # not suspect.
        self.suspected_at: float | None = None
        # True: the replica was ejected because it showed no work, so its trial request must show
        # content.
        self.zombie = False
        # When the replica's slow start began; `None`: the slow start is over.
        self.warm_since: float | None = None
        # Number of hedging races that first attempts lost in a row, without content in between.
        self.races_lost = 0
        # When a first attempt last lost a hedging race, whether or not the replica showed work.
        self.lost_at: float | None = None
        self.busy_since = 0.0  # When the replica last answered that it is busy.
        self.busy_until = 0.0  # Until when the replica is avoided because it is busy.
        # Number of pauses in a row without a Retry-After; each pause doubles the next one.
        self.refusals = 0
        self.why = ""  # The reason of the last suspicion or ejection, as text for people.
        # The problem that the last probe found, as text for people; "" if there was no problem.
        self.why_down = ""

    def adopt(self, rules: Rules) -> None:
        """Use these settings from now on. Those that each request reads become attributes."""
        self.rules = rules
        self.suspect_min_s = rules.suspect_min_s
        self.suspect_factor = rules.suspect_factor

    def continues(self, other: Health) -> None:
        """Copy from `other` whether the replica is up. Both objects stand for the same engine."""
        self.up = other.up
        self.is_new = other.is_new
        self.why_down = other.why_down

    @property
    def known_dead(self) -> bool:
        return self.failures >= KNOWN_DEAD or not self.up

    def is_ejected(self, now: float) -> bool:
        return self.ejected_until > now

    def is_suspect(self, now: float) -> bool:
        """Return whether other replicas should be preferred at present.

        A suspicion expires after the length of a first ejection (`eject_base_s`). Otherwise a
        replica whose last attempt has no result, because the client left, would never get another
        request. The next overdue first token still ejects the replica.
        """
        since = self.suspected_at
        return since is not None and now - since < self.rules.eject_base_s

    def is_busy(self, now: float) -> bool:
        """Return whether the replica is still in a pause because it was busy."""
        return self.busy_until > now

    def breaker(self, now: float) -> str:
        """Return the health of the replica as one of the states in `BREAKERS`."""
        if self.is_ejected(now):
            return "open"
        if self.half_open:
            return "half_open"
        return "suspect" if self.is_suspect(now) else "closed"

    def factor(self, now: float) -> float:
        """Return the share of its weight that the replica should get, 0.1 to 1.

        The share is below 1 in the slow start, and for `LAG_S` seconds after a lost hedging race.
        """
        return min(
            _share(self.warm_since, self.rules.slow_start_s, now), _share(self.lost_at, LAG_S, now)
        )

    def await_probe(self) -> None:
        """Mark a replica that was added to a running fleet: it is not up before its first good
        probe."""
        self.up = False
        self.is_new = True

    def probed(self, good: bool, now: float | None = None) -> bool:
        """Record a probe's result.

        Returns True if a new replica's first probe has returned, or if the result changes the
        replica from up to down or back.
        """
        streak = self.probe_streak
        self.probe_streak = max(streak, 0) + 1 if good else min(streak, 0) - 1
        was_new, self.is_new = self.is_new, False
        if was_new and not good:
            return True
        if self.up and self.probe_streak <= -self.rules.fall:
            self.up = False
            return True
        if not self.up and (was_new or self.probe_streak >= self.rules.rise):
            self.up = True
            self.warm_since = now
            return True
        return False

    def pause_s(self, interval_s: float) -> float:
        """Return the time until the replica should be asked again, without jitter.

        `interval_s`: the time between two questions to a replica that is up.
        """
        if self.up and self.probe_streak >= 0:
            return interval_s
        if self.up or self.probe_streak >= 0:  # It begins to fail, or to return.
            return min(interval_s, FAST_S)
        more = min(-self.probe_streak - self.rules.fall, 100)
        pause_s = min(interval_s, FAST_S) * SLOWER ** max(more, 0)
        return min(pause_s, SLOW_S, SLOW_INTERVALS * interval_s)

    def succeeded(
        self, now: float | None = None, *, content: bool = True, dispatched: float | None = None
    ) -> bool:
        """Record that an attempt succeeded. Returns True if this ends a half-open trial.

        `content`: the attempt had to generate content, and did. Any other success does not show
        whether the replica is a zombie. `dispatched`: as in `showed_content`.
        """
        ends = content and self.showed_content(now, dispatched)
        self.took(dispatched)
        self.failures = 0
        if self._is_trial(dispatched) and not self.zombie:
            self._reopen(now)
            return True
        return ends

    def showed_content(self, now: float | None = None, dispatched: float | None = None) -> bool:
        """Record the first content of an attempt. Returns True if that ends a zombie's half-open
        trial.

        Call this method at the first content event, while the attempt continues. `dispatched`: when
        the attempt was sent. An attempt that was sent before the trial began does not decide the
        trial.
        """
        self.suspected_at = None
        self.races_lost = 0
        self.took(dispatched)
        if not (self.zombie and self._is_trial(dispatched)):
            return False
        self.zombie = False
        self.failures = 0
        self._reopen(now)
        return True

    def took(self, dispatched: float | None) -> None:
        """Record that the replica answered a request successfully, so it is not busy.

        `dispatched`: as in `showed_content`.
        """
        if dispatched is None or dispatched >= self.busy_since:
            self.refusals = 0

    def begins_slowly(self, now: float) -> None:
        """Begin a slow start, because the engine has restarted."""
        self.warm_since = now

    def _is_trial(self, dispatched: float | None) -> bool:
        """Return whether an attempt that was sent at `dispatched` decides the current trial."""
        return self.half_open and (dispatched is None or dispatched >= self.ended)

    def overdue(
        self, now: float, rng: Random, may_eject: bool, dispatched: float | None = None
    ) -> bool:
        """Record that the first sign of work for an attempt is overdue. Returns True if the replica
        is ejected for this.

        Call this method once per attempt, and not while the replica shows work for other requests.
        """
        if self.is_ejected(now):
            return False
        was_suspect = self.suspected_at is not None
        self.suspected_at = now
        if (was_suspect or self._is_trial(dispatched)) and may_eject:
            self._eject(now, rng, zombie=True)
            return True
        return False

    def outrun(self, now: float, rng: Random, may_eject: bool) -> bool:
        """Record that an attempt lost the race to its hedged copy. Returns True if the replica is
        ejected for this.

        Three lost races in a row make a replica suspect. Attempts that are then in progress may
        lose as well. So the next lost race counts only after the suspicion has expired.
        """
        self.races_lost += 1
        if self.races_lost < RACES or self.is_ejected(now) or self.is_suspect(now):
            return False
        if may_eject and (self.half_open or self.suspected_at is not None):
            self._eject(now, rng, zombie=True)
            return True
        self.suspected_at = now
        return False

    def lags(self, now: float) -> None:
        """Record that an attempt lost the race to its hedged copy.

        Call this method whether or not the replica shows work.
        """
        self.lost_at = now

    def refused(self, now: float, rng: Random, retry_after_s: float | None) -> bool:
        """Record an answer that the replica is busy. Returns True if a pause begins.

        `retry_after_s`: the pause in seconds that the replica asked for; `None` if it gave none.
        """
        is_busy = self.is_busy(now)
        if retry_after_s is None:
            if is_busy:
                # The attempt was sent before the pause began: one burst causes one pause.
                return False
            retry_after_s = min(PAUSE_S * 2.0 ** min(self.refusals, 30), PAUSE_MAX_S)
            retry_after_s *= rng.uniform(0.8, 1.2)
            self.refusals += 1
        self.busy_since = now
        self.busy_until = max(self.busy_until, now + retry_after_s)
        return not is_busy and self.is_busy(now)

    def failed(
        self,
        now: float,
        rng: Random,
        may_eject: bool,
        *,
        was_overdue: bool = False,
        dispatched: float | None = None,
        kind: int = 0,
    ) -> bool:
        """Record a failed attempt that counts against the replica. Returns True if the replica is
        ejected for this.

        `was_overdue`: `overdue` was called for this attempt. `dispatched`: as in `showed_content`.
        `kind`: the `ErrorKind` if the failure is an error answer.
        """
        if self.half_open and not self._is_trial(dispatched):
            # The attempt was sent before the ejection ended, so its failure shows nothing new.
            return False
        self.failures += 1
        if self.is_ejected(now) or not may_eject:
            return False
        proven = was_overdue and self.suspected_at is not None
        if proven or self.half_open or self.failures >= self.rules.eject_after:
            self._eject(now, rng, zombie=proven or self.zombie, kind=kind)
            return True
        return False

    def contradicted(
        self,
        now: float,
        rng: Random,
        may_eject: bool,
        kind: int,
        dispatched: float,
        *,
        is_enough: bool,
    ) -> bool:
        """Record an error answer to a request that another replica has answered. Returns True if
        the replica is ejected for this.

        `is_enough`: the result of `ErrorAnswers.contradicted`. If error answers of this kind have
        ejected the replica before, one such answer to its trial ejects it again. `dispatched`: as
        in `showed_content`.
        """
        is_enough = is_enough or (self.ejected_by == kind and self._is_trial(dispatched))
        if not (is_enough and may_eject) or self.is_ejected(now):
            return False
        self._eject(now, rng, zombie=False, kind=kind)
        return True

    def _eject(self, now: float, rng: Random, *, zombie: bool, kind: int = 0) -> None:
        rules = self.rules
        if now - self.ended > rules.eject_max_s:
            # The replica was healthy for a long time, so its earlier ejections are forgotten.
            self.ejections = 0
        pause = min(rules.eject_base_s * 2.0 ** min(self.ejections, 30), rules.eject_max_s)
        if kind:
            pause = min(pause, rules.eject_base_s * ANSWERED_MOST)
        self.ejected_at = now
        self.ejected_until = now + pause * rng.uniform(0.8, 1.2)
        self.ejections += 1
        self.half_open = False
        self.suspected_at = None
        self.zombie = zombie
        self.ejected_by = kind

    def _reopen(self, now: float | None) -> None:
        """Close the circuit breaker after a successful trial."""
        self.half_open = False
        if now is not None:
            self.warm_since = now

    def unsuspected(self, worked_at: float) -> bool:
        """Return whether work at `worked_at`, the last sign of work, clears a suspicion."""
        since = self.suspected_at
        if since is None or worked_at <= since:
            return False
        self.suspected_at = None
        self.races_lost = 0
        return True

    def revived(self, now: float, worked_at: float) -> bool:
        """Return whether work at `worked_at` ends a zombie's ejection. The replica is then
        half-open."""
        if not (self.zombie and self.is_ejected(now) and worked_at > self.ejected_at):
            return False
        self.ejections = max(0, self.ejections - 1)  # The ejection was wrong, so it does not count.
        self.ejected_until = 0.0
        self.ended = now
        self.half_open = True
        return True

    def reopened(self, now: float) -> bool:
        """Return whether an ejection has just expired. The replica is then half-open."""
        if self.ejected_until and self.ejected_until <= now:
            self.ejected_until = 0.0
            self.ended = now
            self.half_open = True
            self.warm_since = now
            return True
        return False


def _share(since: float | None, window_s: float, now: float) -> float:
    """Return a share that grows from `COLDEST` to 1 within `window_s` seconds from `since` on."""
    if since is None or window_s <= 0.0:
        return 1.0
    elapsed_s = now - since
    return 1.0 if elapsed_s >= window_s else max(COLDEST, elapsed_s / window_s)
