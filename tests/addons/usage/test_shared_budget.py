"""A budget is granted once to all routers that use one usage file, except for a stated excess.

A router knows what it has granted itself, and what the file had at its last write (`usage.flush`).
So it does not know of the requests of other routers that still run, or that have ended in the last
two intervals: one until the other router writes, one until this router reads.
"""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from router.addons.usage.budgets import Budgets
from router.addons.usage.database import UsageDatabase
from router.addons.usage.pending import Pending
from router.addons.usage.spending import HELD, SPENT, WITHIN
from router.addons.usage.writer import UsageWriter
from router.config.keys import KeyLine
from router.config.model import Usage
from router.core import clock
from router.core.periods import DAY_S, day_of, parse_date
from router.core.time_zone import TimeZone
from router.intake.keys import Keyring
from router.observe.prices import Prices
from tests.harness.running import scenario

NOON = parse_date("2026-11-28") * DAY_S + DAY_S / 2
BUDGET = 10_000
TOKENS = 100  # of each request, half of them output

over = pytest.mark.parametrize("routers", [1, 3])


class Router:
    """The budget of one tenant at one router."""

    def __init__(self, file: Path) -> None:
        self.budgets = Budgets()
        line = KeyLine(name="acme", hash=f"sha256:{'0' * 64}", tokens_per_day=float(BUDGET))
        self.budgets.adopt(Keyring([line]), Prices({}), TimeZone())
        self.pending = Pending()
        self.writer = UsageWriter(Usage(file=str(file), flush_s=1e6), self.pending, self.budgets)
        self.running = 0

    async def __aenter__(self) -> "Router":
        await self.writer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.writer.stop()

    def ask(self) -> int:
        verdict = self.budgets.of("acme").ask(float(TOKENS), 0.0, NOON, NOON)
        self.running += verdict == WITHIN
        return verdict

    def end(self) -> None:
        """End a request as `KeptAccounts.record` does."""
        self.running -= 1
        spending = self.budgets.of("acme")
        spending.release(float(TOKENS), 0.0)
        spending.charge(TOKENS, 0.0, TOKENS // 2, NOON)
        row = self.pending.row(day_of(NOON), "acme", "normal")
        row.count(TOKENS // 2, 0, TOKENS // 2, False, 0.0)


def in_file(file: Path) -> float:
    database = UsageDatabase(str(file))
    tokens = database.amounts("acme", day_of(NOON))[0][0]
    database.close()
    return tokens


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall", lambda: NOON)


@over
@pytest.mark.parametrize("each", [1, 4])
@scenario
async def test_requests_that_have_ended_count_once(tmp_path: Path, routers: int, each: int) -> None:
    """`each`: the requests of a router between two of its writes. The writes take turns."""
    file = tmp_path / "usage.db"
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(Router(file)) for _ in range(routers)]
        granted = 0
        for _ in range(2 * BUDGET // TOKENS):
            for side in sides:
                for _ in range(each):
                    if side.ask() == WITHIN:
                        side.end()
                        granted += TOKENS
                await side.writer.flush()
        excess = (routers - 1) * 2 * each * TOKENS
        assert BUDGET <= granted <= BUDGET + excess
        assert in_file(file) == granted
        assert [side.ask() for side in sides] == [SPENT] * routers


@over
@scenario
async def test_running_requests_are_known_to_their_router_only(
    tmp_path: Path, routers: int
) -> None:
    """Each router grants the rest of the budget to requests that run at the same time."""
    file = tmp_path / "usage.db"
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(Router(file)) for _ in range(routers)]
        for side in sides:
            while side.ask() == WITHIN:
                pass
            assert side.running == BUDGET // TOKENS
            assert side.ask() == HELD
        for side in sides:
            while side.running:
                side.end()
        for side in sides + sides:
            await side.writer.flush()
        assert in_file(file) == routers * BUDGET
        assert [side.ask() for side in sides] == [SPENT] * routers
