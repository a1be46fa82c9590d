"""Serves /v1/embeddings: a request is only prefilled. The vectors depend only on the text."""

from __future__ import annotations

import base64
import struct
from secrets import token_hex
from time import time

from aiohttp import web

from router.lab.emulator.http.bodies import EmbeddingBody, Refusal
from router.lab.emulator.http.generate import Generation
from router.lab.emulator.http.pooling import Pooling, vector
from router.lab.emulator.http.replies import json_value

_DIMENSIONS = 32
_MOST_DIMENSIONS = 4096


class Embeddings:
    def __init__(self, generation: Generation, pooling: Pooling) -> None:
        self._generation = generation
        self._pooling = pooling

    def add_routes(self, router: web.UrlDispatcher) -> None:
        if "embeddings" in self._generation.persona.routes:
            router.add_post("/v1/embeddings", self.embeddings)

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        faults = await self._generation.begin(request)
        body = await self._generation.read(request, EmbeddingBody)
        model = self._generation.prepare.check_model(body.model)
        dimensions = _DIMENSIONS if body.dimensions is None else body.dimensions
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            message = f"dimensions must be within 1 and {_MOST_DIMENSIONS}"
            raise Refusal(400, message, "BadRequestError", "dimensions")
        inputs = body.inputs()
        tokens = await self._pooling.prefill(request, body, inputs, faults)
        answer = {
            "id": "embd-" + token_hex(8),
            "object": "list",
            "created": int(time()),
            "model": model,
            "data": [
                {
                    "index": index,
                    "object": "embedding",
                    "embedding": _embedding(data, dimensions, body.encoding_format),
                }
                for index, data in enumerate(inputs)
            ],
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }
        return json_value(answer)


def _embedding(data: bytes, dimensions: int, encoding_format: str | None) -> list[float] | str:
    """An embedding as floats or base64 (the OpenAI SDK's default): little-endian 32-bit floats."""
    values = vector(data, dimensions)
    if encoding_format == "base64":
        return base64.b64encode(struct.pack(f"<{dimensions}f", *values)).decode()
    return values
