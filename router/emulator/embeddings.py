"""/v1/embeddings: prefill and nothing else; vectors that depend on the text alone."""

from __future__ import annotations

import asyncio
import base64
import struct
from secrets import token_hex
from time import time

from aiohttp import web

from router.emulator import text
from router.emulator.bodies import EmbeddingBody, Refusal, decode
from router.emulator.engine import Job
from router.emulator.generate import Generation, json_response
from router.emulator.shapes.base import encode
from router.emulator.sse import Stream, forever

_DIMENSIONS = 32
_MOST_DIMENSIONS = 4096


class Embeddings:
    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._engine = generation.engine

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/embeddings", self.embeddings)

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        faults = await self._generation.begin(request)
        body = decode(await request.read(), EmbeddingBody)
        model = self._generation.check_model(body.model)
        dimensions = _DIMENSIONS if body.dimensions is None else body.dimensions
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            message = f"dimensions must be within 1 and {_MOST_DIMENSIONS}"
            raise Refusal(400, message, "BadRequestError", "dimensions")
        inputs = body.inputs()
        jobs = [self._job(data, model, body.priority) for data in inputs]
        if faults.hang:
            await forever()
        if faults.die_after is not None:
            await Stream(request).die()
        try:
            for job in jobs:
                self._engine.submit(job)
            await asyncio.gather(*(job.done for job in jobs))
        finally:
            for job in jobs:
                self._engine.abort(job)
        tokens = sum(job.prompt_tokens for job in jobs)
        answer = {
            "id": "embd-" + token_hex(8),
            "object": "list",
            "created": int(time()),
            "model": model,
            "data": [
                {
                    "index": index,
                    "object": "embedding",
                    "embedding": _vector(data, dimensions, body.encoding_format),
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
        return json_response(encode(answer))

    def _job(self, data: bytes, model: str, priority: int) -> Job:
        tokens = len(data) // text.TOKEN_BYTES
        self._generation.check_length(tokens)
        hashes = text.block_hashes(data, self._engine.settings.block_size, model)
        return Job(self._generation.job_id(), tokens, b"", 0, "stop", hashes, priority)


def _vector(data: bytes, dimensions: int, encoding_format: str | None) -> list[float] | str:
    """A unit vector; base64 is what the OpenAI SDK asks for, little-endian 32-bit floats."""
    seed = text.seed_of(data)
    values = []
    for _ in range(dimensions):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64  # Knuth's MMIX
        values.append((seed >> 32) / 2**31 - 1.0)
    norm = sum(value * value for value in values) ** 0.5 or 1.0
    values = [value / norm for value in values]
    if encoding_format == "base64":
        return base64.b64encode(struct.pack(f"<{dimensions}f", *values)).decode()
    return values
