"""Ambiguous line ends and field names: 400 and a close."""

from __future__ import annotations

import pytest

from tests.harness.behaviours import echo
from tests.harness.messages import request
from tests.harness.running import running, scenario

LINE = b"GET /plain HTTP/1.1\r\n"
HOST = b"Host: a\r\n"
BAD = {
    "obs-fold": LINE + HOST + b"X: a\r\n b\r\n\r\n",
    "obs-fold with tab": LINE + HOST + b"X: a\r\n\tb\r\n\r\n",
    "bare cr in value": LINE + HOST + b"X: a\rb\r\n\r\n",
    "bare lf ends a field": LINE + HOST + b"X: a\nY: b\r\n\r\n",
    "bare lf ends the line": b"GET /plain HTTP/1.1\nHost: a\r\n\r\n",
    "bare lf ends the head": LINE + HOST + b"\n",
    "nul in value": LINE + HOST + b"X: a\x00b\r\n\r\n",
    "nul in name": LINE + HOST + b"X\x00: a\r\n\r\n",
    "control in value": LINE + HOST + b"X: a\x01b\r\n\r\n",
    "delete in value": LINE + HOST + b"X: a\x7fb\r\n\r\n",
    "space before colon": LINE + HOST + b"X : a\r\n\r\n",
    "space in name": LINE + HOST + b"X Y: a\r\n\r\n",
    "no colon": LINE + HOST + b"X\r\n\r\n",
    "empty name": LINE + HOST + b": a\r\n\r\n",
    "leading space": LINE + b" " + HOST + b"\r\n",
    "leading tab": LINE + b"\t" + HOST + b"\r\n",
    "high byte in name": LINE + HOST + b"X\xff: a\r\n\r\n",
    "colon of another alphabet": LINE + HOST + "X：a\r\n\r\n".encode(),
    "two spaces": b"GET  /plain HTTP/1.1\r\nHost: a\r\n\r\n",
    "tab": b"GET\t/plain HTTP/1.1\r\nHost: a\r\n\r\n",
    "space in target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "trailing space": b"GET /plain HTTP/1.1 \r\nHost: a\r\n\r\n",
    "leading space in line": b" GET /plain HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /plain\r\nHost: a\r\n\r\n",
    "lower-case version": b"GET /plain http/1.1\r\nHost: a\r\n\r\n",
    "version 1.2": b"GET /plain HTTP/1.2\r\nHost: a\r\n\r\n",
    "version 2.0": b"GET /plain HTTP/2.0\r\nHost: a\r\n\r\n",
    "version 0.9": b"GET /plain HTTP/0.9\r\nHost: a\r\n\r\n",
    "version 1.10": b"GET /plain HTTP/1.10\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD)
@scenario
async def test_it_is_refused(name: str) -> None:
    async with running(echo) as router:
        client = await router.send(BAD[name], request("/smuggled"))
        answer = await client.recv_response()
        assert answer.status in (400, 501, 505), answer
        answer.error()
        await client.expect_close()
        assert not client.unread
        assert not router.replica.requests
        assert not router.replica.sessions
        (line,) = await router.log()
        assert line["attempts"] == 0


@pytest.mark.parametrize("value", [b"caf\xc3\xa9", b"\xff\xfe", b"a\tb"])
@scenario
async def test_what_a_value_may_hold_is_forwarded_as_it_is(value: bytes) -> None:
    async with running(echo) as router:
        assert (await router.ask(LINE + HOST + b"X: " + value + b"\r\n\r\n")).status == 200
        assert b": " + value + b"\r\n" in router.replica.sessions[0].received
