"""Is a replica fit to be given requests? Two independent opinions, both pure.

*Active*: a probe now and then; `rise` good ones in a row bring a replica up, `fall` bad ones take
it down. *Passive*: requests that fail in a row eject it for a while that doubles each time (Envoy's
outlier detection); when the while is over one trial request decides (half-open). A good probe never
ends an ejection: `/health` answers 200 while generation hangs.

429, other 4xx and what the client caused never count: they say nothing about the replica.
"""

from __future__ import annotations

from random import Random

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
        Reason.TOKEN_GAP_TIMEOUT,
        Reason.EMPTY_STREAM,
        Reason.STREAM_ERROR,
        Reason.SERVER_ERROR,
    }
)

# After this many failures in a row a replica is taken for dead: what fails there may be sent again
# without asking the retry budget, because it is not overload that makes it fail.
KNOWN_DEAD = 3


class Health:
    """The state of one replica's fitness. `now` is monotonic seconds."""

    __slots__ = (
        "ejected_until",
        "ejections",
        "ended",
        "failures",
        "half_open",
        "probe_streak",
        "rules",
        "up",
    )

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.up = True  # by the probes; a new replica is trusted until one fails
        self.probe_streak = 0  # > 0: good probes in a row, < 0: bad ones
        self.failures = 0  # attempts in a row that spoke against it
        self.ejections = 0  # without a long time between them, for the doubling
        self.ended = 0.0  # when the last one ran out
        self.ejected_until = 0.0
        self.half_open = False  # one trial request is allowed

    @property
    def known_dead(self) -> bool:
        return self.failures >= KNOWN_DEAD or not self.up

    def is_ejected(self, now: float) -> bool:
        return self.ejected_until > now

    def probed(self, good: bool) -> bool:
        """Take a probe's result; True if the replica changed between up and down."""
        streak = self.probe_streak
        self.probe_streak = max(streak, 0) + 1 if good else min(streak, 0) - 1
        if self.up and self.probe_streak <= -self.rules.fall:
            self.up = False
            return True
        if not self.up and self.probe_streak >= self.rules.rise:
            self.up = True
            return True
        return False

    def succeeded(self) -> bool:
        """An attempt went well; True if that ends a half-open trial."""
        self.failures = 0
        if self.half_open:
            self.half_open = False
            return True
        return False

    def failed(self, now: float, rng: Random, may_eject: bool) -> bool:
        """An attempt spoke against the replica; True if it is ejected for that, now."""
        self.failures += 1
        if self.is_ejected(now) or not may_eject:
            return False
        if self.half_open or self.failures >= self.rules.eject_after:
            rules = self.rules
            if now - self.ended > rules.eject_max_s:
                self.ejections = 0  # it was well for long; one that flaps is not let off so soon
            pause = min(rules.eject_base_s * 2.0 ** min(self.ejections, 30), rules.eject_max_s)
            self.ejected_until = now + pause * rng.uniform(0.8, 1.2)
            self.ejections += 1
            self.half_open = False
            return True
        return False

    def reopened(self, now: float) -> bool:
        """Whether an ejection has just run out: the replica is half-open from here."""
        if self.ejected_until and self.ejected_until <= now:
            self.ejected_until = 0.0
            self.ended = now
            self.half_open = True
            return True
        return False
