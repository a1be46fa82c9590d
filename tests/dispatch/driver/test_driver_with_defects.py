"""The random walks of `test_driver_under_fire`, with exceptions raised in the router's own code.

For every exception at any place: the request ends, its client gets an error or is disconnected, no
engine continues to work, and every lease, timer, ticket and connection is released.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, strategies as st
from hypothesis.stateful import rule

from router.admission.pools import Pools
from router.core.build import is_compiled
from router.dispatch.chooser import Chooser
from router.dispatch.completion import Completion
from router.dispatch.hedging.hedger import Hedger
from router.dispatch.queueing.queue_driver import QueueDriver
from router.dispatch.reply import Reply
from router.fleet.table.eligibility import Eligibility
from router.fleet.table.outcomes import Outcomes
from router.observe.metrics import Metrics
from tests.dispatch.driver.test_driver_under_fire import Fire
from tests.examples import examples

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled methods cannot be replaced")

# Functions called for a request; in these tests they fail before or after their work.
PLACES: list[tuple[type, str]] = [
    *((Hedger, name) for name in ("dispatched", "backup", "sent", "shown", "outrun", "failed")),
    *((Chooser, name) for name in ("choose", "dispatched", "withdrawn", "shown", "finished")),
    *((Outcomes, name) for name in ("failed", "showed_content", "busy", "succeeded")),
    (Eligibility, "replicas"),
    *((Metrics, name) for name in ("finished", "attempt", "waited")),
    *((Reply, name) for name in ("begin", "relay", "error", "late_error", "truncate", "comment")),
    *((QueueDriver, name) for name in ("sent", "retry", "pauses")),
    *((Pools, name) for name in ("offer", "allows_early_status")),
    (Completion, "close"),
]


class Defects(Fire):
    """One request through the real dispatcher, with defects."""

    def __init__(self) -> None:
        super().__init__()
        self.armed: dict[str, bool] = {}  # function -> whether it fails after its work
        self.patch = pytest.MonkeyPatch()
        for owner, name in PLACES:
            where = f"{owner.__name__}.{name}"
            self.patch.setattr(owner, name, self.fragile(where, getattr(owner, name)))
        logging.disable(logging.ERROR)

    def fragile(self, where: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def fails(*args: Any, **named: Any) -> Any:
            is_after = self.armed.pop(where, None)
            if is_after is False:
                raise RuntimeError(where)
            found = call(*args, **named)
            if is_after:
                raise RuntimeError(f"behind {where}")
            return found

        return fails

    @rule(
        where=st.sampled_from([f"{owner.__name__}.{name}" for owner, name in PLACES]),
        is_after=st.booleans(),
    )
    def defect(self, where: str, is_after: bool) -> None:
        self.armed[where] = is_after

    def teardown(self) -> None:
        try:
            self.armed.clear()
            if hasattr(self, "aio"):
                self.ends_without_a_trace()
                if self.client.sent:
                    self._check_response()
                self.close()
        finally:
            self.patch.undo()
            logging.disable(logging.NOTSET)


Defects.TestCase.settings = examples(
    250, steps=20, suppressed=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestDefects = Defects.TestCase
