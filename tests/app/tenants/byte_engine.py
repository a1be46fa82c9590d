"""An engine whose tokenizer has one byte per token. It merges several tokens into an event.

It keeps totals of the tokens that it has read and generated, as engines do in their metrics.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from tests.harness.ports import free_port

_TOKEN_S: Final = 0.002
_TEXT: Final = "the lighthouse keeper wrote a letter. "


class ByteEngine:
    def __init__(self, interval: int) -> None:
        self.interval = interval  # tokens per event
        self.prompt_tokens = self.generation_tokens = self.running = 0
        self.url = ""

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        prompt = sum(len(message["content"]) for message in body["messages"])
        self.prompt_tokens += prompt
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self.running += 1
        try:
            await response.prepare(request)
            done = 0
            await response.write(_event({"delta": {"role": "assistant", "content": ""}}))
            while done < body["max_tokens"]:
                # As engines do, the first event has one token.
                count = min(self.interval if done else 1, body["max_tokens"] - done)
                await asyncio.sleep(count * _TOKEN_S)
                self.generation_tokens += count
                text = "".join(_TEXT[(done + n) % len(_TEXT)] for n in range(count))
                done += count
                await response.write(_event({"delta": {"content": text}}))
            if (body.get("stream_options") or {}).get("include_usage") is True:
                usage = {"prompt_tokens": prompt, "completion_tokens": done}
                await response.write(_event(usage=usage | {"total_tokens": prompt + done}))
            await response.write(b"data: [DONE]\n\n")
        finally:
            self.running -= 1
        return response

    async def metrics(self, _: web.Request) -> web.Response:
        lines = (
            f'vllm:num_requests_running{{model_name="m"}} {self.running}.0',
            'vllm:num_requests_waiting{model_name="m"} 0.0',
            f'vllm:prompt_tokens_total{{model_name="m"}} {self.prompt_tokens}.0',
            f'vllm:generation_tokens_total{{model_name="m"}} {self.generation_tokens}.0',
        )
        return web.Response(text="\n".join(lines) + "\n")


def _event(choice: dict[str, Any] | None = None, **members: Any) -> bytes:
    choices = [] if choice is None else [{"index": 0, "finish_reason": None, **choice}]
    found = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices}
    return b"data: " + json.dumps({**found, **members}).encode() + b"\n\n"


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})


async def _well(_: web.Request) -> web.Response:
    return web.Response()


@asynccontextmanager
async def byte_engine(interval: int) -> AsyncIterator[ByteEngine]:
    engine = ByteEngine(interval)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.generate)
    app.router.add_get("/metrics", engine.metrics)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/health", _well)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    engine.url = f"http://127.0.0.1:{port}"
    try:
        yield engine
    finally:
        await runner.cleanup()
