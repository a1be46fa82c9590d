"""The output tokens that are reserved for a request in the limits and the budget of its tenant.

A request reserves its own limit of output tokens, once for each answer that it asks for. A request
without a limit reserves the largest output of the tenant's recent answers, and at least ASSUMED
tokens for each answer. So a tenant cannot lower what its later requests reserve below their own
limits, or below ASSUMED tokens. Many short answers do not hide a long one, because the largest
output falls slowly.

Pure. Must never: know a tenant's name.
"""

from __future__ import annotations

from typing import Final

ASSUMED: Final = 1024  # The least output that is reserved for an answer without a limit, in tokens.
# The largest recent output falls by this factor with each smaller answer: to a half in 34 answers.
_DECAY: Final = 0.98


class ExpectedOutput:
    """Learns the largest recent output of one tenant."""

    __slots__ = ("largest",)

    def __init__(self) -> None:
        self.largest = 0.0

    def of(self, most: int, answers: int) -> int:
        """Return the output that a request reserves.

        `most`: the limit of output tokens of each answer, -1: none, 0: no token is generated.
        `answers`: the number of answers that the request asks for.
        """
        if most >= 0:
            return most * answers
        return max(ASSUMED * answers, int(self.largest))

    def learn(self, output: int) -> None:
        """Learn from the output of a request that has ended. 0: the request used no tokens."""
        if output > 0:
            self.largest = max(float(output), self.largest * _DECAY)
