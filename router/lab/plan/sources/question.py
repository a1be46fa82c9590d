"""The metrics that a plan reads from Prometheus, and their labels.

All functions are pure. Must never: need a counter that older versions of an exporter do not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from router.core.urgency import BATCH, CLASSES
from router.fleet.engines.common.counters import Counters
from router.fleet.engines.common.registry import ENGINES
from router.lab.plan.flags import HEDGEROW
from router.lab.plan.observed import Place
from router.lab.plan.sources.prometheus_api import Sampled

MODEL, REGION, TYPE = "model", "region", "type"  # labels of the answers to `running_query`
BATCH_CLASS: Final = CLASSES[BATCH]

COUNTERS: Final[Mapping[str, Counters]] = {
    HEDGEROW: Counters(
        model="model",
        requests="hedgerow_model_requests_total",
        prompt='hedgerow_model_tokens_total{kind="prompt"}',
        cached='hedgerow_model_tokens_total{kind="cached"}',
        output='hedgerow_model_tokens_total{kind="output"}',
        # Batch requests wait for capacity that other classes leave, so their wait is no shortage.
        waiting=f'hedgerow_queue_depth{{class!="{BATCH_CLASS}"}}',
        waiting_by_model=False,
        replicas="hedgerow_model_replicas",
        region="region",
        priority="class",
    ),
    **{name: one.counters for name, one in ENGINES.items() if one.counters is not None},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The data to read."""

    counters: str = HEDGEROW  # a key of `COUNTERS`
    window_s: float
    history_s: float
    region_label: str = ""  # the label with the region; "": that of the counters, if any
    # PromQL for the number of running replicas, by model and optionally type and region.
    running_query: str = ""
    match: str = ""  # label matchers for every selector, such as `job="hedgerow",env="prod"`

    @property
    def names(self) -> Counters:
        """The metrics. Raises ValueError for an unknown exporter."""
        if self.counters not in COUNTERS:
            known = ", ".join(COUNTERS)
            raise ValueError(f"--counters: {self.counters!r} is unknown; allowed: {known}")
        return COUNTERS[self.counters]

    @property
    def region(self) -> str:
        """The label with the region; "": there is none."""
        return self.region_label or self.names.region

    def increase(self, counter: str) -> str:
        """Return the query for the increase of a counter in the window before each step."""
        by = _list(self.names.model, self.region, self.names.priority)
        width = f"{round(self.window_s * 1000)}ms"
        return f"sum by ({by}) (increase({self.selected(counter)}[{width}]))"

    @property
    def running(self) -> str:
        """The query for the number of running replicas; "": the exporter does not have it.

        Several routers of one fleet report the same replicas, so the highest number counts.
        """
        names = self.names
        if self.running_query:
            return self.running_query
        if names.replicas:
            by = _list(names.model, self.region, TYPE)
            return f"max by ({by}) ({self.selected(names.replicas)})"
        if names.running:
            return f"count by ({_list(names.model, self.region)}) ({self.selected(names.running)})"
        return ""

    @property
    def waiting(self) -> str:
        """The query for the number of waiting requests."""
        names = self.names
        by = _list(names.model, self.region) if names.waiting_by_model else ""
        grouped = f" by ({by})" if by else ""
        return f"sum{grouped} ({self.selected(names.waiting)})"

    def selected(self, selector: str) -> str:
        """Return a selector with the matchers of `match` added."""
        if not self.match:
            return selector
        name, _, inside = selector.rstrip("}").partition("{")
        return f"{name}{{{_list(inside, self.match)}}}"

    def place(self, one: Sampled) -> Place:
        """Return the model and the region of a series in an answer."""
        model = one.labels.get(self.names.model) or one.labels.get(MODEL, "")
        return Place(model, one.labels.get(self.region or REGION, ""))

    def is_batch(self, one: Sampled) -> bool:
        """Whether a series counts requests of class batch."""
        return one.labels.get(self.names.priority) == BATCH_CLASS


def _list(*parts: str) -> str:
    return ", ".join(filter(None, parts))
