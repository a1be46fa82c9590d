"""Limits of tokens per minute: many requests of a fresh key at once, and too large answers."""

from pathlib import Path
from typing import Any

import pytest

from router.core.errors import Reason
from tests.app.tenants.acme import ACME, keys
from tests.app.tenants.crowd import CHAT, CROWD, MOST, Generous, crowd
from tests.harness.messages import post_json
from tests.harness.running import assert_error, running, scenario


@pytest.mark.parametrize("body", [{"max_tokens": 300}, {"max_tokens": 100, "n": 3}, {}])
@scenario
async def test_a_crowd_with_a_fresh_key_is_within_the_tokens_of_a_minute(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    engine = Generous()
    async with running(engine, keys=keys(tmp_path, tokens_per_minute=1000)) as router:
        answers = await crowd(router, engine, "/v1/chat/completions", {**CHAT, **body})
        assert engine.tokens <= 1010 + (0 if body else MOST)
        refused = [answer for answer in answers if answer.status == 429]
        assert len(refused) < CROWD
        for answer in refused:
            assert_error(answer, Reason.KEY_TOKENS)
            assert int(answer.header("retry-after") or 0) <= 120


@scenario
async def test_a_large_answer_locks_a_key_for_two_minutes_at_most(tmp_path: Path) -> None:
    engine = Generous()
    engine.go.set()
    async with running(engine, keys=keys(tmp_path, tokens_per_minute=100)) as router:
        body = {"model": "m", **CHAT, "max_tokens": 50_000}
        for status in (200, 429):
            answer = await router.ask(post_json("/v1/chat/completions", body, ACME), "POST")
            assert answer.status == status
        assert 60 < int(answer.header("retry-after") or 0) <= 120
