"""Serves /pooling, /score and /rerank. Requests are only prefilled; answers depend on the text.

`Embeddings`: serves /v1/embeddings: a request is only prefilled. The vectors depend only on the
text.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from secrets import token_hex
from time import time
from typing import Any

from aiohttp import web

from router.lab.emulator.engine import Engine
from router.lab.emulator.http import text
from router.lab.emulator.http.bodies import (
    Body,
    EmbeddingBody,
    PoolingBody,
    Refusal,
    RerankBody,
    ScoreBody,
    pair,
)
from router.lab.emulator.http.faults import Faults
from router.lab.emulator.http.generate import Generation
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.sse import Stream, forever, json_value

_DIMENSIONS = 32


class Pooling:
    """The handlers of /pooling, /score and /rerank. /v1/embeddings also uses `prefill`."""

    def __init__(self, engine: Engine, generation: Generation) -> None:
        self._engine = engine
        self._generation = generation

    def add_routes(self, router: web.UrlDispatcher) -> None:
        routes = self._generation.persona.routes
        if "pooling" in routes:
            router.add_post("/pooling", self.pooling)
        if "score" in routes:
            for path in ("/score", "/v1/score"):
                router.add_post(path, self.score)
        if "rerank" in routes:
            for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
                router.add_post(path, self.rerank)

    async def pooling(self, request: web.Request) -> web.StreamResponse:
        faults = await self._generation.begin(request)
        body = await self._generation.read(request, PoolingBody)
        inputs = body.inputs()
        tokens = await self.prefill(request, body, inputs, faults)
        rows = [
            {"index": index, "object": "pooling", "data": vector(data, _DIMENSIONS)}
            for index, data in enumerate(inputs)
        ]
        return json_value(self._list("pool-", body, rows, tokens))

    async def score(self, request: web.Request) -> web.StreamResponse:
        faults = await self._generation.begin(request)
        body = await self._generation.read(request, ScoreBody)
        pairs = body.pairs()
        tokens = await self.prefill(request, body, pairs, faults)
        rows = [
            {"index": index, "object": "score", "score": relevance(data)}
            for index, data in enumerate(pairs)
        ]
        return json_value(self._list("score-", body, rows, tokens))

    async def rerank(self, request: web.Request) -> web.StreamResponse:
        faults = await self._generation.begin(request)
        body = await self._generation.read(request, RerankBody)
        documents = body.texts()
        if not documents:
            raise Refusal(400, "documents must not be empty", "BadRequestError", "documents")
        pairs = [pair(body.query, document) for document in documents]
        tokens = await self.prefill(request, body, pairs, faults)
        results = [
            {
                "index": index,
                "document": {"text": document, "multi_modal": None},
                "relevance_score": relevance(data),
            }
            for index, (document, data) in enumerate(zip(documents, pairs, strict=True))
        ]
        results.sort(key=lambda row: (-float(str(row["relevance_score"])), row["index"]))
        most = body.top_n if body.top_n and body.top_n > 0 else len(results)
        return json_value(
            {
                "id": "rerank-" + token_hex(8),
                "model": self._generation.prepare.check_model(body.model),
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
                "results": results[:most],
            }
        )

    async def prefill(
        self, request: web.Request, body: Body, inputs: list[bytes], faults: Faults
    ) -> int:
        """Prefill all inputs and return their number of tokens.

        Raises Refusal if an input is invalid or the queue is full.
        """
        rank = self._generation.rank(request, body)
        prepare = self._generation.prepare
        jobs: list[Job] = [prepare.pooling(body, data, rank) for data in inputs]
        if jobs:
            self._generation.persona.admit(jobs[0])
        if faults.hang:
            await forever()
        if faults.die_after is not None:
            await Stream(request).die()
        late_s = self._engine.late_s(jobs, faults)
        if late_s:
            await asyncio.sleep(late_s)
        try:
            for job in jobs:
                self._engine.submit(job)
            if not all(await asyncio.gather(*(job.done for job in jobs))):
                await Stream(request).die()  # the engine has died
        finally:
            for job in jobs:
                self._engine.abort(job)
        return sum(job.prompt_tokens for job in jobs)

    def _list(
        self, prefix: str, body: Body, rows: list[dict[str, Any]], tokens: int
    ) -> dict[str, Any]:
        return {
            "id": prefix + token_hex(8),
            "object": "list",
            "created": int(time()),
            "model": self._generation.prepare.check_model(body.model),
            "data": rows,
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }


def relevance(data: bytes) -> float:
    """The relevance of a pair of texts, between 0 and 1."""
    return text.seed_of(data) / 2**64


def vector(data: bytes, dimensions: int) -> list[float]:
    """A vector of unit length that depends only on `data`."""
    seed = text.seed_of(data)
    values = []
    for _ in range(dimensions):
        # The linear congruential generator of Knuth's MMIX.
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((seed >> 32) / 2**31 - 1.0)
    norm = sum(value * value for value in values) ** 0.5 or 1.0
    return [value / norm for value in values]


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
