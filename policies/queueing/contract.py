"""The contract between an order policy and the queue that drives it.

An order policy says who goes first among those that wait. It is synchronous and deterministic, does
no I/O, knows no clock (`now` is passed in) and no replica. The queue (router/admission) decides
everything else: whether a replica has a place, which class may have it, whose turn a starved class
is, and which of the first few it gives the place to because of what is cached there.

A policy makes *lines*. A line holds tickets of one class that may go to the same replicas; the
queue has several where there are several classes or models, and asks each only for places that its
tickets may have, so that one that is held up holds up nobody else. What is to be fair across lines
(what a tenant was charged) belongs to the policy and is shared by its lines.

The rules, held by one suite over every registered policy:
- every ticket that was pushed comes out once: by `take`, or by `drop` wherever it stands;
- `first` is not None while a line holds somebody, and looking (`first`, `rank`, `band`, `within`)
  changes no order: asked twice at one moment, the answer is the same;
- `band` begins with `first` and holds only tickets of the line, each once and each `within`;
- the same calls give the same order: nothing is drawn, nothing depends on hashing;
- tickets that differ in nothing but their arrival go in the order of their arrival;
- `push`, `drop` and `take` cost O(log n); what is kept stays bounded when 10,000 flows come and go.

Third parties register theirs through the entry-point group `hedgerow.queueing`. A line need not
derive from a class of ours. If a policy raises or answers nonsense, the error is counted, and the
line goes by arrival from then on (`foreign.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from policies.queueing.base import OrderPolicy as OrderPolicy
from policies.queueing.line import Line as Line
from policies.registry import PolicyConfigError as PolicyConfigError
from policies.registry import Registry

QUEUEING: Registry[OrderPolicy] = Registry("queueing", "policies.queueing", "hedgerow.queueing")
P = TypeVar("P", bound=type[OrderPolicy])


def order_policy(name: str) -> Callable[[P], P]:
    """Register an order policy class under `name`; stands above `@dataclass(slots=True)`."""
    return QUEUEING.register(name)


def order_names() -> list[str]:
    """Names to ask `make_order` for, sorted."""
    return QUEUEING.names()


def make_order(name: str, options: Mapping[str, Any] | None = None) -> OrderPolicy:
    """Build a policy from its name and options (a mapping as it stands in the configuration).

    Raises PolicyConfigError for an unknown name, an unknown option or a bad value.
    """
    return QUEUEING.make(name, options)
