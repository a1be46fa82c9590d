"""Predicts the output tokens of the next answer to a flow (an account's user) from its last
answers.

The prediction is a moving mean of about five answers, as in VTC (Virtual Token Counter). For an
unknown flow, it is the mean of all flows. At most `FLOWS_MAX` flows are kept; the least recently
used one is dropped first.

Must never: predict from the last answer alone.
"""

from __future__ import annotations

from typing import Final

from policies.queueing.flow_identity import FlowIdentity

_SHARE: Final = 0.2  # Weight of a new answer in the mean of its flow.
_SHARE_ALL: Final = 0.02  # Weight of a new answer in the mean of all flows.
_FIRST: Final = 200.0  # Output tokens predicted before the first answer.
FLOWS_MAX: Final = 4096


class OutputPredictor:
    """Keeps the mean number of output tokens of each flow."""

    __slots__ = ("_all", "_means")

    def __init__(self) -> None:
        self._all = _FIRST
        # Mean output tokens by flow, in the order of use: the least recently used flow is first.
        self._means: dict[tuple[str, str], float] = {}

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
