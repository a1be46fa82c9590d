"""The engine core driven by the event loop: one timer for all requests, no task per token.

A `Job` is a request with the text it will generate and whoever wants to hear of it. The driver
lets one step boundary happen per turn of the loop, so that engines that share a loop, and the
sockets on it, keep their cadence even when modelled time is zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from router.emulator.core import FINISHED, FIRST_TOKEN, EngineCore, Request
from router.emulator.faults import FaultPlan, Faults
from router.emulator.histogram import Histogram
from router.emulator.settings import EngineSettings

# vLLM's own buckets, seconds.
_TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip


class Job(Request):
    """A request under way. `done` gets True at its end, False if a fault cuts it short."""

    __slots__ = ("cut_after", "done", "finish_reason", "on_token", "output", "sent")

    def __init__(
        self,
        id: str,
        prompt_tokens: int,
        output: bytes,
        output_tokens: int,
        finish_reason: str,
        block_hashes: Sequence[int] = (),
        priority: int = 0,
    ) -> None:
        super().__init__(id, prompt_tokens, output_tokens, block_hashes, priority)
        self.output = output
        self.finish_reason = finish_reason
        self.on_token: Callable[[int], None] | None = None  # gets the token's index
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.sent = 0
        self.cut_after: int | None = None  # tokens after which `done` gets False


class Engine:
    """One replica's engine. Belongs to the loop it was made in."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.core: EngineCore[Job] = EngineCore(settings.core_config(), settings.timing())
        self.faults = FaultPlan(settings.name, settings.seed)
        self.ttft = Histogram(_TTFT_BUCKETS)
        self.ended = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self.set_faults(settings.faults)

    def submit(self, job: Job) -> None:
        """Raises ValueError for a job that could never run."""
        self.core.submit(job, monotonic())
        if self._timer is None:
            self._arm()

    def abort(self, job: Job) -> None:
        """Its client left, or nobody needs the rest. Nothing happens if it has ended.

        Not counted as ended by "abort": vLLM does not count these either.
        """
        self.core.abort(job.id, monotonic())

    def set_faults(self, faults: Faults) -> bool:
        """Replace the faults of all requests and of the engine. False: meant for another one."""
        if not self.faults.set(faults):
            return False
        now = monotonic()
        self.core.slowdown = faults.slow
        if faults.freeze:
            self.core.stall(now)
        else:
            self.core.resume(now)
        self._rearm()
        return True

    def close(self) -> None:
        """Stop the timer; what is under way stays unanswered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rearm(self) -> None:
        self.close()
        self._arm()

    def _arm(self) -> None:
        now = monotonic()
        due = self.core.next_event(now)
        if due is None:
            return
        # uvloop's timers count whole milliseconds: round up, or the last one is spent spinning.
        wait_ms = -int((now - due) * 1e3 // 1)
        if wait_ms > 0:
            self._timer = self._loop.call_later(wait_ms * 1e-3, self._turn)
        else:
            self._timer = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._timer = None
        for kind, job in self.core.advance(monotonic()):
            if kind == FINISHED:
                self.ended[job.finish_reason] += 1
                if not job.done.done():
                    job.done.set_result(True)
                continue
            if kind == FIRST_TOKEN:
                self.ttft.observe(self.core.clock - job.arrival)
            if job.done.done():
                continue  # cut short, or its client left in this very turn
            if job.cut_after != 0:
                if job.on_token is not None:
                    job.on_token(job.sent)
                job.sent += 1
            if job.sent == job.cut_after:
                job.done.set_result(False)
        if self._timer is None:
            self._arm()
