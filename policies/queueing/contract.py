"""The contract between an order policy and the queue that drives it.

An order policy decides which waiting ticket goes first. It is synchronous and deterministic, and it
does no I/O. It reads no clock (`now` is passed in) and does not see replicas. The queue
(router/admission) decides everything else: whether a replica has free capacity, which class may use
the capacity, when a starved class has its turn, and which of the first few tickets is sent because
its prefix is cached at the replica.

A policy creates *lines*. A line (an ordered queue) orders the tickets of one class that may go to
the same replicas. The queue has several lines if there are several classes or models. The queue
asks a line for a ticket only when one of the line's replicas is free, so a line whose replicas are
busy does not block other lines. State that is shared between lines (such as the charges of a
tenant) belongs to the policy.

One test suite checks these rules for every registered policy:
- every pushed ticket is removed once: by `take`, or by `drop` at any position;
- `first` is not `None` while the line holds a ticket; `first`, `rank`, `band` and `within` change
  no order, so two calls at the same time give the same result;
- `band` begins with `first` and has only tickets of the line, each one once; `within` is true for
  each of them;
- the same calls give the same order: nothing depends on random numbers or hashing;
- tickets that differ only in their arrival go in the order of their arrival;
- `push`, `drop` and `take` cost O(log n); memory stays bounded when 10,000 flows come and go.

Third parties register policies through the entry-point group `hedgerow.queueing`. A line need not
derive from a class of this project. If a policy raises or returns an invalid value, the error is
counted, and the line uses the order of arrival from then on (`foreign.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from policies.queueing.base import OrderPolicy as OrderPolicy
from policies.queueing.ticket_queue import TicketQueue as TicketQueue
from policies.registry import PolicyConfigError as PolicyConfigError, Registry

QUEUEING: Registry[OrderPolicy] = Registry("queueing", "policies.queueing", "hedgerow.queueing")
P = TypeVar("P", bound=type[OrderPolicy])


def order_policy(name: str) -> Callable[[P], P]:
    """Register an order policy under `name`. The decorator goes above `@dataclass(slots=True)`."""
    return QUEUEING.register(name)


def order_names() -> list[str]:
    """The names that `make_order` accepts, sorted."""
    return QUEUEING.names()


def make_order(name: str, options: Mapping[str, Any] | None = None) -> OrderPolicy:
    """Build a policy from its name and its options, a mapping as in the configuration file.

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return QUEUEING.make(name, options)
