"""An invalid body on a JSON route: 400 with a reason, and nothing is sent to a replica."""

from __future__ import annotations

import json

import pytest

from router.core.errors import Reason
from tests.harness.behaviours import echo
from tests.harness.messages import chat_body, post_json, request
from tests.harness.running import TOLD_NOTHING, assert_error, running, scenario

WHOLE = json.dumps(chat_body()).encode()
BAD = {
    "empty": b"",
    "blank": b"  \r\n ",
    "cut": WHOLE[:-1],
    "cut in a string": WHOLE[:12],
    "surplus": WHOLE + b"}",
    "two": WHOLE + WHOLE,
    "words": b"hello",
    "form": b"model=m&x=y",
    "single quotes": b"{'model': 'm'}",
    "trailing comma": b'{"model": "m",}',
    "comment": b'{"model": "m"} // hi',
    "nul bytes": bytes(100),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/messages"])
@scenario
async def test_it_is_refused(name: str, path: str) -> None:
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(post_json(path, BAD[name]))
        assert answer.status == 400
        assert answer.json()["error"]["code"] in ("bad_json", "model_required")
        assert not router.replica.requests
        assert (await router.log())[0]["attempts"] == 0


@pytest.mark.parametrize("body", [b'[{"model": "m"}]', b'"m"', b"1", b"null", b"{}"])
@scenario
async def test_json_that_is_not_an_object_is_refused_or_forwarded(body: bytes) -> None:
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(post_json("/v1/chat/completions", body))
        assert answer.status in (200, 400)
        if answer.status == 200:
            assert bytes(router.replica.requests[0].body) == body


@scenario
async def test_the_connection_ends_with_the_refusal() -> None:
    async with running(echo, replica=TOLD_NOTHING) as router:
        client = await router.send(post_json("/v1/chat/completions", b"{"), request("/plain"))
        answer = await client.recv_response()
        assert_error(answer, Reason.BAD_JSON)
        assert answer.header("connection") == "close"
        await client.expect_close()
        assert not client.unread
        assert not router.replica.requests


@pytest.mark.parametrize("name", ["words", "empty", "nul bytes"])
@scenario
async def test_other_paths_take_any_body(name: str) -> None:
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(request("/other", method="POST", body=BAD[name]))
        assert answer.json()["body"] == BAD[name].decode("latin-1")
