"""A jump of the wall clock renews no budget, and a request is charged to the day of its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from router.config.model import Usage as UsageConfig
from router.core import clock
from router.core.errors import Reason
from router.core.periods import DAY_S, NAMES
from tests.addons.usage.app.helpers import stored, used
from tests.app.tenants.acme import ACME, USED, keys, tells
from tests.harness.messages import chat
from tests.harness.running import assert_error, running, scenario

LATE_S = 400 * DAY_S


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock back by a number of seconds."""

    def set_back(seconds: float) -> None:
        monkeypatch.setattr(clock, "wall", lambda: time.time() - seconds)

    return set_back


@pytest.mark.parametrize("period", NAMES)
@pytest.mark.parametrize("jump_s", [LATE_S, -LATE_S])
@scenario
async def test_a_clock_that_is_wrong_at_the_start_forgets_no_use_of_the_file(
    tmp_path: Path, late: Callable[[float], None], period: str, jump_s: float
) -> None:
    rules = keys(tmp_path, **{f"tokens_per_{period}": 2 * USED})
    usage = stored(tmp_path)
    async with running(tells, keys=rules, usage=usage) as router:
        for _ in range(2):
            assert (await router.ask(chat(ACME), "POST")).status == 200
    late(jump_s)
    async with running(tells, keys=rules, usage=usage) as router:
        assert (await router.ask(chat(ACME), "POST")).status == 200
        late(0.0)
        # The used amounts of the right day are read from the file; then the budget is used up.
        answer = await router.ask(chat(ACME), "POST")
        while answer.json()["error"]["code"] == Reason.KEY_BUDGET_HELD:
            answer = await router.ask(chat(ACME), "POST")
        assert_error(answer, Reason.INSUFFICIENT_QUOTA)
        assert await used(router, f"tokens_per_{period}") >= 3 * USED
    # Use belongs to the period under which it was stored.
    async with running(tells, keys=rules, usage=usage) as router:
        assert await used(router, f"tokens_per_{period}") == 2 * USED


@pytest.mark.parametrize("jump_s", [LATE_S, -LATE_S])
@scenario
async def test_without_a_file_a_jump_grants_nothing(
    tmp_path: Path, late: Callable[[float], None], jump_s: float
) -> None:
    late(jump_s)
    rules = keys(tmp_path, tokens_per_day=2 * USED, tokens_per_month=1e9)
    async with running(tells, keys=rules) as router:
        for _ in range(2):
            assert (await router.ask(chat(ACME), "POST")).status == 200
        assert_error(await router.ask(chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        late(0.0)
        assert await used(router, "tokens_per_day") == 0, "no request has come since"
        assert_error(await router.ask(chat(ACME), "POST"), Reason.INSUFFICIENT_QUOTA)
        assert await used(router, "tokens_per_day") == 2 * USED


@scenario
async def test_a_file_that_cannot_be_read_after_a_jump_locks_no_key(
    tmp_path: Path, late: Callable[[float], None]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rules = keys(tmp_path, tokens_per_day=3 * USED)
    usage = UsageConfig(file=str(folder / "usage.db"), flush_s=1000.0)
    late(LATE_S)
    async with running(tells, keys=rules, usage=usage) as router:
        assert (await router.ask(chat(ACME), "POST")).status == 200
        folder.rename(tmp_path / "away")
        late(0.0)
        answer = await router.ask(chat(ACME), "POST")
        while answer.status == 429:
            assert_error(answer, Reason.KEY_BUDGET_HELD)
            answer = await router.ask(chat(ACME), "POST")
        assert answer.status == 200
        assert await used(router, "tokens_per_day") == 2 * USED
        (tmp_path / "away").rename(folder)
