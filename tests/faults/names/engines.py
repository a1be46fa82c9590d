"""Engines that answer with the model's name that they were asked for, as vLLM does."""

import json
from typing import Any

from router.config.load import parse
from router.config.model import Config
from tests.harness.messages import DONE, LAST_CHUNK, SSE_HEAD, chunk, event, json_response
from tests.harness.reading import Request
from tests.harness.replica import HostileReplica, ReplicaConnection


class Engine(HostileReplica):
    """Serves `models`, and answers each request with `status` and the model of its body."""

    def __init__(self, *models: str) -> None:
        super().__init__(self.answer, models=models)
        self.status = 200

    async def answer(self, connection: ReplicaConnection) -> None:
        while (request := await connection.recv_request()) is not None:
            body = json.loads(request.body)
            if self.status != 200:
                error = {"error": {"message": "no", "type": "error", "code": self.status}}
                await connection.send(json_response(error, self.status))
            elif body.get("stream"):
                await connection.send(SSE_HEAD)
                for text in ("", "one", "two"):
                    await connection.send(chunk(tokens(body["model"], text)))
                await connection.send(chunk(DONE), LAST_CHUNK)
            else:
                await connection.send(json_response(answer(body["model"])))

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    @property
    def asked(self) -> list[str]:
        """The models of all requests."""
        return [json.loads(body)["model"] for body in self.bodies]

    @property
    def last(self) -> Request:
        return self.requests[-1]


def tokens(model: str, text: str) -> bytes:
    """One chat completion event; no text: only the role."""
    delta = {"content": text} if text else {"role": "assistant"}
    return event({"id": "1", "model": model, "choices": [{"index": 0, "delta": delta}]})


def answer(model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": "hi"}
    return {
        "id": "1",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def settings(**sections: Any) -> dict[str, Any]:
    """Sections of a configuration file, as `running` takes them."""
    config: Config = parse("", sections, serves=False)
    return {name: getattr(config, name) for name in sections}
