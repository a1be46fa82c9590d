"""The access log has what a replay needs of each request, and never text of its prompt."""

from __future__ import annotations

import base64
import json

from tests.harness.behaviours import json_ok
from tests.harness.messages import post_json
from tests.harness.running import Line, running, scenario

PROMPT = "a secret that nobody may read in a log, " * 60  # four blocks of 512 bytes and a remainder


async def logged(
    prompt: str = PROMPT, log: dict[str, object] | None = None, **fields: object
) -> list[Line]:
    """The log lines of two equal requests."""
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **fields}
    async with running(json_ok, access_log=log or {}) as router:
        client = await router.client()
        for _ in range(2):
            headers = ("Authorization: Bearer k-1", "X-Session-Id: s-1", "X-Priority: low")
            await client.send(post_json("/v1/chat/completions", body, *headers))
            assert (await client.recv_response()).status == 200
        lines = await router.log(2)
    text = json.dumps(lines)
    assert "secret" not in text and "k-1" not in text and "s-1" not in text
    return lines


@scenario
async def test_equal_requests_say_so() -> None:
    first, second = await logged()
    for name in ("tenant", "session", "blocks", "class", "estimated_tokens"):
        assert first[name] == second[name]
    assert len(base64.b64decode(first["blocks"])) == 2 * 6
    assert first["class"] == "low"
    assert 400 < first["estimated_tokens"] < 800


@scenario
async def test_as_many_blocks_as_asked_for() -> None:
    first, _ = await logged(log={"blocks": 1})
    assert len(base64.b64decode(first["blocks"])) == 1 * 6
    first, _ = await logged(log={"blocks": 0})
    assert "blocks" not in first


@scenario
async def test_another_prompt_begins_as_this_one_does() -> None:
    (mine, _), (other, _) = (
        await logged(log={"salt": "x"}),
        await logged(PROMPT[:1500] + "and then something else " * 60, log={"salt": "x"}),
    )
    one, two = base64.b64decode(mine["blocks"]), base64.b64decode(other["blocks"])
    assert one[:6] == two[:6]
    assert one[6:] != two[6 : len(one)]


@scenario
async def test_the_bodys_class_comes_first() -> None:
    first, _ = await logged("hi", priority="high")
    assert first["class"] == "high"
