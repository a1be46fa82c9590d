"""The base of every routing policy; `policies/contract.py` has the rules and the registry.

A file of its own, because it is compiled with those who call it at every request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mypy_extensions import mypyc_attr

from policies.facts import C, Candidate, Context, Pick, RequestView


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutingPolicy:
    """Base of every routing policy: a `@dataclass` whose fields are its options.

    Values are checked against the fields' types; what a type cannot say, `__post_init__` refuses
    with a PolicyConfigError. State that is no option is a field with `init=False`.

    In fleets above 64 replicas `pick` sees a sample and all holders of the prefix, unless the class
    says `sees_all`. Hooks that a policy does not override cost nothing.
    """

    __slots__ = ()

    sees_all: ClassVar[bool] = False

    def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
        raise NotImplementedError

    def on_dispatch(self, view: RequestView, candidate: Candidate, ctx: Context) -> None:
        """The request goes to `candidate`, whoever chose it; `ctx.held` is as it was for `pick`."""

    def on_first_token(
        self, view: RequestView, candidate: Candidate, ttft_s: float, ctx: Context
    ) -> None:
        """Its first content event came `ttft_s` seconds after the dispatch. `ctx.held` is empty."""

    def on_finish(
        self, view: RequestView, candidate: Candidate, output_tokens: int | None, ctx: Context
    ) -> None:
        """An attempt ended, well or not; None: how many tokens came is not known."""

    def on_fleet_change(self, replica_ids: frozenset[str]) -> None:
        """The replicas that exist now; drop whatever is kept for others."""
