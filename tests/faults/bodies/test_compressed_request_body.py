"""A compressed request body is never decompressed by the router: it is forwarded unchanged."""

from __future__ import annotations

import gzip

import pytest

from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json
from tests.harness.running import running, scenario

BOMB = gzip.compress(b'{"model": "m", "prompt": "' + bytes(20 * 1024 * 1024) + b'"}')
SMALL = gzip.compress(b'{"model": "m", "messages": []}')


@pytest.mark.parametrize("body", [SMALL, BOMB], ids=["small", "bomb"])
@scenario
async def test_it_is_opaque(body: bytes) -> None:
    async with running(json_ok) as router:
        answer = await router.ask(post_json("/v1/chat/completions", body, "Content-Encoding: gzip"))
        assert answer.status == 200
        (seen,) = router.replica.requests
        assert bytes(seen.body) == body
        assert seen.header("content-encoding") == "gzip"
