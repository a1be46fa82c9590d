"""Coding agents name their sessions in fields of their own; no client has to be changed."""

import json
from typing import Any

import pytest

from router.core.session_names import MAX_SESSION, SESSION_HEADERS, SESSION_MEMBERS
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat, post_json
from tests.harness.running import Router, routed

CLAUDE_METADATA = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": "one"})
LONG = "s" * (MAX_SESSION + 1)
# The fields and the members of a request, and its session.
CASES: list[tuple[tuple[str, ...], dict[str, Any], str | None]] = [
    *(((f"{name.decode()}: one",), {}, "one") for name, _, _ in SESSION_HEADERS),
    *(((), {name: {at: "one"} if at else "one"}, "one") for name, at, _ in SESSION_MEMBERS),
    ((), {"metadata": {"user_id": CLAUDE_METADATA}}, CLAUDE_METADATA),
    # The first field of the table counts, whatever the order in the request is.
    (("session_id: two", "X-Claude-Code-Session-Id: one"), {"user": "three"}, "one"),
    (("x-session-affinity: two", "x-session-id: one"), {}, "one"),
    # Values that are empty or too long do not count.
    (("x-session-id:", "session-id: one"), {"user": "two"}, "one"),
    ((f"x-session-id: {LONG}", f"session-id: {LONG}"), {"user": "one"}, "one"),
    ((), {"prompt_cache_key": LONG, "metadata": {"user_id": "one"}}, "one"),
    ((), {"metadata": {"user_id": "one", "more": "m" * 5000}}, None),
    ((), {"metadata": {"user_id": ["one"]}}, None),
    ((), {"metadata": "one"}, None),
    ((), {}, None),
]


@routed(json_ok, access_log={"salt": "s"})
async def test_each_of_them_names_the_session(router: Router) -> None:
    for fields, members, _ in CASES:
        assert (await router.ask(chat(*fields, **members))).status == 200
    salter = router.app.parts.log.salter
    lines = await router.log(len(CASES))
    for line, (fields, members, session) in zip(lines, CASES, strict=True):
        expected = None if session is None else salter.name(session.encode())
        assert (line.get("session") or None) == expected, (fields, members)


@routed(json_ok, access_log={"salt": "s"})
async def test_a_large_body_names_it_too(router: Router) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [], "system": "a" * 2_000_000}
    body["metadata"] = {"user_id": "one"}
    assert (await router.ask(post_json("/v1/messages", body))).status == 200
    (line,) = await router.log()
    assert line["session"] == router.app.parts.log.salter.name(b"one")


@pytest.mark.parametrize(("name", "passes"), [row[:2] for row in SESSION_HEADERS])
@routed(json_ok)
async def test_the_engine_gets_the_usual_fields(router: Router, name: bytes, passes: bool) -> None:
    await router.ask(chat(f"{name.decode()}: one"))
    (request,) = router.replica.requests
    assert request.header(name.decode()) == ("one" if passes else None)
