"""Opens the streams that may be continued, and exports the counts of their outcomes.

Must never: keep a stream whose engine cannot continue a text.
"""

from __future__ import annotations

from typing import Final

from router.addons.continuation.request import KINDS
from router.addons.continuation.store import Store
from router.addons.continuation.stream import Continuation
from router.config.model import Config
from router.dispatch.resumption import ResumableStream, Resumption
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.engines.common.descriptor import Engine
from router.observe.families.family import COUNTER, Family, Source
from router.observe.metrics import Metrics

_FAMILY: Final[Family[dict[str, int]]] = Family(
    "continuations",
    COUNTER,
    "Streams that broke after content: continued by another replica, or why not.",
    lambda outcomes: outcomes,
    ("outcome",),
)


class Continuations(Resumption):
    """The streams of one router that may be continued."""

    __slots__ = ("_store",)

    def __init__(self, config: Config, metrics: Metrics) -> None:
        store = self._store = Store(config.continuation)
        metrics.added["continuation"] = Source((_FAMILY,), lambda: store.outcomes)

    def opens(self, kind: str, engine: Engine, tap: UsageTap) -> ResumableStream | None:
        if kind not in KINDS or not engine.continues:
            return None
        return Continuation(kind, self._store, tap)

    def adopt(self, config: Config) -> None:
        self._store.adopt(config.continuation)

    def kept_bytes(self) -> int:
        return self._store.held
