"""Is a replica fit to be given requests? Two independent opinions, both pure.

*Active*: a probe now and then; `rise` good ones in a row bring a replica up, `fall` bad ones take
it down. A replica that waits for its first probe (`await_probe`) is not up: the first probe decides
alone. *Passive*: requests that fail in a row eject it for a while that doubles each time (Envoy's
outlier detection); when the while is over one trial request decides (half-open). A good probe never
ends an ejection: `/health` answers 200 while generation hangs.

429, other 4xx and what the client caused never count: they say nothing about the replica.

*Busy*: a replica that answers 429 or 503 is spared for as long as it asks (`Retry-After`), or for a
short while that doubles each time. That is no opinion of its fitness: nothing is ejected for it.

*Zombies* answer probes, accept requests and generate nothing. A busy replica is no zombie: the
caller counts an overdue token, a timeout or a lost race only while the replica shows no work for
any request (`core/progress.py`). The first token that is overdue makes a replica suspect; a second
one, or the failure of the attempt that was overdue, ejects it. A good probe does not clear it, nor
does an answer that generates nothing; work does. Where copies race (hedging), an attempt rarely
lives until it is overdue. So races lost in a row by the first attempt, without any work in between,
make a replica suspect, too; one more that is lost after the suspicion has expired ejects it.

An ejected zombie that shows work is evidently alive: its ejection ends at once (`revived`).

*Half-open*: one attempt at a time is the trial, besides those that were under way when the ejection
ended. Only an attempt that was sent since then decides.

All of it in one word, as a circuit breaker's (`breaker`): closed, suspect, open or half_open.

*Slow start*: a replica that came up, or back from an ejection, is cold; `factor` is the share of
its weight that it should get (Envoy's slow start, aggression 1).

Must never: look at a clock, or draw a random number that was not passed in.
"""

from __future__ import annotations

from random import Random
from typing import Final

from router.config.model import Health as Rules
from router.core.errors import Reason

# Ends of an attempt that speak against the replica.
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

# Of those, ends that only say that the replica was silent: a busy one is not blamed for them.
SILENT: frozenset[Reason] = frozenset(
    {Reason.TTFT_TIMEOUT, Reason.WHOLE_TIMEOUT, Reason.TOKEN_GAP_TIMEOUT}
)

# After this many failures in a row a replica is taken for dead: what fails there may be sent again
# without asking the retry budget, because it is not overload that makes it fail.
KNOWN_DEAD = 3

COLDEST = 0.1  # the least share of its weight that a replica gets (Envoy: 10 %)

# Lost by chance, a race is lost against a replica that is as good; three in a row hardly are.
RACES: Final = 3

# How long a replica is spared that says it is busy and not for how long: the first time, at most.
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0

# What a circuit breaker can be, the better the earlier; their places are the metric's numbers.
BREAKERS: Final = ("closed", "suspect", "half_open", "open")


class Health:
    """The state of one replica's fitness. `now` is monotonic seconds."""

    __slots__ = (
        "busy_since",
        "busy_until",
        "ejected_at",
        "ejected_until",
        "ejections",
        "ended",
        "failures",
        "half_open",
        "is_new",
        "probe_streak",
        "races_lost",
        "refusals",
        "rules",
        "suspected_at",
        "up",
        "warm_since",
        "why",
        "why_down",
        "zombie",
    )

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.up = True  # by the probes; a replica without probes is up
        self.is_new = False  # no probe has come back yet; see `await_probe`
        self.probe_streak = 0  # > 0: good probes in a row, < 0: bad ones
        self.failures = 0  # attempts in a row that spoke against it
        self.ejections = 0  # without a long time between them, for the doubling
        self.ended = 0.0  # when the last one ended
        self.ejected_at = 0.0
        self.ejected_until = 0.0
        self.half_open = False  # one trial request is allowed
        self.suspected_at: float | None = None  # a first token is overdue; work clears it
        self.zombie = False  # ejected for that: its trial has to show content
        self.warm_since: float | None = None  # when its slow start began; None: it is warm
        self.races_lost = 0  # in a row by attempts that were there first, and no content since
        self.busy_since = 0.0  # when it was last found to be busy, ...
        self.busy_until = 0.0  # ... and until when it is spared for that
        self.refusals = 0  # pauses in a row of a length that was ours to choose, for the doubling
        self.why = ""  # the reason of the last suspicion or ejection, for people ...
        self.why_down = ""  # ... and what the last probe found wrong; "": nothing

    @property
    def known_dead(self) -> bool:
        return self.failures >= KNOWN_DEAD or not self.up

    def is_ejected(self, now: float) -> bool:
        return self.ejected_until > now

    def is_suspect(self, now: float) -> bool:
        """Whether others should be preferred for now.

        Suspicion wears off as long as an ejection lasts at first: if nothing came back in that time
        (the client left), somebody has to try. The next overdue token ejects all the same.
        """
        since = self.suspected_at
        return since is not None and now - since < self.rules.eject_base_s

    def is_busy(self, now: float) -> bool:
        """Whether it said that it takes nothing for now."""
        return self.busy_until > now

    def breaker(self, now: float) -> str:
        """What it amounts to, one of `BREAKERS`."""
        if self.is_ejected(now):
            return "open"
        if self.half_open:
            return "half_open"
        return "suspect" if self.is_suspect(now) else "closed"

    def factor(self, now: float) -> float:
        """The share of its weight that the replica should get: from 0.1 to 1 in its slow start."""
        if self.warm_since is None:
            return 1.0
        window_s = self.rules.slow_start_s
        elapsed_s = now - self.warm_since
        if window_s <= 0 or elapsed_s >= window_s:
            return 1.0
        return max(COLDEST, elapsed_s / window_s)

    def await_probe(self) -> None:
        """The replica is added to a running fleet: it is not up before its first good probe."""
        self.up = False
        self.is_new = True

    def probed(self, good: bool, now: float | None = None) -> bool:
        """Take a probe's result; True if the replica is found up or down now and was not before."""
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

    def succeeded(
        self, now: float | None = None, *, content: bool = True, dispatched: float | None = None
    ) -> bool:
        """An attempt went well; True if that ends a half-open trial.

        `content`: it was asked to generate something, and did. Anything else proves nothing of a
        replica that is taken for one that generates nothing. `dispatched`: as in `showed_content`.
        """
        ends = content and self.showed_content(now, dispatched)
        self.took(dispatched)
        self.failures = 0
        if self._is_trial(dispatched) and not self.zombie:
            self._reopen(now)
            return True
        return ends

    def showed_content(self, now: float | None = None, dispatched: float | None = None) -> bool:
        """An attempt showed its first content; True if that ends the half-open trial of a zombie.

        Call it at the first content event, while the attempt goes on. `dispatched`: when the
        attempt was; what was sent before the trial is no trial.
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
        """It has taken a request, and answered it well; `dispatched` as in `showed_content`."""
        if dispatched is None or dispatched >= self.busy_since:
            self.refusals = 0

    def begins_slowly(self, now: float) -> None:
        """It is up and cold: its engine was started anew, or it has just been added."""
        self.warm_since = now

    def _is_trial(self, dispatched: float | None) -> bool:
        """Whether an attempt that was dispatched then decides a trial that is under way."""
        return self.half_open and (dispatched is None or dispatched >= self.ended)

    def overdue(
        self, now: float, rng: Random, may_eject: bool, dispatched: float | None = None
    ) -> bool:
        """An attempt's first token is overdue; True if the replica is ejected for that, now.

        Call it once per attempt, and not while the replica shows work for other requests.
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
        """An attempt that was there first lost to its copy; True if that ejects the replica, now.

        Three in a row make it suspect. Those that were under way by then may lose as well, so the
        next one counts only once the suspicion has worn off: it was tried again, for nothing.
        """
        self.races_lost += 1
        if self.races_lost < RACES or self.is_ejected(now) or self.is_suspect(now):
            return False
        if may_eject and (self.half_open or self.suspected_at is not None):
            self._eject(now, rng, zombie=True)
            return True
        self.suspected_at = now
        return False

    def refused(self, now: float, rng: Random, told_s: float | None) -> bool:
        """It answered that it is busy; True if that begins a pause.

        `told_s`: for how long, by its own word; None: it does not say.
        """
        is_busy = self.is_busy(now)
        if told_s is None:
            if is_busy:
                return False  # sent before it was found to be: one burst, one pause
            told_s = min(PAUSE_S * 2.0 ** min(self.refusals, 30), PAUSE_MAX_S)
            told_s *= rng.uniform(0.8, 1.2)
            self.refusals += 1
        self.busy_since = now
        self.busy_until = max(self.busy_until, now + told_s)
        return not is_busy and self.is_busy(now)

    def failed(
        self,
        now: float,
        rng: Random,
        may_eject: bool,
        *,
        was_overdue: bool = False,
        dispatched: float | None = None,
    ) -> bool:
        """An attempt spoke against the replica; True if it is ejected for that, now.

        `was_overdue`: it is one that `overdue` was told of; `dispatched` as in `showed_content`.
        """
        if self.half_open and not self._is_trial(dispatched):
            return False  # the ejection was for such failures
        self.failures += 1
        if self.is_ejected(now) or not may_eject:
            return False
        proven = was_overdue and self.suspected_at is not None
        if proven or self.half_open or self.failures >= self.rules.eject_after:
            self._eject(now, rng, zombie=proven or self.zombie)
            return True
        return False

    def _eject(self, now: float, rng: Random, *, zombie: bool) -> None:
        rules = self.rules
        if now - self.ended > rules.eject_max_s:
            self.ejections = 0  # it was well for long; one that flaps is not let off so soon
        pause = min(rules.eject_base_s * 2.0 ** min(self.ejections, 30), rules.eject_max_s)
        self.ejected_at = now
        self.ejected_until = now + pause * rng.uniform(0.8, 1.2)
        self.ejections += 1
        self.half_open = False
        self.suspected_at = None
        self.zombie = zombie

    def _reopen(self, now: float | None) -> None:
        """A trial went well."""
        self.half_open = False
        if now is not None:
            self.warm_since = now

    def unsuspected(self, worked_at: float) -> bool:
        """The replica last showed work then; True if that clears a suspicion."""
        since = self.suspected_at
        if since is None or worked_at <= since:
            return False
        self.suspected_at = None
        self.races_lost = 0
        return True

    def revived(self, now: float, worked_at: float) -> bool:
        """The replica last showed work then; True if that ends an ejection for showing none. The
        replica is half-open from here."""
        if not (self.zombie and self.is_ejected(now) and worked_at > self.ejected_at):
            return False
        self.ejections = max(0, self.ejections - 1)  # the ejection was a mistake
        self.ejected_until = 0.0
        self.ended = now
        self.half_open = True
        return True

    def reopened(self, now: float) -> bool:
        """Whether an ejection has just run out: the replica is half-open from here."""
        if self.ejected_until and self.ejected_until <= now:
            self.ejected_until = 0.0
            self.ended = now
            self.half_open = True
            self.warm_since = now
            return True
        return False
