"""Small servers that act as engines and whose answers can be changed while they serve."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.harness.messages import response
from tests.harness.replica import Behaviour, HostileReplica, ReplicaConnection

Answers = dict[str, bytes | None]  # answers by path; None: the server does not answer


def models(*names: str) -> bytes:
    data = [{"id": name, "object": "model"} for name in names]
    return response(200, "Connection: close", body=json.dumps({"data": data}).encode())


OK = response(200, "Connection: close")
WELL: Answers = {"/health": OK, "/v1/models": models("m")}


class Engine:
    """A server whose answers can be changed, and that records its requests."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.fields: list[dict[str, str]] = []
        self.server = HostileReplica(self.behave, asked_apart=False)

    async def behave(self, connection: ReplicaConnection) -> None:
        while request := await connection.recv_request():
            self.asked.append(request.target)
            self.fields.append(dict(request.headers))
            answer = self.answers.get(request.target, response(404, "Connection: close"))
            if answer is not None:
                await connection.send(answer)


@asynccontextmanager
async def serving(answers: Answers | Behaviour) -> AsyncIterator[Engine]:
    engine = Engine(answers if isinstance(answers, dict) else {})
    if not isinstance(answers, dict):
        engine.server.behave = answers
    engine.server.start()
    try:
        yield engine
    finally:
        await engine.server.stop()
        assert not engine.server.failures
