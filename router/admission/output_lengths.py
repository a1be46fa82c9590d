"""How long the next answer of a flow will be: as its last ones were (VTC predicts from five).

Flows that nobody has heard of are like the mean of all. The least recently heard of is forgotten
first, so that names cost no memory without end.

Must never: believe one answer.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.flow_identity import FlowIdentity

_SHARE: Final = 0.2  # of a new answer in the mean of its flow ...
_SHARE_ALL: Final = 0.02  # ... and of all
_FIRST: Final = 200.0
FLOWS_MAX: Final = 4096


class OutputPredictor:
    """Means of output tokens, by flow."""

    __slots__ = ("_all", "_means")

    def __init__(self) -> None:
        self._all = _FIRST
        self._means: dict[tuple[str, str], float] = {}  # the one longest unheard of first

    def predict(self, flow: FlowIdentity) -> int:
        mean = self._means.get((flow.account, flow.member))
        return int(self._all if mean is None else mean)

    def learn(self, flow: FlowIdentity, output: int) -> None:
        means = self._means
        name = (flow.account, flow.member)
        mean = means.pop(name, self._all)
        means[name] = mean + (output - mean) * _SHARE
        self._all += (output - self._all) * _SHARE_ALL
        if len(means) > FLOWS_MAX:
            del means[next(iter(means))]

    def __len__(self) -> int:
        return len(self._means)
