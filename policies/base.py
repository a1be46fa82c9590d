"""The base of every routing policy; `policies/contract.py` has the rules and the registry.

This is a separate module because it is compiled together with the code that calls it for every
request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mypy_extensions import mypyc_attr

from policies.facts import C, Candidate, Context, Pick, RequestView


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutingPolicy:
    """The base class of every routing policy. A policy is a `@dataclass` whose fields are its
    options.

    Values are checked against the fields' types. `__post_init__` makes further checks and raises
    PolicyConfigError. A field that holds state and is not an option has `init=False`.

    In fleets above 64 replicas, `pick` gets a sample of the replicas and all replicas that hold the
    prompt's prefix, unless the class sets `sees_all`. `on_dispatch`, `on_first_token` and
    `on_finish` are called only if the policy overrides them.
    """

    __slots__ = ()

    sees_all: ClassVar[bool] = False

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        raise NotImplementedError

    def closed_to(self, candidate: Candidate, leaving: int = -1) -> int:
        """Return the priority classes whose requests must not be sent to `candidate` now, as bits:
        1 << class.

        The queue calls this after every change of the candidate's facts. The result applies to
        waiting requests and to new ones. If all replicas are closed to a class, its requests wait,
        but not longer than the `starvation` of the class. Requests that the order of the queue
        calls lost count as class batch, and may wait longer. `leaving`: the answer is for the time
        after a request of this class has left the candidate; -1: no request leaves.
        """
        return 0

    def plan_changes(self) -> int:
        """Return how often a call of `closed_to` for one replica has changed the answers for other
        replicas. When this number changes, the queue calls `closed_to` for all replicas again.
        """
        return 0

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        """Note that a request is sent to `candidate`, whether or not this policy chose it.
        `ctx.held` is the same as in `pick`, or a new lookup if this policy did not choose it.
        """

    def on_first_token(
        self, view: RequestView, candidate: Candidate, ttft_s: float, ctx: Context
    ) -> None:
        """Note that the first content event of a request arrived `ttft_s` seconds after its
        dispatch. `ctx.held` is empty.
        """

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        """Note that an attempt ended, successfully or not. `output_tokens`: `None` if unknown.

        A policy that a reload has created also gets the ends of attempts that were sent before.
        """

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        """Note that the fleet now consists of these replicas. The policy must drop its state for
        all other replicas."""
