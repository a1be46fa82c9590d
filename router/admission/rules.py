"""The configuration of one queue as plain numbers, with one object for each class.

All parts of a queue share one object of `Rules`. A reload changes this object, so the parts read a
rule when they need it, and keep no copy.

Must never: be changed by anything but a reload.
"""

from __future__ import annotations

from math import inf
from typing import Final

from policies.queueing.base import OrderPolicy
from policies.queueing.contract import make_order
from policies.queueing.ticket import CLASSES
from router.config.model import BatchClass, ClassSettings, Config, QueueGates
from router.core.urgency import BATCH, HIGH

WEIGHTED: Final = 0  # Class critical goes first, then the other classes by weight.
STRICT: Final = 1  # The most urgent class goes first.
TOGETHER: Final = 2  # The order policy compares requests of all classes.


class ClassRules:
    """The rules of one class."""

    __slots__ = (
        "absent_s",
        "bound_s",
        "depth",
        "idle",
        "is_batch",
        "is_urgent",
        "kv_usage",
        "prefill_tokens",
        "promote_s",
        "refuses_late",
        "share",
        "slots",
        "tpot_s",
        "ttft_slo_s",
        "turn_waiting",
        "wait_s",
        "waiting",
        "weight",
    )

    def __init__(self, gates: QueueGates, own: ClassSettings, urgency: int) -> None:
        self.is_batch = urgency == BATCH
        self.is_urgent = urgency <= HIGH
        self.ttft_slo_s = own.ttft_slo_s  # The goal for the time to the first content.
        self.weight = own.weight
        self.depth = own.depth
        self.wait_s = own.wait_s if own.wait_s > 0.0 else inf
        self.absent_s = own.absent_s
        self.bound_s = own.starvation_s
        # Tickets are promoted before their starvation bound, which leaves time to serve earlier
        # tickets first.
        self.promote_s = PROMOTED * own.starvation_s
        self.waiting = gates.waiting if own.waiting is None else own.waiting
        # With this many waiting requests, a replica takes no request of the class whose turn it is.
        self.turn_waiting = max(self.waiting, gates.waiting)
        tokens = gates.prefill_tokens if own.prefill_tokens is None else own.prefill_tokens
        self.prefill_tokens = float(tokens)
        self.kv_usage = gates.kv_usage if own.kv_usage is None else own.kv_usage
        tpot_s = gates.tpot_s if own.tpot_s is None else own.tpot_s
        self.tpot_s = tpot_s if tpot_s > 0.0 else inf
        self.idle = own.idle
        self.refuses_late = own.late == "refuse"
        self.share = own.share  # The share of the token capacity; only an extra uses it.
        # Maximum share of a replica's slots that the class uses; 1: no maximum.
        self.slots = own.slots if isinstance(own, BatchClass) else 1.0


PROMOTED: Final = 0.75  # Share of the starvation bound after which a ticket is promoted.


class Rules:
    """The rules of one queue."""

    __slots__ = (
        "affinity",
        "aging",
        "bytes",
        "classes",
        "config",
        "flow_depth",
        "mode",
        "order",
        "skips",
    )

    def __init__(self, config: Config) -> None:
        """Read `config.queue` and `config.classes`, and no other section. Raises
        PolicyConfigError."""
        self.order: OrderPolicy = make_order(config.queue.policy, config.queue.options)
        self._read(config)

    def adopt(self, config: Config, made: OrderPolicy | None = None) -> bool:
        """Apply another configuration. Returns whether it has another order policy.

        `made`: the order policy that `config` names, created for this queue. Without it, the policy
        is created here. If that fails, this raises PolicyConfigError and changes nothing.
        """
        before, after = self.config.queue, config.queue
        is_other = (after.policy, after.options) != (before.policy, before.options)
        if is_other:
            self.order = make_order(after.policy, after.options) if made is None else made
        self._read(config)
        return is_other

    def _read(self, config: Config) -> None:
        self.config = config
        queue = config.queue
        self.classes = [
            ClassRules(queue.gates, own, urgency)
            for urgency, own in enumerate(config.classes.by_name.values())
        ]
        assert len(self.classes) == CLASSES
        modes = {"weighted": WEIGHTED, "strict": STRICT, "together": TOGETHER}
        self.mode: int = modes.get(queue.order, WEIGHTED if self.order.by_class else TOGETHER)
        self.aging = queue.aging
        self.affinity = queue.affinity
        self.skips = queue.skips
        limits = queue.limits
        self.flow_depth = limits.flow
        self.bytes = limits.bytes

    @property
    def bounds_pace(self) -> bool:
        """Whether any class has a limit of the time per output token, which closes slower replicas
        to it."""
        return any(own.tpot_s < inf for own in self.classes)

    def aged(self, level: float, age_s: float) -> float:
        """Return the level of a request (its urgency after aging) after a wait of `age_s` seconds.
        Age never makes a request more urgent than class high."""
        if level <= HIGH:
            return level
        return max(float(HIGH), level - self.aging * age_s)
