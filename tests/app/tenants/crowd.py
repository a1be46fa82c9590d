"""Many requests at once to an engine that generates as much as they allow."""

import asyncio
from typing import Any

from tests.app.tenants.acme import ACME
from tests.harness.messages import json_response, post_json
from tests.harness.reading import Response
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router

CROWD = 40
MOST = 1000  # the output of an answer without a limit


class Generous:
    """An engine that always generates as much as a request allows."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.tokens = 0
        self.asked = 0

    async def __call__(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            self.asked += 1
            await self.go.wait()
            body = asked.json()
            prompt = body.get("prompt")
            prompts = len(prompt) if isinstance(prompt, list) and type(prompt[0]) is not int else 1
            output = body.get("max_tokens", MOST) * body.get("n", 1) * prompts
            self.tokens += output + prompts
            usage = {"prompt_tokens": prompts, "completion_tokens": output}
            await connection.send(json_response({"id": "c", "choices": [], "usage": usage}))


async def crowd(
    router: Router, engine: Generous, path: str, body: dict[str, Any]
) -> list[Response]:
    """The answers to many requests that are sent at once."""
    clients = [await router.client() for _ in range(CROWD)]
    for client in clients:
        await client.send(post_json(path, {"model": "m", **body}, ACME))
    before = engine.asked
    await eventually(
        lambda: len(router.lines()) + engine.asked - before >= CROWD, "every request has come"
    )
    engine.go.set()
    return [await client.recv_response("POST") for client in clients]


CHAT = {"messages": [{"role": "user", "content": "x"}]}
