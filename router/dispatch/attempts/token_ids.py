"""The interface of an addon that knows the token IDs of prompts (`addons/kv_events`).

A request waits for its token IDs before a replica is chosen for it, for a limited time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from policies.allowed import Allowed
from router.intake.fields import Fields


class Question(Protocol):
    """A request's question for its token IDs."""

    is_done: bool

    @property
    def chains(self) -> object:
        """The answer of a question that is done; `None`: the token IDs are unknown."""

    def cancel(self) -> None:
        """Cancel the question. May be called at any time, and repeatedly."""


class TokenIds(Protocol):
    def ask(
        self,
        kind: str,
        fields: Fields,
        body: list[bytes],
        allowed: Allowed | None,
        done: Callable[[object], None],
    ) -> Question | None:
        """Ask for the token IDs of a request's prompt.

        `allowed`: the regions to which the prompt may be sent; `None`: all regions. Returns `None`
        if the token IDs cannot be determined. `done` is called later with the answer, unless the
        returned question is done already or is cancelled.
        """
