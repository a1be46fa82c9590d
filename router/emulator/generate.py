"""The routes that generate: a body becomes a job for the engine, its tokens become the answer.

Whatever ends a handler (its client leaving cancels it) takes the job out of the engine with it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from secrets import token_hex
from time import time
from typing import Any

from aiohttp import web

from router.emulator import text
from router.emulator.bodies import (
    Body,
    ChatBody,
    CompletionBody,
    MessagesBody,
    Refusal,
    ResponsesBody,
    decode,
    error_body,
    render,
)
from router.emulator.engine import Engine, Job
from router.emulator.faults import FaultError, Faults
from router.emulator.shapes.base import Shape, encode
from router.emulator.shapes.chat import ChatShape
from router.emulator.shapes.completion import CompletionShape
from router.emulator.shapes.messages import MessagesShape
from router.emulator.shapes.responses import ResponsesShape
from router.emulator.sse import Stream, forever, reset

_BROKEN = "EngineCore encountered an issue. See stack trace for the root cause."
_STORED = 1024  # responses kept for GET /v1/responses/{id}; the oldest goes first


def json_response(body: bytes, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


class Generation:
    """Handlers of one engine's generating routes, and the responses it stored."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._jobs = 0
        self._stored: OrderedDict[str, tuple[dict[str, Any], list[Any]]] = OrderedDict()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/chat/completions", self.chat)
        router.add_post("/v1/completions", self.completions)
        router.add_post("/v1/messages", self.messages)
        router.add_post("/v1/responses", self.responses)
        router.add_get("/v1/responses/{id}", self.stored)

    # One handler a route.

    async def chat(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = decode(await request.read(), ChatBody)
        job = self._job(request, body, body.prompt_bytes())
        shape = ChatShape(_id(request, "chatcmpl-"), *self._made(body), job, body.wants_usage())
        return await self._answer(request, body, job, shape, faults)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = decode(await request.read(), CompletionBody)
        prompt = body.prompt_bytes()
        job = self._job(request, body, prompt)
        echo = prompt.decode("utf-8", "replace") if body.echo else ""
        id = _id(request, "cmpl-")
        shape = CompletionShape(id, *self._made(body), job, body.wants_usage(), echo)
        return await self._answer(request, body, job, shape, faults)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = decode(await request.read(), MessagesBody)
        job = self._job(request, body, body.prompt_bytes())
        shape = MessagesShape(_id(request, "chatcmpl-"), *self._made(body), job)
        return await self._answer(request, body, job, shape, faults)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = decode(await request.read(), ResponsesBody)
        turns = body.turns()
        if body.previous_response_id is not None:
            turns = self._find(body.previous_response_id)[1] + turns
            system = [{"role": "system", "content": body.instructions}] if body.instructions else []
            job = self._job(request, body, render(system + turns, body.tools))
        else:
            job = self._job(request, body, body.prompt_bytes())
        shape = ResponsesShape("resp_" + token_hex(8), *self._made(body), job, body)
        answer = await self._answer(request, body, job, shape, faults)
        if body.store is not False:
            spoken = {"role": "assistant", "content": shape.text()}
            self._stored[shape.id] = (shape.whole(), [*turns, spoken])
            if len(self._stored) > _STORED:
                self._stored.popitem(last=False)
        return answer

    async def stored(self, request: web.Request) -> web.StreamResponse:
        return json_response(encode(self._find(request.match_info["id"])[0]))

    # What they share.

    async def begin(self, request: web.Request) -> Faults:
        """Let go wrong what goes wrong before the body is even looked at."""
        try:
            faults = self.engine.faults.roll(request.headers.get("x-emulate-fault"))
        except FaultError as err:
            raise Refusal(400, f"x-emulate-fault: {err}", "BadRequestError") from None
        if faults.delay_s:
            await asyncio.sleep(faults.delay_s)
        if faults.reset:
            await reset(request)
        if faults.status:
            headers = {}
            if faults.retry_after_s is not None:
                headers["retry-after"] = str(faults.retry_after_s)
            body = error_body(faults.status, "an emulated fault", "EmulatedFault")
            raise Answered(json_response(body, faults.status, **headers))
        return faults

    def check_model(self, model: str | None) -> str:
        """The model that answers; none named means the first. Raises Refusal (404)."""
        models = self.engine.settings.models
        if model and model not in models:
            message = f"The model `{model}` does not exist. Valid aliases: {', '.join(models)}."
            raise Refusal(404, message, "NotFoundError", "model")
        return model or models[0]

    def check_length(self, prompt_tokens: int, output_tokens: int = 0) -> None:
        """Raises Refusal (400) for what the context cannot hold."""
        limit = self.engine.settings.max_model_len
        if prompt_tokens + max(output_tokens, 1) <= limit:
            return
        over = f"your prompt contains at least {prompt_tokens} input tokens"
        if prompt_tokens < limit:
            over = f"you requested {output_tokens} output tokens and {over}"
        else:
            over += ", which exceeds this limit even without any output tokens"
        message = (
            f"This model's maximum context length is {limit} tokens. However, {over}. "
            "Please reduce the length of the input prompt."
        )
        raise Refusal(400, message, "BadRequestError", "input_tokens")

    def job_id(self) -> str:
        self._jobs += 1
        return str(self._jobs)

    def _made(self, body: Body) -> tuple[str, int]:
        return self.check_model(body.model), int(time())

    def _job(self, request: web.Request, body: Body, prompt: bytes) -> Job:
        """Everything about the answer is settled here, before the first token is timed."""
        model = self.check_model(body.model)
        if body.n not in (None, 1):
            raise Refusal(400, "this engine makes one choice (n = 1)", "BadRequestError", "n")
        limit = body.limit()
        if limit is not None and limit < 1:
            raise Refusal(400, "max_tokens must be at least 1", "BadRequestError", "max_tokens")
        prompt_tokens = len(prompt) // text.TOKEN_BYTES
        self.check_length(prompt_tokens, limit or 0)
        room = self.engine.settings.max_model_len - prompt_tokens
        cap = room if limit is None else limit
        seed = text.seed_of(prompt)
        wanted = text.natural_tokens(seed, min(body.min_tokens or 0, cap))
        if body.ignore_eos:
            wanted = cap + 1
        tokens = min(wanted, cap)
        output = text.generate(seed, tokens)
        hashes = text.block_hashes(
            prompt + output,
            self.engine.settings.block_size,
            f"{model}\0{body.cache_salt or ''}",
        )
        reason = "stop" if wanted <= cap else "length"
        priority = _priority(request, body)
        return Job(self.job_id(), prompt_tokens, output, tokens, reason, hashes, priority)

    async def _answer(
        self, request: web.Request, body: Body, job: Job, shape: Shape, faults: Faults
    ) -> web.StreamResponse:
        cut = faults.die_after if faults.error_after is None else faults.error_after
        job.cut_after = cut
        if body.stream:
            return await self._stream(request, job, shape, faults)
        if faults.hang:
            await forever()
        self.engine.submit(job)
        try:
            finished = await job.done
        finally:
            self.engine.abort(job)
        if finished:
            return json_response(encode(shape.whole()))
        if faults.error_after is not None:
            raise Refusal(500, _BROKEN, "InternalServerError")
        await Stream(request).die()

    async def _stream(
        self, request: web.Request, job: Job, shape: Shape, faults: Faults
    ) -> web.StreamResponse:
        stream = Stream(request)
        stream.send(shape.preamble())
        last = job.output_tokens - 1
        output, width = job.output, text.TOKEN_BYTES
        send, token = stream.send, shape.token
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.engine.settings.wait_first_token:
            begun.set_result(None)
            await stream.open()
        if faults.hang:
            await forever()

        def begin() -> None:
            if not begun.done():
                begun.set_result(None)

        def on_token(index: int) -> None:
            piece = output[index * width : index * width + width]
            if not index:
                begin()
                send(shape.opening())
            send(token(piece) if index != last else shape.last(piece))

        job.on_token = on_token
        job.done.add_done_callback(lambda _: begin())
        self.engine.submit(job)
        try:
            if not begun.done():
                await begun
                await stream.open()
            finished = await job.done
        finally:
            self.engine.abort(job)
        if finished:
            send(shape.closing())
        elif faults.error_after is not None:
            send(shape.failure(_BROKEN))
        else:
            await stream.die()
        return await stream.close()

    def _find(self, id: str) -> tuple[dict[str, Any], list[Any]]:
        found = self._stored.get(id)
        if found is None:
            message = f"Response with id '{id}' not found."
            raise Refusal(404, message, "invalid_request_error", "response_id")
        return found


class Answered(Exception):
    """A handler's answer, from within what it calls."""

    def __init__(self, response: web.Response) -> None:
        super().__init__()
        self.response = response


def _id(request: web.Request, prefix: str) -> str:
    return prefix + (request.headers.get("x-request-id") or token_hex(8))


def _priority(request: web.Request, body: Body) -> int:
    """vLLM's header goes before the body's field; one that is no number is ignored."""
    try:
        return int(request.headers["x-vllm-priority"])
    except (KeyError, ValueError):
        return body.priority
