"""Requests with one cached system prompt wait in the order of arrival, whatever their token counts.

The router learns the bytes per token from the engine's counts, so the estimated tokens of the same
prefix differ a little between two requests.
"""

from __future__ import annotations

import json

import pytest

from tests.harness.messages import COMPLETION, json_response
from tests.harness.queueing import ONE, Turnstile, send
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import running, virtual_scenario

SYSTEM = {"role": "system", "content": "You are a helpful assistant. " * 300}


class Counting(Turnstile):
    """Counts a little more, or fewer, bytes per token in each answer."""

    def __init__(self, drift: float) -> None:
        super().__init__()
        self.ratio = 4.0
        self.drift = drift

    async def __call__(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            self.tags.append(json.loads(asked.body)["tag"])
            await self.permits.acquire()
            self.ratio *= self.drift
            tokens = int(len(asked.body) / self.ratio)
            usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
            await connection.send(json_response({**COMPLETION, "usage": usage}))


@pytest.mark.parametrize("drift", [0.97, 1.03])
@virtual_scenario
async def test_the_same_prefix_goes_by_arrival(drift: float) -> None:
    engine = Counting(drift)
    async with running(engine, replica=ONE) as router:
        clients = []
        for n in range(16):
            question = {"role": "user", "content": f"question {n}"}
            clients.append(await send(router, str(n), queued=n > 0, messages=[SYSTEM, question]))
            if n == 0:
                await eventually(lambda: engine.tags == ["0"], "the first one is sent")
            if n >= 4:
                engine.open()
                await eventually(lambda n=n: len(engine.tags) == n - 2, "the next one is sent")  # type: ignore[misc]
        engine.open(16)
        for client in clients:
            assert (await client.recv_response()).status == 200
        assert engine.tags == [str(n) for n in range(16)]
