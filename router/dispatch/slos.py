"""The SLOs of a request: those of its class, or those that its key or its client states.

An SLO is stated by the client (`x-slo-ttft-ms`, `x-slo-tpot-ms`), else by the operator for the key
(`KeyLine`), else by the class (`classes.*.ttft_slo`). Looser SLOs than those of the class are
allowed. A tighter SLO must not give a request the deadline of another class:

- A client's SLO is at least that of the next more urgent class; for the class critical, any SLO is
  allowed.
- The SLO of a key is not limited, because the operator has set it. The key's clients may not state
  a tighter SLO than that of the key. The key's SLO applies to all classes but batch: a batch
  request of a key with a tight SLO is still a batch request.

Must never: change a request's class.
"""

from __future__ import annotations

from policies.facts import RequestView
from router.config.model import Classes
from router.core.urgency import BATCH
from router.intake.keys import Key


class ClassSlo:
    """The SLOs of one class, and the shortest ones that its clients may state, in seconds."""

    __slots__ = ("tpot_min_s", "tpot_s", "ttft_min_s", "ttft_s", "urgency", "worth")

    def __init__(
        self,
        urgency: int,
        worth: float,
        ttft_s: float,
        tpot_s: float,
        ttft_min_s: float,
        tpot_min_s: float,
    ) -> None:
        self.urgency = urgency  # the class, 0 to 4
        self.worth = worth  # the weight of one token in the gain
        self.ttft_s = ttft_s
        self.tpot_s = tpot_s
        self.ttft_min_s = ttft_min_s
        self.tpot_min_s = tpot_min_s

    def fill(self, view: RequestView, arrived: float) -> None:
        """Set the SLOs of the class for a request. `arrived`: its arrival, in monotonic seconds."""
        view.urgency = self.urgency
        view.worth = self.worth
        view.arrived = arrived
        view.ttft_slo_s = view.ttft_slo_usual_s = self.ttft_s
        view.tpot_slo_s = self.tpot_s
        view.ttft_slo_min_s = self.ttft_min_s

    def state(self, view: RequestView, key: Key | None, ttft_s: float, tpot_s: float) -> None:
        """Set the SLOs that the key or the client states for a request of the class, after `fill`.

        `key`: the request's API key, if it has one. `ttft_s`, `tpot_s`: the client's SLOs in
        seconds; 0: none.
        """
        ttft_min_s, tpot_min_s = self.ttft_min_s, self.tpot_min_s
        if key is not None and self.urgency != BATCH:
            if key.ttft_slo_s > 0.0:
                view.ttft_slo_s = view.ttft_slo_usual_s = key.ttft_slo_s
                ttft_min_s = view.ttft_slo_min_s = key.ttft_slo_s
            if key.tpot_slo_s > 0.0:
                view.tpot_slo_s = tpot_min_s = key.tpot_slo_s
        if ttft_s > 0.0:
            view.ttft_slo_s = max(ttft_s, ttft_min_s)
        if tpot_s > 0.0:
            view.tpot_slo_s = max(tpot_s, tpot_min_s)


def class_slos(classes: Classes) -> list[ClassSlo]:
    """Return a list of the classes' SLOs; the index is the class number."""
    found: list[ClassSlo] = []
    ttft_min_s = tpot_min_s = 0.0
    for urgency, rules in enumerate(classes.by_name.values()):
        ttft_s, tpot_s = rules.ttft_slo_s, rules.tpot_slo_s
        found.append(ClassSlo(urgency, rules.weight, ttft_s, tpot_s, ttft_min_s, tpot_min_s))
        ttft_min_s, tpot_min_s = ttft_s, tpot_s
    return found
