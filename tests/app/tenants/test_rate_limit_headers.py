"""`x-ratelimit-*`: what is left of the limits per minute of a key, as in OpenAI's API."""

from pathlib import Path

import pytest

from router.core.errors import Reason
from tests.app.tenants.acme import ACME, keys
from tests.harness.behaviours import answer, hang
from tests.harness.messages import chat, json_response
from tests.harness.running import assert_error, running, scenario

THEIRS = ("X-RateLimit-Remaining-Requests: 7", "x-ratelimit-limit-tokens: 9", "x-other: 1")
BODY = {"id": "c", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}


@pytest.mark.parametrize("stream", [False, True])
@scenario
async def test_an_answer_has_what_is_left(tmp_path: Path, stream: bool) -> None:
    rules = keys(tmp_path, requests_per_minute=2, tokens_per_minute=1000)
    behave = answer(json_response(BODY, 200, *THEIRS))
    async with running(behave, keys=rules) as router:
        for left in (1, 0):
            got = await router.ask(chat(ACME, stream=stream, max_tokens=100), "POST")
            assert got.status == 200
            assert got.header("x-ratelimit-limit-requests") == "2"
            assert got.header("x-ratelimit-remaining-requests") == str(left)
            assert got.header("x-ratelimit-limit-tokens") == "1000"
            assert 600 <= int(got.header("x-ratelimit-remaining-tokens") or 0) < 900
            assert got.header("x-other") == "1"
            reset = got.header("x-ratelimit-reset-requests") or ""
            assert reset.endswith("s")
            assert 0.0 < float(reset[:-1]) <= 60.0
        got = await router.ask(chat(ACME), "POST")
        assert_error(got, Reason.KEY_REQUESTS)
        assert got.header("x-ratelimit-remaining-requests") == "0"
        names = [name.lower() for name, _ in got.headers]
        assert len(names) == len(set(names))
        # Without limits, an engine's own header fields are forwarded.
        got = await router.ask(chat(stream=stream), "POST")
        assert got.header("x-ratelimit-limit-tokens") == "9"


@scenario
async def test_an_early_200_has_what_is_left(tmp_path: Path) -> None:
    rules = keys(tmp_path, requests_per_minute=5)
    async with running(hang, keys=rules, timeouts={"commit_after_s": 0.05}) as router:
        client = await router.client()
        await client.send(chat(ACME, stream=True))
        await client.recv_until(b"x-ratelimit-remaining-requests: 4\r\n")


@scenario
async def test_a_key_without_limits_per_minute_has_no_such_header(tmp_path: Path) -> None:
    behave = answer(json_response(BODY))
    async with running(behave, keys=keys(tmp_path, concurrency=5)) as router:
        got = await router.ask(chat(ACME), "POST")
        assert not any(name.lower().startswith("x-ratelimit") for name, _ in got.headers)
