"""Sends an answer to its client, whole or token by token, and handles disconnects.

A client's disconnect cancels the handler of its request. When a handler ends for any reason, its
jobs are removed from the engine, at the time at which the emulated engine would notice the
disconnect. An API call can end a running answer by its ID.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

import msgspec
from aiohttp import web

from router.core.unreadable import NOT_JSON
from router.lab.emulator.engine import Engine
from router.lab.emulator.http import text
from router.lab.emulator.http.bodies import Refusal
from router.lab.emulator.http.faults import Faults
from router.lab.emulator.http.job import Job
from router.lab.emulator.http.personas.base import Persona
from router.lab.emulator.http.shapes.base import Shape, encode
from router.lab.emulator.http.sse import Stream, forever, json_response

_BROKEN = "EngineCore encountered an issue. See stack trace for the root cause."


class _WantsStream(msgspec.Struct):
    stream: bool | None = False


class Delivery:
    """The running answers of one engine."""

    def __init__(self, engine: Engine, persona: Persona) -> None:
        self._engine = engine
        self._persona = persona
        self._live: dict[str, list[Job]] = {}  # running jobs, by the ID of their answer

    async def answer(
        self, request: web.Request, is_stream: bool, shape: Shape, faults: Faults
    ) -> web.StreamResponse:
        cut = faults.die_after if faults.error_after is None else faults.error_after
        for job in shape.jobs:
            job.cut_after = cut
            self._engine.stats.asked += 1
            self._engine.stats.asked_tokens += job.prompt_tokens
        self._live[shape.id] = shape.jobs
        began = monotonic()
        try:
            if is_stream:
                return await self._stream(request, shape, faults)
            return await self._whole(request, shape, faults)
        finally:
            if self._live.get(shape.id) is shape.jobs:
                del self._live[shape.id]
            self._leave(request, shape.jobs, is_stream, monotonic() - began)

    def kill(self, id: str, is_prefix: bool = False) -> int:
        """End the answer with this ID, or all answers whose IDs begin with it.

        Returns the number of ended jobs.
        """
        if is_prefix:
            chosen = [jobs for one, jobs in self._live.items() if one.startswith(id)]
        else:
            chosen = [self._live[id]] if id in self._live else []
        return sum(self._kill(job) for jobs in chosen for job in jobs)

    async def refuse(self, request: web.Request, refusal: Refusal) -> web.StreamResponse:
        """Send a refusal. If the client requested a stream, the refusal is an event of a stream."""
        try:
            wanted = msgspec.json.decode(await request.read(), type=_WantsStream)
        except NOT_JSON:
            wanted = _WantsStream()
        if not wanted.stream:
            return self._persona.refusal(refusal)
        stream = Stream(request)
        stream.send(self._persona.refusal_events(refusal))
        await stream.open()
        return await stream.close()

    def _kill(self, job: Job) -> bool:
        made = self._engine.core.generated(job)
        job.output_tokens, job.output = made, job.output[: made * text.TOKEN_BYTES]
        return self._engine.kill(job)

    def _leave(
        self, request: web.Request, jobs: list[Job], is_stream: bool, after_s: float
    ) -> None:
        """Abort the jobs of an ended handler when the emulated engine would notice its end."""
        core = self._engine.core
        left = [job for job in jobs if core.holds(job.id)]
        if not left:
            return
        leaving = self._persona.leaving(request.headers, is_stream, after_s)
        for job in left:
            if leaving.after_s == 0 or job.cut_after is not None:
                self._engine.abort(job)
                continue
            job.is_left = leaving.at_next_token
            if leaving.after_s is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(leaving.after_s, self._engine.abort, job)

    async def _whole(
        self, request: web.Request, shape: Shape, faults: Faults
    ) -> web.StreamResponse:
        if faults.hang:
            await forever()
        late_s = self._engine.late_s(shape.jobs, faults)
        if late_s:
            await asyncio.sleep(late_s)
        for job in shape.jobs:
            self._engine.submit(job)
        finished = await asyncio.gather(*(job.done for job in shape.jobs))
        if all(finished):
            headers = self._persona.whole_headers(request.headers, shape.jobs)
            return json_response(encode(shape.whole()), 200, **headers)
        if faults.error_after is not None:
            raise Refusal(500, _BROKEN, "InternalServerError")
        await Stream(request).die()

    async def _stream(
        self, request: web.Request, shape: Shape, faults: Faults
    ) -> web.StreamResponse:
        persona, settings = self._persona, self._engine.settings
        stream = Stream(request, persona.stream_headers)
        stream.send(shape.preamble())
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if not begun.done():
                begun.set_result(None)

        if not (settings.wait_first_token or persona.head_with_first_token):
            begin()
            await stream.open()
        every_s = settings.keep_alive_s or persona.keep_alive_s
        if every_s:
            stream.keep_alive(persona.comment, every_s, begin)
        ends: asyncio.Future[list[bool]] | None = None
        try:
            if faults.hang:
                await forever()
            opened = False

            def open_up() -> None:
                nonlocal opened
                if not opened:
                    opened = True
                    begin()
                    stream.send(shape.opening())

            for choice, job in enumerate(shape.jobs):
                _attach(job, choice, shape, stream, open_up, settings.stream_interval)
                job.done.add_done_callback(lambda _: begin())
            late_s = self._engine.late_s(shape.jobs, faults)
            if late_s:
                await asyncio.sleep(late_s)
            for job in shape.jobs:
                self._engine.submit(job)
            ends = asyncio.gather(*(job.done for job in shape.jobs))
            if not begun.done():
                await begun
                for job in shape.jobs:
                    if not job.done.done():
                        continue
                    if job.done.exception() is not None:
                        await ends  # raises Refusal: nothing was sent yet
                    elif not job.done.result() and job.cut_after is None:
                        await stream.die()  # the engine has died
                await stream.open()
            try:
                finished = await ends
            # The response head was sent, so it is too late for an error status.
            except Refusal as refusal:
                stream.send(shape.failure(refusal.message) or b"")
                return await stream.close()
        finally:
            stream.stop()
            if ends is not None:
                ends.cancel()  # nothing reads the remaining output
        if all(finished):
            for choice, job in enumerate(shape.jobs):
                if job.finish_reason == "abort":
                    open_up()
                    stream.send(shape.last(b"", choice))
            stream.send(shape.closing())
            return await stream.close()
        failure = None if faults.error_after is None else shape.failure(_BROKEN)
        if failure is None:
            await stream.die()
        stream.send(failure)
        return await stream.close()


def _attach(
    job: Job,
    choice: int,
    shape: Shape,
    stream: Stream,
    open_up: Callable[[], None],
    interval: int,
) -> None:
    """Send the tokens of the job when they are generated, `interval` of them in an event."""
    output, width, last = job.output, text.TOKEN_BYTES, job.output_tokens - 1
    send, token = stream.send, shape.token
    begin = 0  # where the tokens begin that were not sent

    def on_token(index: int) -> None:
        nonlocal begin
        if not index:
            open_up()
        elif index != last and index % interval:
            return
        end = index * width + width
        piece = output[begin:end]
        begin = end
        send(shape.last(piece, choice) if index == last else token(piece, choice))

    job.on_token = on_token
