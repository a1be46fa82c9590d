"""Emulates llama.cpp's server: it has a few slots and no priorities, and it sends a stream's head
with the first token.

If a request has the header `X-Conversation-Id`, the server continues to generate after a
disconnect. Even `DELETE /v1/stream` does not stop the generation. The server's metrics have no
labels. A metric is NaN if nothing was measured yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from router.lab.emulator.http.bodies import Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.personas.base import Killer, Leaving, Persona, now_s
from router.lab.emulator.http.personas.exposition import Exposition
from router.lab.emulator.http.shapes.base import Shape, Usage
from router.lab.emulator.http.shapes.openai import OpenAiShape, Style
from router.lab.emulator.http.sse import json_value

# llama.cpp's HTTP_POLLING_SECONDS: the interval at which it checks for disconnected clients.
_POLL_S = 1.0
_TYPES = {
    400: "invalid_request_error",
    404: "not_found_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def _error(status: int, message: str) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error")
    return {"error": {"code": status, "message": message, "type": kind}}


_STYLE = Style(
    role_alone=True,
    opening_content=None,
    end_alone=True,
    chunk_fields={"system_fingerprint": "b7100-emulated"},
    error=_error,
    has_done_after_error=False,
)


class LlamaCpp(Persona):
    name = "llamacpp"
    reserves_output = True
    version = "b7100-emulated"
    owned_by = "llamacpp"
    tokenize_paths = ("/tokenize",)
    routes = frozenset({"chat", "completions", "messages", "responses", "embeddings", "rerank"})
    head_with_first_token = True
    comment = b":\n\n"
    keep_alive_s = 30.0

    def add_routes(self, router: web.UrlDispatcher, delivery: Killer) -> None:
        for path in ("/health", "/v1/health"):
            router.add_get(path, self._health)
        router.add_get("/props", self._props)
        router.add_get("/slots", self._slots)
        router.add_get("/metrics", self.answer_metrics)
        router.add_delete("/v1/stream", self._forget)

    def model_row(self, model: str, created: int) -> dict[str, Any]:
        return {
            "id": model,
            "object": "model",
            "created": now_s(),
            "owned_by": self.owned_by,
            "meta": {
                "n_ctx_train": self.settings.max_model_len,
                "n_ctx": self.settings.max_model_len,
            },
        }

    def tokenized(self, tokens: tuple[int, ...], texts: list[str]) -> Any:
        return {"tokens": tokens}

    def leaving(self, headers: Mapping[str, str], is_stream: bool, after_s: float) -> Leaving:
        if is_stream and headers.get("x-conversation-id"):
            return Leaving(None)
        return Leaving(_POLL_S - after_s % _POLL_S)

    def chat(self, id: str, model: str, created: int, jobs: list[Job], usage: Usage) -> Shape:
        return OpenAiShape(_STYLE, True, id, model, created, jobs, usage, self._timings)

    def completion(
        self, id: str, model: str, created: int, jobs: list[Job], usage: Usage, echo: str
    ) -> Shape:
        return OpenAiShape(_STYLE, False, id, model, created, jobs, usage, self._timings, echo)

    def refusal(self, refusal: Refusal) -> web.Response:
        # llama.cpp answers a body that is not JSON with the text of its own exception.
        status = 500 if "json_invalid" in refusal.message else refusal.status
        return json_value(_error(status, refusal.message), status)

    def _timings(self, jobs: list[Job]) -> dict[str, Any]:
        job, clock = jobs[0], self.engine.core.clock
        prompt_s = max(job.first_token_at - job.started_at, 0.0)
        predicted_s = max(clock - job.first_token_at, 0.0)
        computed = job.prompt_tokens - job.cached_tokens
        return {
            "cache_n": job.cached_tokens,
            "prompt_n": computed,
            "prompt_ms": prompt_s * 1e3,
            "prompt_per_second": computed / prompt_s if prompt_s else None,
            "predicted_n": job.output_tokens,
            "predicted_ms": predicted_s * 1e3,
            "predicted_per_second": job.output_tokens / predicted_s if predicted_s else None,
        }

    # Endpoints.

    async def _health(self, _: web.Request) -> web.Response:
        if self.health_status == 200:
            return json_value({"status": "ok"})
        return json_value(_error(self.health_status, "Loading model"), self.health_status)

    async def _props(self, _: web.Request) -> web.Response:
        return json_value(
            {
                "default_generation_settings": {"n_ctx": self.settings.max_model_len},
                "total_slots": self.settings.max_num_seqs,
                "model_path": self.model,
                "build_info": self.version,
            }
        )

    async def _slots(self, request: web.Request) -> web.Response:
        core, total = self.engine.core, self.settings.max_num_seqs
        rows = core.rows()
        if request.query.get("fail_on_no_slot") and len(rows) >= total:
            return json_value(_error(503, "no slot available"), 503)
        slots = []
        for index in range(total):
            job = rows[index] if index < len(rows) else None
            made = core.generated(job) if job else 0
            left = job.output_tokens - made if job else -1
            slots.append(
                {
                    "id": index,
                    "id_task": int(job.id) if job else -1,
                    "n_ctx": self.settings.max_model_len,
                    "speculative": False,
                    "is_processing": job is not None,
                    "params": {},
                    "next_token": {
                        "has_next_token": job is not None,
                        "n_remain": left,
                        "n_decoded": made,
                    },
                }
            )
        return json_value(slots)

    async def _forget(self, _: web.Request) -> web.Response:
        """Delete a stream. It can no longer be resumed, but its generation continues."""
        return web.Response(status=204)

    async def answer_metrics(self, request: web.Request) -> web.Response:
        if not self.settings.metrics:
            message = "This server does not support metrics endpoint. Start it with `--metrics`"
            return json_value(_error(501, message), 501)
        return await super().answer_metrics(request)

    def exposed(self) -> str:
        core, stats = self.engine.core, self.engine.stats
        out = Exposition("llamacpp:", {})
        made, spent_s = core.generation_tokens, stats.inter_token.sum
        computed, prefill_s = core.prompt_tokens - core.prefix_hits, stats.ttft.sum
        nan = float("nan")
        out.counter("prompt_tokens_total", computed, "Number of prompt tokens processed.")
        out.counter("prompt_seconds_total", prefill_s, "Prompt process time")
        out.counter("tokens_predicted_total", made, "Number of generation tokens processed.")
        out.counter("tokens_predicted_seconds_total", spent_s, "Predict process time")
        out.counter("n_decode_total", core.steps, "Total number of llama_decode() calls")
        out.counter("n_tokens_max", core.kv.peak * core.kv.block_size, "Largest observed n_tokens.")
        busy = made / core.steps if core.steps else 0.0
        out.counter(
            "n_busy_slots_per_decode",
            busy,
            "Average number of busy slots per llama_decode() call",
        )
        out.gauge(
            "prompt_tokens_seconds",
            computed / prefill_s if prefill_s else nan,
            "Average prompt throughput in tokens/s.",
        )
        out.gauge(
            "predicted_tokens_seconds",
            made / spent_s if spent_s else nan,
            "Average generation throughput in tokens/s.",
        )
        out.gauge("requests_processing", core.running, "Number of requests processing.")
        out.gauge("requests_deferred", core.waiting, "Number of requests deferred.")
        return out.text()


PERSONA = LlamaCpp
