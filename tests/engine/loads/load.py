"""Clients that continuously request short answers, with the result of every request."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.engine.loads import bodies, sse

CHAT = "/v1/chat/completions"
CHANGE_WITHIN_S = 120.0


@dataclass(slots=True)
class Outcome:
    """The result of one request at its client."""

    stream: bool
    tokens: int  # requested output tokens
    status: int | None = None
    text: str = ""
    done: bool = False  # the engine's own end of a stream, or a whole answer, arrived
    error: dict[str, Any] | None = None  # an error body or an error event
    broken: str = ""  # transport error: the answer did not end as HTTP requires

    @property
    def is_whole(self) -> bool:
        ended_well = self.done and self.error is None and not self.broken
        return self.status == 200 and ended_well and len(self.text) == self.tokens

    @property
    def is_visibly_cut(self) -> bool:
        """The stream began, and its end cannot be taken for a normal one."""
        began = self.stream and self.status == 200 and self.text != ""
        return began and self.error is not None and self.broken != "" and not self.done


@dataclass(slots=True)
class Load:
    """`clients` concurrent clients that send one request after the other; every second one
    streams.
    """

    http: httpx.AsyncClient
    tokens: int
    outcomes: list[Outcome] = field(default_factory=list)
    _stopping: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def client(self, number: int) -> None:
        turn = number
        while not self._stopping:
            outcome = Outcome(stream=turn % 2 == 0, tokens=self.tokens)
            await ask(self.http, bodies.chat(f"load {number} {turn}", self.tokens), outcome)
            self.outcomes.append(outcome)
            self._changed.set()
            turn += 1

    async def ended(self, count: int) -> None:
        """Return when `count` more requests have ended, successful or not."""
        goal = len(self.outcomes) + count
        async with asyncio.timeout(CHANGE_WITHIN_S):
            while len(self.outcomes) < goal:
                self._changed.clear()
                await self._changed.wait()

    def stop(self) -> None:
        """Stop: every client ends after its current request."""
        self._stopping = True


async def ask(
    http: httpx.AsyncClient,
    body: dict[str, Any],
    outcome: Outcome,
    began: asyncio.Event | None = None,
) -> None:
    """Send one chat request and fill in `outcome`; `began` is set with the first text."""
    try:
        async with http.stream("POST", CHAT, json={**body, "stream": outcome.stream}) as answer:
            outcome.status = answer.status_code
            if not outcome.stream or answer.status_code != 200:
                await answer.aread()
                decoded = answer.json()
                outcome.error = decoded.get("error")
                if outcome.error is None:
                    outcome.text = decoded["choices"][0]["message"]["content"]
                    outcome.done = True
                return
            async for event in sse.each_event(answer.aiter_raw()):
                assert not outcome.done, f"an event after the end: {event!r}"
                outcome.done = event == sse.DONE
                outcome.error = outcome.error or sse.error_of(event)
                outcome.text += sse.text_of(event)
                if began is not None and outcome.text:
                    began.set()
    except httpx.TransportError as failure:
        outcome.broken = repr(failure)
