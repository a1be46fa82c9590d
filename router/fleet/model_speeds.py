"""The learned speeds of engines, by the models that they serve: a new replica begins with these.

Replicas that serve the same models are assumed to have similar engines. Each poll of a replica that
has learned its own speed moves the common coefficients towards it. A replica that has learned
nothing takes them over at its poll. So the request path does no work for this.

Must never: change what a replica has learned from its own answers.
"""

from __future__ import annotations

from typing import Final

from router.core.speed_learner import LEAST
from router.fleet.replica import Replica

MODELS_MAX: Final = 256  # Maximum number of model lists with common coefficients.
SMOOTHING: Final = 0.05  # Weight of one poll.


class ModelSpeeds:
    """The common coefficients of the replicas of each model."""

    __slots__ = ("_decode", "_prefill")

    def __init__(self) -> None:
        self._prefill: dict[frozenset[str] | None, list[float]] = {}
        self._decode: dict[frozenset[str] | None, list[float]] = {}

    def share(self, replica: Replica) -> None:
        """Let a replica teach what it has learned, or take over what the others have taught."""
        learner, models = replica.speed_learner, replica.models
        if learner.prefill.samples >= LEAST:
            _blend(self._prefill, models, learner.prefill.coefficients())
        if learner.decode.samples >= LEAST:
            _blend(self._decode, models, learner.decode.coefficients())
        if not learner.prefill.samples or not learner.decode.samples:
            learner.start(self._prefill.get(models, []), self._decode.get(models, []))


def _blend(
    common: dict[frozenset[str] | None, list[float]],
    models: frozenset[str] | None,
    found: list[float],
) -> None:
    known = common.get(models)
    if known is not None:
        for index in range(len(known)):
            known[index] += SMOOTHING * (found[index] - known[index])
        return
    if len(common) >= MODELS_MAX:
        del common[next(iter(common))]
    common[models] = found
