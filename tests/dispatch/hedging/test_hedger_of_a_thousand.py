"""One search for a copy's replica in a fleet of a thousand: the number of replicas examined."""

from collections.abc import Sequence
from typing import Any, overload

import pytest

from router.core.lease import Lease
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.hedging.backups import ENOUGH, HOLDERS, WINDOW
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from tests.dispatch.hedging.world import TOKENS, World, played

FLEET = 1000
touched: set[str] = set()


class Watched(Sequence[Replica]):
    """A pool that records which replicas were read from it."""

    def __init__(self, pool: Sequence[Replica]) -> None:
        self._pool = pool

    def __len__(self) -> int:
        return len(self._pool)

    @overload
    def __getitem__(self, at: int) -> Replica: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Replica]: ...

    def __getitem__(self, at: int | slice) -> Replica | Sequence[Replica]:
        found = self._pool[at]
        touched.update([found.id] if isinstance(found, Replica) else [r.id for r in found])
        return found


class Thousand(World):
    """A world of a thousand replicas, in which a request at `a` is late."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(**rules)
        self.many = [self.table.add(f"r{number}", max_inflight=4) for number in range(FLEET - 3)]
        self.learn(200)
        self.state, self.primary = self.late()

    def found(self, primary: Attempt | None = None) -> list[str]:
        touched.clear()
        pool = self.table.fleet.serving.of("m", None)
        assert len(pool) == FLEET
        found = self.hedger.backup(self.view, primary or self.primary, Watched(pool), self.now)
        return [r.id for r in found]


@played
def test_a_query_examines_few_replicas() -> None:
    w = Thousand()
    offered: set[str] = set()
    for _ in range(FLEET):
        found = w.found()
        assert len(found) == ENOUGH
        assert len(touched) <= WINDOW
        offered.update(found)
    assert len(offered) == FLEET - 1  # all replicas in turn, except that of the late request


@pytest.mark.parametrize(("leases", "kv_usage", "why"), [(1, 0.99, "kv"), (3, None, "utilisation")])
@played
def test_a_query_without_a_result_examines_few_replicas(
    leases: int, kv_usage: float | None, why: str
) -> None:
    """Each replica has four slots."""
    w = Thousand()
    held = [Lease(replica) for replica in w.many for _ in range(leases)]
    for lease in held:
        lease.begun()
    for replica in w.many:
        replica.kv_usage = kv_usage
    assert w.found() == []
    assert 0 < len(touched) <= WINDOW
    assert w.refused[why] == 1
    for lease in held:
        lease.release()


@played
def test_holders_of_the_prefix_are_always_examined() -> None:
    w = Thousand(budget=0.05)
    w.view.blocks = tuple(range(1, 1 + 16 * TOKENS // 128))
    w.view.prompt_tokens = 16 * TOKENS
    knowledge = w.table.fleet.knowledge
    for replica in w.many[500 : 500 + 2 * HOLDERS]:
        knowledge.sent(replica, w.view.blocks, 0)
        knowledge.begun(replica, w.view.blocks, 0)
    for _ in range(20):
        found = w.found()
        assert len(touched) <= WINDOW
        assert {int(id[1:]) for id in found} <= set(range(500, 500 + 2 * HOLDERS))
        assert len(found) == len(set(found)) >= HOLDERS
    # A holder that sleeps, or serves another model, is ignored.
    for replica in w.many[500 : 500 + 2 * HOLDERS : 2]:
        replica.models = frozenset({"other"})
    for replica in w.many[501 : 501 + 2 * HOLDERS : 2]:
        replica.reports.signals = Signals(asleep=True)
    w.table.fleet.rebuild()
    pool = w.table.fleet.serving.of("m", None)
    assert w.hedger.backup(w.view, w.primary, pool, w.now) == ()
