"""Unlimited nesting: the parser is bounded, and the client gets an answer."""

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import chat, post_json
from tests.harness.running import TOLD_NOTHING, Router, routed, running, scenario

DEPTH = 100_000
BODIES = {
    "arrays": b"[" * DEPTH + b"]" * DEPTH,
    "open arrays": b"[" * DEPTH,
    "objects": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
    "inside a field": b'{"model": "m", "messages": ' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "inside the model": b'{"model": ' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "inside an unknown field": b'{"x": ' + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH + b"}",
}


@pytest.mark.parametrize("name", BODIES)
@routed(echo, replica=TOLD_NOTHING)
async def test_it_is_answered(router: Router, name: str) -> None:
    """A deeply nested body is refused, or forwarded unchanged; it never causes a crash or a 500."""
    answer = await router.ask(post_json("/v1/chat/completions", BODIES[name]))
    assert answer.status in (200, 400)
    if answer.status == 400:
        assert answer.error()["code"] in ("bad_json", "bad_model", "model_required")
        assert not router.replica.requests
    else:
        assert bytes(router.replica.requests[0].body) == BODIES[name]
    assert (await router.ask(chat())).status == 200


@scenario
async def test_a_sane_depth_passes() -> None:
    body = b'{"model": "m", "tools": ' + b"[" * 60 + b"]" * 60 + b"}"
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(post_json("/v1/chat/completions", body))
        assert answer.json()["body"].encode() == body
