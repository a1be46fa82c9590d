"""Which stream is copied to which cold replica: each rule, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from policies.allowed import Allowed
from policies.contract import RequestView
from router.config.model import Hedging, Pool
from router.core.lease import Lease
from router.dispatch.driver.attempt_state import Attempt, Kind
from router.dispatch.hedging.hedge_budget import HedgeBudget
from router.dispatch.hedging.warm_up import COPIES_MOST, LOOK_S, WarmCopyPlan, WarmUp
from router.fleet.access import Access
from router.fleet.replica import Replica
from router.observe.hedge_counts import CUT, FAILED, FILLED, HedgeCounts
from tests.fleet.helpers import Table
from tests.harness.running import scenario

NOW = 1000.0
BLOCK = 128  # tokens of a block
PREFIX = tuple(range(1, 7))
WARM_S = 60.0


class Warm:
    """A fleet: `source` has the prefix and runs two streams, `cold` came up a second ago."""

    def __init__(self, **rules: Any) -> None:
        self.table = Table()
        self.fleet = self.table.fleet
        self.source = self.table.add("source")
        self.cold = self.table.add("cold")
        self.cold.health.begins_slowly(NOW - 1.0)
        self.streams = [Lease(self.source), Lease(self.source)]
        for lease in self.streams:
            lease.begun()
        self.budget = HedgeBudget(0.05)
        self.budget.spare = 1e6
        self.counts = HedgeCounts()
        hedging = Hedging(**{"warm_up_s": WARM_S, **rules})
        self.warm_up = WarmUp(hedging, self.fleet, self.budget, self.counts)
        for number in range(3):
            self.serves(number)

    def serves(self, number: int, at: Replica | None = None) -> None:
        """A replica, by default `source`, serves a request with the prefix."""
        replica = at or self.source
        view = self.view(number)
        held = self.fleet.knowledge.held(view).get(replica, 0)
        self.fleet.knowledge.sent(replica, view.blocks, held)
        self.fleet.knowledge.begun(replica, view.blocks, held)

    def view(self, number: int = 9, prefix: tuple[int, ...] = PREFIX) -> RequestView:
        view = RequestView(model="m", stream=True, block_tokens=BLOCK)
        view.blocks = (*prefix, 1000 + number)
        view.prompt_tokens = len(view.blocks) * BLOCK
        return view

    def attempt(self, view: RequestView) -> Attempt:
        held = self.fleet.knowledge.held(view).get(self.source, 0)
        return Attempt(0, Kind.PRIMARY, self.source, Lease(self.source), NOW, 0, held)

    def plan(self, view: RequestView | None = None, now: float = NOW) -> WarmCopyPlan | None:
        view = view or self.view()
        attempt = self.attempt(view)
        try:
            if not self.warm_up.examines(view, attempt, now):
                return None
            return self.warm_up.plan(view, attempt, self.fleet.serving("m", view.allowed), now)
        finally:
            attempt.lease.release()

    def close(self) -> None:
        self.table.close()


@scenario
async def test_a_cold_replica_gets_a_copy_of_a_reused_prefix() -> None:
    warm = Warm()
    plan = warm.plan()
    assert plan is not None and plan.cold.replica is warm.cold
    assert (plan.tokens, plan.held, plan.prefix) == (7 * BLOCK, 0, PREFIX[-1])
    warm.close()


@scenario
async def test_tokens_that_the_cold_replica_has_are_not_paid() -> None:
    warm = Warm()
    view = warm.view(20, PREFIX[:2])
    warm.fleet.knowledge.sent(warm.cold, view.blocks, 0)
    warm.fleet.knowledge.begun(warm.cold, view.blocks, 0)
    plan = warm.plan()
    assert plan is not None and (plan.tokens, plan.held) == (5 * BLOCK, 2)
    warm.close()


def told(replica: Replica, **signals: Any) -> None:
    replica.last_signals = replica.signals = msgspec.structs.replace(replica.signals, **signals)
    replica.kv_usage = replica.signals.kv_usage


def waits(warm: Warm) -> None:
    Lease(warm.cold)


def is_full(warm: Warm) -> None:
    told(warm.cold, kv_usage=0.95)


def is_busy(warm: Warm) -> None:
    warm.cold.slots = 4
    for _ in range(3):
        Lease(warm.cold).begun()
        Lease(warm.source).begun()


def is_as_loaded(warm: Warm) -> None:
    for _ in range(3):
        Lease(warm.cold).begun()


def another_holds_it(warm: Warm) -> None:
    """Two of nine replicas hold the prefix: one restart does not lose it, and few requests need
    it at the cold replica."""
    warm.serves(30, warm.table.add("other"))
    for number in range(6):
        lease = Lease(warm.table.add(f"further {number}"))
        lease.begun()


def is_suspect(warm: Warm) -> None:
    warm.cold.health.suspected_at = NOW


def leaves(warm: Warm) -> None:
    warm.fleet.remove("cold")


def is_external(warm: Warm) -> None:
    warm.cold.access = Access(None, None, Pool(external=True))


def holds_it(warm: Warm) -> None:
    warm.serves(30, warm.cold)


def holds_most(warm: Warm) -> None:
    view = warm.view(31, PREFIX[:5])
    warm.fleet.knowledge.sent(warm.cold, view.blocks, 0)
    warm.fleet.knowledge.begun(warm.cold, view.blocks, 0)


def has_no_spare_budget(warm: Warm) -> None:
    warm.budget.spare = 7 * BLOCK - 1.0


def runs_a_copy(warm: Warm) -> None:
    plan = warm.plan()
    assert plan is not None
    warm.warm_up.sent(plan)
    plan.cold.prefixes.clear()  # as if the copy were for another prefix


def had_this_copy(warm: Warm) -> None:
    plan = warm.plan()
    assert plan is not None
    warm.warm_up.sent(plan)
    warm.warm_up.ended(plan, FAILED, True)


def had_all_copies(warm: Warm) -> None:
    plan = warm.plan()
    assert plan is not None
    plan.cold.prefixes.update(range(COPIES_MOST))
    plan.cold.prefixes.discard(plan.prefix)
    plan.cold.prefixes.add(-1)


def is_not_cold(warm: Warm) -> None:
    warm.cold.health.warm_since = None


def is_no_longer_cold(warm: Warm) -> None:
    warm.cold.health.warm_since = NOW - WARM_S


REFUSALS: list[Callable[[Warm], None]] = [
    waits,
    is_full,
    is_busy,
    is_as_loaded,
    another_holds_it,
    is_suspect,
    leaves,
    is_external,
    holds_it,
    holds_most,
    has_no_spare_budget,
    runs_a_copy,
    had_this_copy,
    had_all_copies,
    is_not_cold,
    is_no_longer_cold,
]


@pytest.mark.parametrize("happens", REFUSALS, ids=lambda one: one.__name__)
def test_a_replica_that_gets_no_copy(happens: Callable[[Warm], None]) -> None:
    @scenario
    async def check() -> None:
        warm = Warm()
        happens(warm)
        assert warm.plan(now=NOW + LOOK_S) is None
        warm.close()

    check()


# Streams that are not copied, by what differs.
UNCOPIED: dict[str, Callable[[Warm], RequestView]] = {
    "a new prefix": lambda warm: warm.view(9, (71, 72, 73)),
    "most of the prompt is new": lambda warm: question(warm, 5),
    "not streamed": lambda warm: whole(warm),
    "another region": lambda warm: elsewhere(warm),
}


def question(warm: Warm, blocks: int) -> RequestView:
    """A prompt with the prefix and a question of this number of blocks."""
    view = warm.view()
    view.blocks = (*PREFIX, *range(2000, 2000 + blocks))
    view.prompt_tokens = len(view.blocks) * BLOCK
    return view


def whole(warm: Warm) -> RequestView:
    view = warm.view()
    view.stream = False
    return view


def elsewhere(warm: Warm) -> RequestView:
    for replica, region in ((warm.source, "eu"), (warm.cold, "us")):
        config = msgspec.structs.replace(replica.config, region=region)
        replica.adopt(config, warm.table.rules)
    warm.fleet.rebuild()
    view = warm.view()
    view.allowed = Allowed(["eu"])
    return view


@pytest.mark.parametrize("why", UNCOPIED)
def test_a_stream_that_is_not_copied(why: str) -> None:
    @scenario
    async def check() -> None:
        warm = Warm()
        assert warm.plan(UNCOPIED[why](warm)) is None
        warm.close()

    check()


@scenario
async def test_a_turn_of_a_conversation_is_not_copied() -> None:
    warm = Warm()
    turns = [(*range(50, 50 + length),) for length in (4, 8, 12, 16)]
    for blocks in turns:
        view = warm.view()
        view.blocks, view.prompt_tokens = blocks, len(blocks) * BLOCK
        assert warm.plan(view) is None
        held = warm.fleet.knowledge.held(view).get(warm.source, 0)
        warm.fleet.knowledge.sent(warm.source, blocks, held)
        warm.fleet.knowledge.begun(warm.source, blocks, held)
    warm.close()


@scenario
async def test_a_prefix_that_a_quarter_of_the_pool_holds_is_copied() -> None:
    warm = Warm()
    another_holds_it(warm)
    assert warm.plan() is None
    warm.fleet.remove("further 0")
    assert warm.plan() is not None
    warm.close()


@scenario
async def test_the_replica_with_the_fewest_copies_is_next() -> None:
    warm = Warm()
    second = warm.table.add("second")
    second.health.begins_slowly(NOW - 1.0)
    got = []
    for number in range(4):
        prefix = tuple(range(100 * (number + 3), 100 * (number + 3) + 6))
        for one in range(3):
            view = warm.view(one, prefix)
            held = warm.fleet.knowledge.held(view).get(warm.source, 0)
            warm.fleet.knowledge.sent(warm.source, view.blocks, held)
            warm.fleet.knowledge.begun(warm.source, view.blocks, held)
        plan = warm.plan(warm.view(9, prefix))
        assert plan is not None
        warm.warm_up.sent(plan)
        warm.warm_up.ended(plan, FILLED, True)
        got.append(plan.cold.replica.id)
    assert sorted(got[:2]) == sorted(got[2:]) == ["cold", "second"]
    assert warm.counts.warm_ups == {FILLED: 4, CUT: 0, FAILED: 0}
    warm.close()


@scenario
async def test_a_second_restart_begins_anew() -> None:
    warm = Warm()
    had_this_copy(warm)
    assert warm.plan(now=NOW + 1.0) is None
    warm.fleet.knowledge.restarted(warm.cold)
    warm.cold.health.begins_slowly(NOW + 2.0)
    assert warm.plan(now=NOW + 3.0) is not None
    warm.close()


@scenario
async def test_the_tokens_of_a_copy_that_was_not_sent_are_returned() -> None:
    warm = Warm()
    plan = warm.plan()
    assert plan is not None
    before = warm.budget.spare
    warm.warm_up.sent(plan)
    assert warm.budget.spare == before - plan.tokens and warm.counts.warm_up_tokens == plan.tokens
    warm.warm_up.ended(plan, FAILED, False)
    assert warm.budget.spare == before
    counts = warm.counts
    assert (counts.warm_up_tokens, counts.warm_up_returned_tokens) == (0, plan.tokens)
    warm.close()
