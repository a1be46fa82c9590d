"""The routes that generate text: a request becomes jobs, and the jobs' tokens become the answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from secrets import token_hex
from time import time
from typing import Any, Final, TypeVar

from aiohttp import web

from router.lab.emulator.engine import Engine
from router.lab.emulator.http.bodies import (
    Body,
    ChatBody,
    CompletionBody,
    MessagesBody,
    Refusal,
    ResponsesBody,
    decode,
    render,
)
from router.lab.emulator.http.delivery import Delivery
from router.lab.emulator.http.faults import FaultError, Faults
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.personas.base import Persona
from router.lab.emulator.http.prepare import Preparation
from router.lab.emulator.http.shapes.base import encode
from router.lab.emulator.http.shapes.responses import MessagesShape, ResponsesShape
from router.lab.emulator.http.sse import Answered, json_response, reset

# Maximum number of responses that are kept for GET /v1/responses/{id}. The oldest is dropped first.
_STORED = 1024

B = TypeVar("B", bound=Body)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# For each path, the class that decodes its request bodies.
BODIES: Final[dict[str, type[Body]]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/messages": MessagesBody,
    "/v1/responses": ResponsesBody,
}


class Generation:
    """The handlers of the routes on which one engine generates, and its stored responses."""

    def __init__(self, engine: Engine, persona: Persona) -> None:
        self.engine = engine
        self.persona = persona
        self.prepare = Preparation(engine.settings)
        self.delivery = Delivery(engine, persona)
        self._stored: OrderedDict[str, tuple[dict[str, Any], list[Any]]] = OrderedDict()

        routes = {
            "chat": ("/v1/chat/completions", self.chat),
            "completions": ("/v1/completions", self.completions),
            "messages": ("/v1/messages", self.messages),
            "responses": ("/v1/responses", self.responses),
        }
        # The handler of each path that this engine serves.
        self.handlers: dict[str, Handler] = {
            path: self._told(handler)
            for route, (path, handler) in routes.items()
            if route in persona.routes
        }

    def add_routes(self, router: web.UrlDispatcher) -> None:
        for path, handler in self.handlers.items():
            router.add_post(path, handler)
        if "responses" in self.persona.routes:
            router.add_get("/v1/responses/{id}", self.stored)

    # One handler per route.

    async def chat(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = await self.read(request, ChatBody)
        jobs = self.jobs(request, body, body.prompt_bytes())
        id = self.persona.answer_id(request, body, "chatcmpl-")
        shape = self.persona.chat(id, *self._made(body), jobs, self.persona.usage(body))
        return await self.delivery.answer(request, bool(body.stream), shape, faults)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = await self.read(request, CompletionBody)
        prompt = body.prompt_bytes()
        jobs = self.jobs(request, body, prompt)
        echo = prompt.decode("utf-8", "replace") if body.echo else ""
        id = self.persona.answer_id(request, body, "cmpl-")
        shape = self.persona.completion(id, *self._made(body), jobs, self.persona.usage(body), echo)
        return await self.delivery.answer(request, bool(body.stream), shape, faults)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = await self.read(request, MessagesBody)
        body.n = 1
        jobs = self.jobs(request, body, body.prompt_bytes())
        id = self.persona.answer_id(request, body, "chatcmpl-")
        shape = MessagesShape(id, *self._made(body), jobs)
        return await self.delivery.answer(request, bool(body.stream), shape, faults)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        faults = await self.begin(request)
        body = await self.read(request, ResponsesBody)
        body.n = 1
        jobs = self.jobs(request, body, self.prompt(body))
        turns = self._turns(body)
        shape = ResponsesShape("resp_" + token_hex(8), *self._made(body), jobs, body)
        answer = await self.delivery.answer(request, bool(body.stream), shape, faults)
        if body.store is not False:
            spoken = {"role": "assistant", "content": shape.text()}
            self._stored[shape.id] = (shape.whole(), [*turns, spoken])
            if len(self._stored) > _STORED:
                self._stored.popitem(last=False)
        return answer

    async def stored(self, request: web.Request) -> web.StreamResponse:
        return json_response(encode(self._find(request.match_info["id"])[0]))

    # Parts that several handlers share.

    def prompt(self, body: Body) -> bytes:
        """The prompt, padded to whole tokens.

        Raises Refusal if the request continues a response that this engine does not know.
        """
        if not isinstance(body, ResponsesBody) or body.previous_response_id is None:
            return body.prompt_bytes()
        system = [{"role": "system", "content": body.instructions}] if body.instructions else []
        return render(system + self._turns(body), body.tools)

    def has_stored(self, id: str) -> bool:
        """Whether this engine has stored the response with this ID."""
        return id in self._stored

    async def begin(self, request: web.Request) -> Faults:
        """Decide which faults the request has; apply those that act before the body is read."""
        try:
            faults = self.engine.faults.roll(
                request.headers.get("x-emulate-fault"), request.headers.get("x-emulate-key")
            )
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
            refusal = Refusal(faults.status, "an emulated fault", "EmulatedFault")
            response = self.persona.refusal(refusal)
            response.headers.update(headers)
            raise Answered(response)
        return faults

    async def read(self, request: web.Request, type: type[B]) -> B:
        """Read and decode a body. Raises Refusal for a body that this engine does not accept."""
        raw = await request.read()
        self.persona.check_fields(raw, request.path)
        return decode(raw, type)

    def rank(self, request: web.Request, body: Body) -> int:
        header = request.headers.get(self.persona.priority_header)
        self.engine.priorities.append(body.priority if header is None else header)
        return self.persona.rank(request.headers, body.priority)

    def jobs(self, request: web.Request, body: Body, prompt: bytes) -> list[Job]:
        """The jobs of a request. Raises Refusal if the request is invalid or the queue is full."""
        jobs = self.prepare.generating(body, prompt, self.rank(request, body))
        self.persona.admit(jobs[0])
        return jobs

    def _made(self, body: Body) -> tuple[str, int]:
        return self.prepare.check_model(body.model), int(time())

    def _turns(self, body: ResponsesBody) -> list[Any]:
        """The messages of the response that the request continues, then the request's own."""
        if body.previous_response_id is None:
            return body.turns()
        return self._find(body.previous_response_id)[1] + body.turns()

    def _find(self, id: str) -> tuple[dict[str, Any], list[Any]]:
        found = self._stored.get(id)
        if found is None:
            message = f"Response with id '{id}' not found."
            raise Refusal(404, message, "invalid_request_error", "response_id")
        return found

    def _told(self, handler: Handler) -> Handler:
        """Wrap `handler` if the emulated engine starts a stream before it validates the request.

        A refusal is then sent as an event of the stream.
        """
        if not self.persona.refuses_in_streams:
            return handler

        async def told(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except Refusal as refusal:
                return await self.delivery.refuse(request, refusal)

        return told
