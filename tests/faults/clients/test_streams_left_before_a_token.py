"""A client that disconnects before any content is charged for its prompt.

A request is free only if no engine has worked for it.
"""

from pathlib import Path
from typing import Any

import pytest

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Prefix, Queue
from router.core.errors import Reason
from router.dispatch.usage.token_counts import UNKNOWN, Usage
from router.intake.body import SCAN_ABOVE
from tests.harness.behaviours import hang, stream_then_hang
from tests.harness.messages import SSE_HEAD, chat, chunk, head, role, token
from tests.harness.replica import Behaviour, ReplicaConnection, eventually, rest
from tests.harness.running import Router, assert_error, routed, running, scenario

ACME = "Authorization: Bearer acme-key"
LONG = [
    {"role": "user", "content": "x" * 6000}
]  # a prompt of more than half of what the key may use per minute


async def shows_a_role(connection: ReplicaConnection) -> None:
    """A stream that begins without content."""
    await connection.recv_request()
    await connection.send(SSE_HEAD, chunk(role()))
    await connection.expect_close()


async def refuses_slowly(connection: ReplicaConnection) -> None:
    """Send the head of a refusal, and never its body."""
    await connection.recv_request()
    await connection.send(head("HTTP/1.1 400 Bad Request", ["Content-Length: 100"]))
    await connection.expect_close()


def keys(folder: Path) -> Keys:
    path = folder / "keys.jsonl"
    line = KeyLine(name="acme", hash=hash_of(b"acme-key"), tokens_per_minute=2000)
    path.write_text(line_of(line) + "\n")
    return Keys(file=str(path))


async def leave(router: Router, **body: Any) -> None:
    """Send the request, and disconnect as soon as the replica has it."""
    had = len(router.replica.requests)
    client = await router.send(chat(ACME, **body))
    await router.replica.wait_for_requests(had + 1)
    await rest(0.05)  # the router reads what the replica has sent
    client.rst()
    await eventually(lambda: not router.app.parts.dispatcher.exchanges, "the request is over")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ["passes", "waits"])
@pytest.mark.parametrize("behave", [hang, shows_a_role])
@scenario
async def test_prompts_that_are_left_use_up_the_limit(
    tmp_path: Path, behave: Behaviour, path: str, stream: bool
) -> None:
    rules = Queue(enabled=path == "waits")
    async with running(behave, keys=keys(tmp_path), prefix=Prefix(), queue=rules) as router:
        await leave(router, stream=stream, messages=LONG)
        answer = await router.ask(chat(ACME, stream=stream, messages=LONG), "POST")
        assert_error(answer, Reason.KEY_TOKENS)


@routed(refuses_slowly)
async def test_a_request_that_an_engine_refused_is_not_charged(router: Router) -> None:
    found = router.usages()
    await leave(router, stream=True, messages=LONG)
    assert found == [UNKNOWN]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@scenario
async def test_a_prompt_that_was_not_measured_is_estimated_from_its_bytes(stream: bool) -> None:
    """The prompt of a body too large to be decoded is unknown."""
    async with running(hang, prefix=Prefix()) as router:
        found = router.usages()
        messages = [{"role": "user", "content": "x" * SCAN_ABOVE}]
        await leave(router, stream=stream, messages=messages)
        (usage,) = found
        assert usage.prompt_tokens is not None
        assert usage.prompt_tokens >= SCAN_ABOVE // 4


@scenario
async def test_a_large_prompt_is_counted_when_its_stream_is_left_later() -> None:
    async with running(stream_then_hang(role(), token("a")), prefix=Prefix()) as router:
        found = router.usages()
        client = await router.client()
        messages = [{"role": "user", "content": "x" * SCAN_ABOVE}]
        await client.send(chat(stream=True, messages=messages))
        await client.recv_until(b'"a"')
        client.rst()
        await eventually(lambda: bool(found), "the request is over")
        assert found[0] == Usage(found[0].prompt_tokens, 1, None, False)
        assert (found[0].prompt_tokens or 0) >= SCAN_ABOVE // 4
