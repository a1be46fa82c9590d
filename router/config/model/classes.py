"""Declares the section `classes`: SLOs, weights and limits of each priority class."""

from __future__ import annotations

from typing import Literal

from router.config.model.setting_types import (
    Amount,
    Count,
    CountOrNone,
    Frozen,
    Seconds,
    SecondsOrOff,
    Share,
    Weight,
)


class ClassTimeouts(Frozen, frozen=True):
    """Timeouts of one priority class. Unset: the value in `timeouts` is used."""

    connect_s: Seconds | None = None  # Maximum time to open a connection to a replica.
    # Maximum time from sending a request to a replica until the first content of its stream.
    first_token_s: Seconds | None = None
    # Maximum time from sending a request to a replica until the end of its response, if the
    # response is not a stream.
    whole_s: Seconds | None = None
    # Maximum time between two pieces of a response. It counts from the replica's last sign of work,
    # and a working replica may be silent for as long as `whole`.
    token_gap_s: Seconds | None = None
    # Maximum time of a request from its arrival to the end of its response. 0: no limit.
    total_s: SecondsOrOff | None = None


class ClassSettings(Frozen, frozen=True):
    """The settings of one priority class.

    If `waiting`, `prefill_tokens`, `kv_usage` or `tpot_s` is unset, the value in `queue.gates` is
    used.
    """

    # Classes below `critical` send waiting requests in turns, in proportion to this weight. The
    # weight is also the worth of a token of this class: in the order `slide`, and in the gain that
    # /metrics reports.
    weight: Weight = 4.0
    # SLO for the time from arrival to first token. It is not a timeout: policies with deadlines
    # order requests by it, and /metrics shows how many requests meet it. An API key or a client can
    # set another SLO. A client's SLO cannot be below the SLO of the next more urgent class.
    ttft_slo_s: Seconds = 2.0
    # SLO for the time per output token. Token n is due at `ttft_slo` + (n - 1) x `tpot_slo`.
    tpot_slo_s: Seconds = 0.1
    # The cost of a request of this class is multiplied by this factor.
    price_factor: Amount = 1.0
    # What happens to a stream that cannot meet its TTFT SLO or the client's deadline, because even
    # the lower bound of the estimated time to first token is too late. refuse: it returns 429 at
    # once. serve: it is served late.
    late: Literal["serve", "refuse"] = "serve"
    # Maximum number of waiting requests of this class. If there are more, a request returns 429.
    depth: Count = 10_000
    # Maximum time in the queue. After it, the request returns 503. 0: no maximum.
    wait_s: SecondsOrOff = 0.0
    # Maximum time in the queue while no replica is up. After it, the request returns 503.
    absent_s: SecondsOrOff = 10.0
    # Every request of this class is sent to a replica within this time, if a replica is up and the
    # fleet is not overloaded.
    starvation_s: Seconds = 60.0
    # A replica on which this many requests wait for their first token gets no more requests of this
    # class.
    waiting: Count | None = None
    # A replica that has this many uncached prompt tokens to prefill gets no more requests of this
    # class.
    prefill_tokens: CountOrNone | None = None
    # A replica whose KV cache is fuller than this gets no more requests of this class.
    kv_usage: Share | None = None
    # A replica whose streams take longer than this per output token gets no more requests of this
    # class. 0: no limit.
    tpot_s: SecondsOrOff | None = None
    # Send requests of this class only to replicas on which no other request runs.
    idle: bool = False
    # Share of the pool's tokens that is reserved for this class if `queue.reservations` are on.
    share: Share = 0.4
    timeouts: ClassTimeouts = ClassTimeouts()


class CriticalClass(ClassSettings, frozen=True):
    weight: Weight = 16.0
    ttft_slo_s: Seconds = 0.25
    tpot_slo_s: Seconds = 0.05
    depth: Count = 1000
    starvation_s: Seconds = 5.0
    # A replica on which this many requests wait for their first token gets no more critical
    # requests. The value is higher than for other classes, whose requests then leave a place free.
    waiting: Count | None = 4
    kv_usage: Share | None = 1.0
    share: Share = 0.1


class HighClass(ClassSettings, frozen=True):
    weight: Weight = 8.0
    ttft_slo_s: Seconds = 0.5
    tpot_slo_s: Seconds = 0.05
    depth: Count = 5000
    starvation_s: Seconds = 15.0
    share: Share = 0.3


class LowClass(ClassSettings, frozen=True):
    weight: Weight = 2.0
    ttft_slo_s: Seconds = 10.0
    tpot_slo_s: Seconds = 0.2
    starvation_s: Seconds = 300.0
    kv_usage: Share | None = 0.9
    share: Share = 0.15


class BatchClass(ClassSettings, frozen=True):
    weight: Weight = 1.0
    ttft_slo_s: Seconds = 600.0
    tpot_slo_s: Seconds = 1.0
    depth: Count = 100_000
    # Maximum time in the queue while no replica is up. It is longer than for other classes, because
    # a restart that loads a large model takes minutes.
    absent_s: SecondsOrOff = 600.0
    starvation_s: Seconds = 1800.0
    # A replica on which this many requests wait for their first token gets no batch requests. With
    # many running requests, the limit is one for each 48 of them, up to that of `queue.gates`. The
    # limit is also that of `queue.gates` in three cases: a request of another class waits in the
    # queue for the same place, so that the place is given by weight; batch has less than its share
    # by weight; the oldest batch request has waited for a quarter of `batch_becomes_normal_after`.
    # With `prefill_tokens` above 0, many batch requests at once go to replicas with free slots.
    waiting: Count | None = 1
    prefill_tokens: CountOrNone | None = 0
    # Maximum share of the slots of a replica that batch requests of this router use, if the number
    # of slots is reported or learned; at least one slot. `hedgerow plan` prints the share that
    # leaves room for the forecast demand.
    slots: Share = 1.0
    kv_usage: Share | None = 0.85
    share: Share = 0.05


class Classes(Frozen, frozen=True):
    """The settings of each priority class."""

    critical: CriticalClass = CriticalClass()
    high: HighClass = HighClass()
    normal: ClassSettings = ClassSettings()
    low: LowClass = LowClass()
    batch: BatchClass = BatchClass()

    @property
    def by_name(self) -> dict[str, ClassSettings]:
        """The settings of each priority class by its name, the most urgent class first."""
        return {
            "critical": self.critical,
            "high": self.high,
            "normal": self.normal,
            "low": self.low,
            "batch": self.batch,
        }
