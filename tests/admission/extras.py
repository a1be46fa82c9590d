"""Reads what the extras of a queue count. An extra that is switched off counts nothing."""

from typing import Any

from policies.queueing.ticket import CLASSES
from router.admission.queue_state import QueueState


def reservations(queue: QueueState) -> Any:
    return queue._extras._by_name.get("reservations")


def preemption(queue: QueueState) -> Any:
    return queue._extras._by_name.get("preemption")


def used_tokens(queue: QueueState, urgency: int) -> int:
    extra = reservations(queue)
    return 0 if extra is None else int(extra.demands.used[urgency])


def all_used(queue: QueueState) -> list[int]:
    return [used_tokens(queue, urgency) for urgency in range(CLASSES)]


def held_tokens(queue: QueueState, urgency: int) -> float:
    extra = reservations(queue)
    return 0.0 if extra is None else float(extra.held(urgency))


def listed(queue: QueueState) -> int:
    """The running requests that may be preempted."""
    extra = preemption(queue)
    return 0 if extra is None else int(extra.listed())


def asked(queue: QueueState) -> int:
    """The requests that are being preempted."""
    extra = preemption(queue)
    return 0 if extra is None else int(extra.asked())
