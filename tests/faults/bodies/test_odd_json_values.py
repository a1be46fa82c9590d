"""Odd values that only the engine validates: forwarded byte for byte."""

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import post_json
from tests.harness.running import TOLD_NOTHING, running, scenario

FIELDS = {
    "10,000 digits": b'"max_tokens": ' + b"9" * 10_000,
    "10,000 digits elsewhere": b'"x": ' + b"9" * 10_000,
    "1e999": b'"temperature": 1e999',
    "-0": b'"temperature": -0.0',
    "negative": b'"max_tokens": -1',
    "2^63": b'"max_tokens": 9223372036854775808',
    "string": b'"max_tokens": "many"',
    "object": b'"max_tokens": {}',
    "float": b'"max_tokens": 1.5',
    "null": b'"max_tokens": null',
    "n": b'"n": 1000',
    "best_of": b'"best_of": 1000',
    "stream as string": b'"stream": "maybe"',
    "stream as number": b'"stream": 0',
    "stream null": b'"stream": null',
    "stream as list": b'"stream": []',
    "messages as number": b'"messages": 3',
    "lone surrogate": b'"prompt": "\\ud800"',
    "escaped nul": b'"prompt": "\\u0000"',
    "odd spacing": b'  "prompt"\n:\t"x"  ',
    "unknown field": b'"x_engine_thing": {"a": [1, 2.50, "\\u00e9"]}',
    "empty name": b'"": 1',
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@scenario
async def test_they_are_forwarded_untouched(name: str, path: str) -> None:
    body = b'{"model": "m", ' + FIELDS[name] + b"}"
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(post_json(path, body))
        assert answer.status == 200, answer
        assert bytes(router.replica.requests[0].body) == body


@pytest.mark.parametrize("raw", [b"\xed\xa0\x80", b"\xff", b"\xc3", b"\xf8\x88\x80\x80\x80"])
@scenario
async def test_bytes_that_are_not_utf8(raw: bytes) -> None:
    body = b'{"model": "m", "prompt": "' + raw + b'"}'
    async with running(echo, replica=TOLD_NOTHING) as router:
        answer = await router.ask(post_json("/v1/completions", body))
        assert answer.status in (200, 400)
        if answer.status == 200:
            assert bytes(router.replica.requests[0].body) == body
