"""Learns common engine speeds for replicas that serve the same models; a new replica begins with
them.

Replicas that serve the same models are assumed to have similar engines. A speed consists of
coefficients, for prefill and for decode. Each poll of a replica that has learned its own speed
moves the common coefficients towards the replica's coefficients. A replica that has learned nothing
takes over the common coefficients when it is polled. So this costs no time on the request path.

Must never: change what a replica has learned from its own answers.
"""

from __future__ import annotations

from typing import Final

from router.core.speed_learner import LEAST
from router.fleet.replica import Replica

MODELS_MAX: Final = 256  # Maximum number of model lists with common coefficients.
SMOOTHING: Final = 0.05  # Weight of one poll in the common coefficients.


class ModelSpeeds:
    """The common speed coefficients of replicas that serve the same models."""

    __slots__ = ("_decode", "_prefill")

    def __init__(self) -> None:
        self._prefill: dict[frozenset[str] | None, list[float]] = {}
        self._decode: dict[frozenset[str] | None, list[float]] = {}

    def share(self, replica: Replica) -> None:
        """Move the common coefficients towards those that the replica has learned.

        If the replica has learned none, copy the common coefficients to it.
        """
        learner, models = replica.learned.speeds, replica.models
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
