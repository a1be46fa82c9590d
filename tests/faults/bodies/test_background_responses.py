"""A response in the background is refused: its tokens would be counted by no limit."""

from __future__ import annotations

from typing import Any

import pytest

from router.core.errors import Reason
from router.intake.body import DECODE_UP_TO, SCAN_ABOVE
from tests.harness.behaviours import answer
from tests.harness.messages import json_response, post_json
from tests.harness.running import assert_error, running, scenario

MADE = answer(json_response({"id": "resp_1", "status": "queued", "output": []}))


@pytest.mark.parametrize("size", [0, DECODE_UP_TO, SCAN_ABOVE])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/", "/v1/batch/responses"])
@scenario
async def test_a_body_of_any_size(path: str, size: int) -> None:
    body = {"model": "m", "input": "a" * size, "background": True}
    async with running(MADE) as router:
        asked = len(router.replica.requests)
        refused = await router.ask(post_json(path, body), "POST")
        assert_error(refused, Reason.BACKGROUND_NOT_SERVED, 400)
        assert refused.error()["param"] == "background"
        assert len(router.replica.requests) == asked


@pytest.mark.parametrize("value", [False, None])
@scenario
async def test_other_responses_are_served(value: Any) -> None:
    async with running(MADE) as router:
        body = {"model": "m", "input": "hi", "background": value}
        assert (await router.ask(post_json("/v1/responses", body), "POST")).status == 200
        elsewhere = {"model": "m", "prompt": "hi", "background": True}
        assert (await router.ask(post_json("/v1/completions", elsewhere), "POST")).status == 200
