"""A worker's side: the other workers of its parent, which are asked and told through it.

Must never: wait for a worker that does not answer longer than the limit of a
question.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from router.app.restart.messages import Worker
from router.app.workers.balance import Balance
from router.app.workers.frames import Answer, Ask, Frame, Order, Present, Told
from router.app.workers.link import Link

ANSWER_S: Final = 2.0
CHANGE_S: Final = 15.0  # The same for changes: a reload reads files.

Answering = Callable[[str, Sequence[Any]], Awaitable[Any]]


class _Question:
    """A question that has not all its answers yet."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.values: list[Any] = []
        self.is_over = asyncio.Event()


class Siblings:
    """The other workers. Call `open`, and at last `close`."""

    def __init__(
        self,
        worker: Worker,
        answering: Answering,
        obey: Callable[[Order], None],
        ended: Callable[[], None],
    ) -> None:
        """`answering` answers the questions of others, and may raise. `obey` gets the orders of
        the parent. `ended` is called if the parent has ended."""
        self.slot = worker.slot
        self.count = len(worker.doors)
        self.others = 0  # how many are asked
        self.emulated = worker.emulated
        self.is_first = worker.is_first
        # What the others have told goes here, as bytes. It must not raise.
        self.on_told: Callable[[bytes], None] | None = None
        self._worker = worker
        self._answering = answering
        self._obey = obey
        self._ended = ended
        self._link = Link(self._hear, self._lost)
        self._questions: dict[int, _Question] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._balance: Balance | None = None

    async def open(self) -> None:
        await self._link.open(socket.socket(fileno=self._worker.channel))

    @property
    def balance(self) -> Balance:
        """How the connections of clients are spread. Made when it is first needed."""
        if self._balance is None:
            worker = self._worker
            self._balance = Balance(
                worker.slot,
                worker.shared,
                socket.socket(fileno=worker.door),
                [socket.socket(fileno=door) for door in worker.doors],
            )
        return self._balance

    def close(self) -> None:
        self._link.close()
        if self._balance is not None:
            self._balance.close()
        for task in self._tasks:
            task.cancel()

    def tell(self, data: bytes) -> bool:
        """Send a message of `router/share`; return whether it is on its way."""
        return self._link.send(Told(data))

    def request(self, order: Order) -> None:
        """Ask the parent to order all workers something."""
        self._link.send(order)

    async def ask(self, what: str, *args: Any, limit_s: float = ANSWER_S) -> list[Any]:
        """Return what the other workers answer, in any order; none of those that fail."""
        if not self.others:
            return []
        self._number += 1
        number = self._number
        question = self._questions[number] = _Question(self.others)
        try:
            if self._link.send(Ask(self.slot, number, what, args)):
                await asyncio.wait_for(question.is_over.wait(), limit_s)
        except TimeoutError:
            pass
        finally:
            del self._questions[number]
        return question.values

    def _hear(self, frame: Frame) -> None:
        if isinstance(frame, Told):
            if self.on_told is not None:
                self.on_told(frame.data)
        elif isinstance(frame, Ask):
            task = asyncio.ensure_future(self._answer(frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(frame, Answer):
            question = self._questions.get(frame.number)
            if question is not None:
                if not frame.problem:
                    question.values.append(frame.value)
                question.missing -= 1
                if question.missing <= 0:
                    question.is_over.set()
        elif isinstance(frame, Present):
            self.others = frame.others
        else:
            self._obey(frame)

    async def _answer(self, ask: Ask) -> None:
        try:
            value, problem = await self._answering(ask.what, ask.args), ""
        except Exception as err:
            value, problem = None, str(err) or repr(err)
        self._link.send(Answer(ask.asker, ask.number, value, problem))

    def _lost(self) -> None:
        self.others = 0
        for question in self._questions.values():
            question.is_over.set()
        self._ended()
