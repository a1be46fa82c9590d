"""Declares the section `queue`: its order, gates, limits, reservations and preemption."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from router.config.model.setting_types import (
    Bytes,
    Count,
    CountOrNone,
    Frozen,
    MiB,
    Restart,
    SecondsOrOff,
    Share,
)


class QueueGates(Frozen, frozen=True):
    """A replica gets another request while it is below `waiting` or below `prefill_tokens`."""

    waiting: Count = 3  # Number of requests on the replica that wait for their first token.
    # Number of uncached prompt tokens that the replica has to prefill. The default is the usual
    # prefill batch of an engine. 0: only `waiting` is compared.
    prefill_tokens: CountOrNone = 8192
    kv_usage: Share = 0.95  # A replica whose KV cache is fuller than this gets no more requests.
    # A replica whose streams take longer than this per output token gets no more requests. 0: no
    # limit.
    tpot_s: SecondsOrOff = 0.0


class QueueLimits(Frozen, frozen=True):
    """Limits on the whole queue. If a limit is exceeded, a request returns 429: the new request, or
    a request of the flow that uses most of the queue.
    """

    # Maximum number of waiting requests of one flow: an API key, a user of it, or a client address.
    flow: Count = 10_000
    bytes: Bytes = 256 * MiB  # Maximum size of the bodies of all waiting requests.


class Reservations(Frozen, frozen=True):
    """Shares of a pool's tokens that are reserved for priority classes. A pool is the set of the
    replicas that serve the same models.
    """

    enabled: bool = False  # Turn reservations on. `classes.*.share` sets the share of each class.
    strict: bool = False  # Do not let other classes use a share while its class does not need it.


class Preemption(Frozen, frozen=True):
    """Preemption: a request that has generated no content goes back into the queue, so that a
    request of the class `high` or `critical` is sent instead.
    """

    enabled: bool = False  # Turn preemption on.
    # How long an urgent request waits before it preempts another request.
    after_s: SecondsOrOff = 0.2
    # By how many priority classes the urgent request must be more urgent than the preempted one.
    gap: Annotated[int, msgspec.Meta(ge=1, le=4)] = 2
    budget: Share = 0.05  # Maximum ratio of preemptions to requests that are sent to replicas.
    times: Count = 2  # Maximum number of times that one request is preempted.
    # A request that is not streamed is not preempted when this time has passed since it was sent.
    whole_s: SecondsOrOff = 5.0


class Queue(Frozen, frozen=True):
    """The queue, in which requests wait while every replica is busy, and its order."""

    enabled: Annotated[bool, Restart] = True  # Turn the queue on.
    policy: str = "fair"  # The policy that orders the waiting requests.
    options: dict[str, Any] = {}  # The policy's options.
    # How the requests of different classes are ordered. weighted: critical first, then classes in
    # turns by weight. strict: the most urgent class first. together: the policy compares requests
    # of all classes. policy: the policy declares one of these.
    order: Literal["policy", "weighted", "strict", "together"] = "policy"
    # A waiting request becomes more urgent with time, up to the class `high`. This is the time from
    # the class `batch` to the class `normal`. 0: requests do not become more urgent. An older batch
    # request gets a larger share by weight, but the limits of class `batch` apply to it.
    batch_becomes_normal_after_s: SecondsOrOff = 600.0
    # When a replica has room, this many waiting requests are compared by how much of their prefix
    # is in its cache. 0: cached prefixes do not change the order.
    affinity: CountOrNone = 64
    # How often other requests with a longer cached prefix may be sent before a request that is
    # next. Only requests that have waited for at least a quarter of its wait may be sent before it,
    # apart from requests of class batch.
    skips: CountOrNone = 16
    # Use the timeout that SDKs send in a header as the deadline of requests that are not streamed.
    sdk_timeouts: bool = True
    gates: QueueGates = QueueGates()
    limits: QueueLimits = QueueLimits()
    reservations: Reservations = Reservations()
    preemption: Preemption = Preemption()

    @property
    def aging(self) -> float:
        """By how many priority classes per second a waiting request becomes more urgent.

        `normal` is two classes more urgent than `batch`.
        """
        after_s = self.batch_becomes_normal_after_s
        return 2.0 / after_s if after_s else 0.0
