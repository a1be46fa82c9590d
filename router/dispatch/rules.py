"""The settings that requests read, copied from `Config` into compiled classes.

`Config` is not a compiled class, so its fields are slower to read. The settings are copied once for
a configuration and replaced together on a reload. A request keeps the `Rules` with which it began.

An instance must never be changed after it is made.
"""

from __future__ import annotations

from msgspec.structs import replace

from router.config.model import ClassTimeouts, Config, Timeouts
from router.dispatch.resumption import Resumption
from router.dispatch.slos import class_slos
from router.fleet.engines.common.priority import level_s
from router.fleet.secret import secret_of
from router.intake.private_members import MemberRules
from router.wire.http1.cors import cors_of


def pool_timeouts(config: Config) -> Timeouts:
    """Return the timeouts for the connection pools of replicas.

    Requests of all classes share a pool, so its connect timeout is the longest of all classes. An
    attempt checks a shorter one itself.
    """
    usual = config.timeouts
    own = [settings.timeouts.connect_s for settings in config.classes.by_name.values()]
    return replace(usual, connect_s=max(usual.connect_s, *(value or 0.0 for value in own)))


class Times:
    """The time limits of requests of one class, in seconds; the settings of `timeouts`."""

    __slots__ = (
        "commit_after_s",
        "connect_s",
        "first_token_s",
        "is_own",
        "token_gap_s",
        "total_s",
        "whole_s",
    )

    def __init__(self, usual: Timeouts, pool_s: float, own: ClassTimeouts | None = None) -> None:
        """`pool_s`: the connect timeout of the pools. `own`: the class's own time limits, which
        replace the usual ones."""
        # Seconds after which an early 200 is sent; 0: never.
        self.commit_after_s = usual.commit_after_s
        self.connect_s = usual.connect_s
        self.first_token_s = usual.first_token_s
        self.token_gap_s = usual.token_gap_s
        self.total_s = usual.total_s  # Total timeout of a request in seconds; 0: no limit.
        self.whole_s = usual.whole_s
        if own is not None:
            if own.connect_s is not None:
                self.connect_s = own.connect_s
            if own.first_token_s is not None:
                self.first_token_s = own.first_token_s
            if own.token_gap_s is not None:
                self.token_gap_s = own.token_gap_s
            if own.total_s is not None:
                self.total_s = own.total_s
            if own.whole_s is not None:
                self.whole_s = own.whole_s
        # Whether `connect_s` is shorter than the pool's, so each attempt must check it.
        self.is_own = self.connect_s < pool_s


class ArrivalRules:
    """The settings that are read when a request arrives, and not later."""

    __slots__ = (
        "allowed",
        "authorization",
        "block_bytes",
        "blocks",
        "cors",
        "hedges_choices",
        "isolates_tenants",
        "members",
        "proto",
        "timeouts",
        "uses_sdk_timeouts",
        "via",
    )

    def __init__(self, config: Config, authorization: bytes | None = None) -> None:
        """`authorization`: the header line with the token of `upstream`; `None`: none is set."""
        self.timeouts = config.timeouts
        self.uses_sdk_timeouts = config.queue.sdk_timeouts
        self.authorization = authorization
        self.via = config.via.encode("ascii")
        self.proto = b"https" if config.tls is not None else b"http"
        self.allowed = frozenset(path.encode() for path in config.allow_paths)
        self.members = MemberRules(config.bodies.allow)
        self.cors = cors_of(config.cors)
        prefix = config.prefix
        self.block_bytes = prefix.block_bytes
        self.blocks = prefix.blocks if prefix.enabled else 0
        self.isolates_tenants = prefix.isolate_tenants
        self.hedges_choices = config.hedging.choices


class Rules:
    """The settings that a request reads."""

    __slots__ = (
        "_by_class",
        "asks_for_usage",
        "attempts",
        "backoff_max_s",
        "backoff_s",
        "debug_headers",
        "has_token",
        "level_s",
        "refuses_late",
        "requires_keys",
        "response_hold",
        "resumption",
        "retry_body",
        "secret",
        "slos",
        "steps",
        "times",
        "write_stall_s",
    )

    def __init__(
        self, config: Config, token: str | None = None, resumption: Resumption | None = None
    ) -> None:
        """`token`: the secret of `upstream`; `None`: there is none. `resumption`: the addon for
        broken streams, if it is loaded."""
        limits, timeouts = config.limits, config.timeouts
        pool_s = pool_timeouts(config).connect_s
        # The time limits for classes without their own timeouts.
        self.times = Times(timeouts, pool_s)
        none = ClassTimeouts()
        self._by_class = {
            name: Times(timeouts, pool_s, settings.timeouts)
            for name, settings in config.classes.by_name.items()
            if settings.timeouts != none
        }
        self.slos = class_slos(config.classes)  # The SLOs of each class, by class number.
        # Whether each class refuses requests whose first token would be late, by class number.
        self.refuses_late = [own.late == "refuse" for own in config.classes.by_name.values()]
        self.write_stall_s = timeouts.write_stall_s
        # Maximum bytes of a response that are held before it is relayed.
        self.response_hold = limits.response_hold
        self.retry_body = limits.retry_body  # Maximum bytes of a body that is kept for a retry.
        self.attempts = config.retry.attempts
        # The base of the pause in seconds before a retry on the budget.
        self.backoff_s = config.retry.backoff_s
        self.backoff_max_s = config.retry.backoff_max_s
        self.asks_for_usage = config.usage.inject
        self.debug_headers = config.debug_headers
        self.requires_keys = config.keys.required
        # Whether the replicas get the router's token instead of the client's.
        self.has_token = token is not None
        # The token, which is hidden in answers; `None`: there is none to hide.
        self.secret = None if token is None else secret_of(token)
        # Resumes streams that break; `None`: a broken stream is truncated.
        self.resumption = resumption if config.continuation.enabled else None
        self.steps = config.priority.steps  # Whether further requests of a flow become less urgent.
        # Seconds of waiting that count as much as one priority class, in the priority numbers that
        # are sent to engines.
        self.level_s = level_s(config.queue.aging)

    def times_of(self, priority: str) -> Times:
        """Return the time limits of the class with this name; "" means the class `normal`."""
        if not self._by_class:
            return self.times
        return self._by_class.get(priority or "normal", self.times)
