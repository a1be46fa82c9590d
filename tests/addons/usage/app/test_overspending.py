"""Tenants that send many requests at once, to use more than their limits and budgets allow."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Usage as UsageConfig
from router.core import clock
from router.core.errors import Reason
from router.core.periods import DAY_S, NAMES
from tests.addons.usage.app.helpers import budgets_of, stored, used
from tests.app.tenants.acme import ACME, USED, keys, tells
from tests.app.tenants.crowd import CHAT, MOST, Generous, crowd
from tests.harness.behaviours import stream_then_hang
from tests.harness.messages import chat, post_json, role, token
from tests.harness.replica import eventually
from tests.harness.running import Router, assert_cut_stream, assert_error, running, scenario


async def teach(router: Router, engine: Generous, path: str, prompt: dict[str, Any]) -> None:
    engine.go.set()
    client = await router.client()
    for _ in range(100):
        await client.send(post_json(path, {"model": "m", **prompt, "max_tokens": 1}, ACME))
        await client.recv_response("POST")
    engine.go.clear()
    await eventually(lambda: len(router.lines()) == 100, "the log is written")
    router.log_path.write_text("")


@pytest.mark.parametrize(
    ("path", "prompt", "most"),
    [
        ("/v1/chat/completions", {**CHAT, "max_tokens": 400}, 400),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 100, "n": 4}, 400),
        ("/v1/chat/completions", CHAT, MOST),
        ("/v1/completions", {"prompt": ["x", "y", "z", "z"], "max_tokens": 100}, 400),
        ("/v1/completions", {"prompt": [[1, 2]] * 4, "max_tokens": 100}, 400),
        ("/v1/completions", {"prompt": [1, 2, 3, 4], "max_tokens": 400}, 400),
    ],
    ids=["limit", "n", "no limit", "prompts", "lists of token ids", "token ids"],
)
@pytest.mark.parametrize("is_taught", [False, True], ids=["fresh", "taught"])
@scenario
async def test_a_crowd_exceeds_a_budget_by_one_request_at_most(
    tmp_path: Path, path: str, prompt: dict[str, Any], most: int, is_taught: bool
) -> None:
    engine = Generous()
    async with running(engine, keys=keys(tmp_path, tokens_per_day=3000)) as router:
        if is_taught:
            await teach(router, engine, path, prompt)
        answers = await crowd(router, engine, path, prompt)
        statuses = [answer.status for answer in answers]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 3000 // (most + 200)
        assert await used(router, "tokens_per_day") == engine.tokens
        assert engine.tokens <= 3000 + most


@pytest.mark.parametrize("cuts", [True, False])
@scenario
async def test_streams_of_a_spent_key_are_cut_if_configured(tmp_path: Path, cuts: bool) -> None:
    behave = stream_then_hang(role(), *[token("a")] * 30)
    rules = keys(tmp_path, tokens_per_day=2 * 1024 + 100)
    usage = UsageConfig(cut_spent=cuts)
    async with running(behave, keys=rules, usage=usage) as router:
        clients = [await router.client() for _ in range(2)]
        body = {"model": "m", **CHAT, "stream": True}
        for client in clients:
            await client.send(post_json("/v1/chat/completions", body, ACME))
            await client.recv_until(b'"a"')
        spending = budgets_of(router).by_tenant["acme"]
        other = await router.send(post_json("/v1/chat/completions", body))
        await other.recv_until(b'"a"')
        spending.windows[0].token_limit = 60.0  # Two streams of 30 tokens use it up.
        if cuts:
            for client in clients:
                answer = await client.recv_response("POST")
                assert_cut_stream(answer, Reason.INSUFFICIENT_QUOTA)
            await router.log(2)
            assert await used(router, "tokens_per_day") >= 60
        else:
            await eventually(lambda: spending.holds == 2, "both run")
        exchanges = router.app.parts.dispatcher.exchanges
        assert len(exchanges) == (1 if cuts else 3)


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
