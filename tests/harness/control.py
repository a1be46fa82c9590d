"""A hostile replica's answers to probes and polls: those of a recent vLLM.

The router sends these requests over its own connections, many times during a test. They must never
reach a scripted behaviour and never appear among the requests of the data path. A test changes an
answer through the attributes, or replaces a path's answers with `at`. `anonymous` is a server that
does not identify its engine and has no metrics.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.harness.messages import json_response, response
from tests.harness.reading import Request

if TYPE_CHECKING:
    from tests.harness.replica import ReplicaConnection

HEALTH, MODELS, METRICS = "/health", "/v1/models", "/metrics"
PATHS = frozenset({HEALTH, MODELS, METRICS, "/version", "/ping"})

Answer = Callable[["ReplicaConnection"], Awaitable[None]]

# The router takes two engines with the same start time (to 0.01 s) for one engine.
_IMPORTED_AT = time.time()
_STARTS = itertools.count()


class Control:
    """The answers of one replica."""

    def __init__(
        self,
        *,
        models: tuple[str, ...] = ("m",),
        status: int = 200,
        owned_by: str = "vllm",
        at: dict[str, Answer] | None = None,
    ) -> None:
        self.models = models
        self.status = status  # status of the answers about health and models
        self.owned_by = owned_by
        self.at = at or {}  # behaviour that answers instead, once per request, by path
        self.started_at = 0.0
        self.started()

    def started(self) -> None:
        """Mark the engine's process as newly started, with a start time of its own."""
        self.started_at = _IMPORTED_AT - 100_000.0 + next(_STARTS)

    def is_question(self, request: Request) -> bool:
        return request.method == "GET" and request.target.partition("?")[0] in PATHS

    async def answer(self, connection: ReplicaConnection, request: Request) -> None:
        """Answer one probe or poll."""
        path = request.target.partition("?")[0]
        other = self.at.get(path)
        if other is not None:
            await other(connection)
        elif path == METRICS:
            page = self.page(connection.replica.load)
            await connection.send(response(200, body=page, content_type="text/plain"))
        elif path == MODELS:
            await connection.send(json_response(self.model_list(), self.status))
        else:
            await connection.send(response(self.status))

    def model_list(self) -> dict[str, object]:
        data = [
            {"id": model, "object": "model", "created": 1, "owned_by": self.owned_by}
            for model in self.models
        ]
        return {"object": "list", "data": data}

    def page(self, load: Load) -> bytes:
        """A page of metrics; all requests of this engine run, and none waits."""
        name = self.models[0] if self.models else ""
        labels = f'engine="0",model_name="{name}"'
        lines = [
            f"process_start_time_seconds {self.started_at}",
            f"vllm:num_requests_running{{{labels}}} {load.running}",
            f"vllm:num_requests_waiting{{{labels}}} 0",
            f'vllm:engine_sleep_state{{{labels},sleep_state="awake"}} 1.0',
            f"vllm:kv_cache_usage_perc{{{labels}}} {min(0.5, load.prompt_tokens / 500_000)}",
            f"vllm:prefix_cache_queries_total{{{labels}}} {load.prompt_tokens}",
            f"vllm:prefix_cache_hits_total{{{labels}}} 0",
            f"vllm:num_preemptions_total{{{labels}}} 0",
            f"vllm:prompt_tokens_total{{{labels}}} {load.prompt_tokens}",
            f"vllm:generation_tokens_total{{{labels}}} {load.generated}",
            'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="31250"} 1.0',
        ]
        return "\n".join([*lines, ""]).encode()


async def _not_found(connection: ReplicaConnection) -> None:
    await connection.send(response(404))


def anonymous() -> Control:
    """An engine that no answer names: the router may assume nothing about it."""
    return Control(owned_by="test", at={METRICS: _not_found})


class Load:
    """A replica's running and finished work, as shown by its metrics."""

    def __init__(self) -> None:
        self.running = 0  # number of requests that were read and whose answers have not ended
        self.requests = 0  # total number of requests
        self.prompt_tokens = 0
        self.generated = 0
