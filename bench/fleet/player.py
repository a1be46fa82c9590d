"""Plays a script against one address, open loop: each request is sent when it is due.

The time to first token is measured from the moment at which a request was due, so that delays in
the load generator or the router are not hidden. The delay from the due time to the sending is
reported as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter, process_time
from typing import Any

import msgspec

from bench.fleet import stream
from bench.fleet.script import Conversation, Script

DRAIN_S = 20.0  # seconds that unfinished requests may still take after the end of the script
# Seconds; a connection that was idle for longer is not reused, as the router may close it.
_IDLE_S = 3.0


class Record(msgspec.Struct):
    """One request. `due` and `sent` are seconds since the start of the run."""

    due: float
    sent: float
    ttft: float | None  # seconds from `due` to the first content; None without content
    seconds: float  # from `due` to the end of the answer
    prompt_tokens: int  # as counted by the load generator
    output_tokens: int  # number of tokens received
    measured: bool
    error: str = ""
    urgency: str = ""  # `urgency` of the request's conversation
    user: str = ""  # `user` of the request's conversation


class Played(msgspec.Struct):
    records: list[Record]
    tokens_in_window: int
    measured_s: float
    cpu_share: float  # CPUs that this process used on average during the run
    # The engines' counters at the start of the measured time and after the last answer.
    counters: list[list[dict[str, float]]]


class Player:
    """Plays a script once. `count` is called to read the engines' counters."""

    def __init__(
        self,
        script: Script,
        host: str,
        port: int,
        model: str,
        count: Callable[[], Awaitable[list[dict[str, float]]]],
    ) -> None:
        self._script = script
        self._host = host
        self._port = port
        self._model = model
        self._count = count
        self._idle: dict[int, list[stream.Link]] = {}  # by port
        self._open = 0
        self._records: list[Record] = []
        self._window_bytes = 0
        self._begin = 0.0
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Accept: text/event-stream\r\nContent-Type: application/json\r\n"
            "User-Agent: OpenAI/Python 3.52.0\r\nAuthorization: Bearer sk-bench\r\n"
        ).encode()

    async def play(self) -> dict[str, Any]:
        script = self._script
        cpu_before = process_time()
        self._begin = perf_counter()
        counting = asyncio.create_task(self._count_at(script.measure_from))
        tasks: set[asyncio.Task[None]] = set()
        for conversation in script.conversations:
            await self._until(conversation.at)
            task = asyncio.create_task(self._converse(conversation))
            tasks.add(task)
        if tasks:
            left = self._begin + script.until - perf_counter()
            _, late = await asyncio.wait(tasks, timeout=max(0.0, left) + DRAIN_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        spent = (process_time() - cpu_before) / (perf_counter() - self._begin)
        for links in self._idle.values():
            for link in links:
                link.close()
        played = Played(
            self._records,
            self._window_bytes // stream.TOKEN_BYTES,
            script.until - script.measure_from,
            spent,
            [await counting, await self._count()],
        )
        result: dict[str, Any] = msgspec.to_builtins(played)
        return result

    async def _count_at(self, at: float) -> list[dict[str, float]]:
        await self._until(at)
        return await self._count()

    async def _until(self, at: float) -> None:
        wait = self._begin + at - perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)

    async def _converse(self, conversation: Conversation) -> None:
        messages = []
        if conversation.system:
            messages.append({"role": "system", "content": conversation.system})
        due = conversation.at
        for turn in conversation.turns:
            due += turn.think_s
            if due >= self._script.until:
                return
            await self._until(due)
            messages.append({"role": "user", "content": turn.text})
            answer = await self._ask(messages, turn.output_tokens, due, conversation)
            if answer is None:
                return
            messages.append({"role": "assistant", "content": answer})
            due = self.now()

    def now(self) -> float:
        """Current time in seconds since the start of the run."""
        return perf_counter() - self._begin

    async def _ask(
        self,
        messages: list[dict[str, str]],
        output_tokens: int,
        due: float,
        conversation: Conversation,
    ) -> str | None:
        """Send one request and return the answer's text, or None if the answer was incomplete."""
        script = self._script
        record = Record(
            due,
            0.0,
            None,
            0.0,
            sum(len(m["content"].encode()) for m in messages) // stream.TOKEN_BYTES,
            0,
            script.measure_from <= due < script.until,
            "unanswered",
            conversation.urgency,
            conversation.user,
        )
        self._records.append(record)
        body = stream.body(self._model, messages, output_tokens)
        head = self._head + _more(conversation)
        request = b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_end(_: stream.Link) -> None:
            if not ended.done():
                ended.set_result(None)

        port = self._port_of(conversation, len(messages))
        try:
            link = await self._link(port)
        except OSError as error:
            record.error = f"connect: {error.strerror or type(error).__name__}"
            return None
        record.sent = perf_counter() - self._begin
        link.ask(request, on_end)
        try:
            await ended
        except asyncio.CancelledError:
            link.close()
            raise
        answer = link.answer
        self._note(record, answer)
        if not answer.error and answer.tokens != output_tokens:
            answer.error = "short answer"
        record.error = answer.error
        if link.usable and not answer.error:
            self._idle.setdefault(port, []).append(link)
        else:
            link.close()
        return None if answer.error else answer.text

    def _note(self, record: Record, answer: stream.Answer) -> None:
        begin, script = self._begin, self._script
        if answer.first_at is not None:
            record.ttft = answer.first_at - begin - record.due
        record.seconds = perf_counter() - begin - record.due
        record.output_tokens = answer.tokens
        first, last = begin + script.measure_from, begin + script.until
        self._window_bytes += sum(size for at, size in answer.token_times if first <= at < last)

    def _port_of(self, conversation: Conversation, messages: int) -> int:
        """The port for a conversation's request with this number of messages."""
        return self._port

    async def _link(self, port: int) -> stream.Link:
        oldest = perf_counter() - _IDLE_S
        idle = self._idle.get(port, [])
        while idle:
            link = idle.pop()
            if link.usable and link.idle_since > oldest:
                return link
            link.close()
        _, made = await asyncio.get_running_loop().create_connection(stream.Link, self._host, port)
        return made


def _more(conversation: Conversation) -> bytes:
    """Header lines specific to this conversation's requests."""
    fields = {
        "x-priority": conversation.urgency,
        "x-emulate-key": conversation.key,
        "x-user-id": conversation.user,
    }
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value).encode()
