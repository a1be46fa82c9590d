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
    """Base of every routing policy: a `@dataclass` whose fields are its options.

    Values are checked against the fields' types. `__post_init__` makes further checks and raises
    PolicyConfigError. A field that holds state and is not an option has `init=False`.

    In fleets above 64 replicas, `pick` gets a sample and all holders of the prefix, unless the
    class sets `sees_all`. Hooks that a policy does not override cost nothing.
    """

    __slots__ = ()

    sees_all: ClassVar[bool] = False

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        raise NotImplementedError

    def closed_to(self, candidate: Candidate, leaving: int = -1) -> int:
        """The classes of which the queue sends `candidate` nothing more now, as bits: 1 << class.

        Asked after every change of the candidate's facts, for requests that wait and for new ones.
        Classes of which all replicas are closed wait, but not longer than their `starvation`.
        `leaving`: the answer is for the time after a request of this class has left the candidate;
        -1: no request leaves.
        """
        return 0

    def plan_changes(self) -> int:
        """How often the answers of `closed_to` have changed for other replicas than the one asked
        about. After a change the queue asks about all replicas again.
        """
        return 0

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        """A request is sent to `candidate`, chosen by this policy or not. `ctx.held`: as in
        `pick`.
        """

    def on_first_token(
        self, view: RequestView, candidate: Candidate, ttft_s: float, ctx: Context
    ) -> None:
        """The first content event of a request arrived `ttft_s` seconds after its dispatch.
        `ctx.held` is empty.
        """

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        """An attempt ended, successfully or not. `output_tokens`: `None` if unknown."""

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        """The fleet changed to these replicas. The policy must drop its state for all others."""
