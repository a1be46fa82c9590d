"""Runs an engine core on the event loop, with one timer for all requests and no task per token.

A `Job` is a request with its output text and callbacks for its tokens. `Engine` processes one step
boundary per turn of the event loop. So other engines and sockets on the same loop are not delayed,
even when the modelled steps take no time.

`AdapterPool`: the LoRA adapters of one emulated engine: which of them are in the GPU's memory.

The adapter that was used least recently is replaced, as in vLLM and SGLang. Adapters of running
requests may be replaced, too; the real engines let the new request wait instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol

from router.lab.emulator.core.engine_core import FINISHED, FIRST_TOKEN, EngineCore
from router.lab.emulator.core.kv_events import KvEvent
from router.lab.emulator.http.faults import FaultPlan, Faults
from router.lab.emulator.http.job import Job
from router.lab.emulator.settings import EngineSettings
from router.lab.emulator.statistics import Gauges, LaggingGauges, Statistics


class AdapterPool:
    """The adapters in memory, the least recently used one first."""

    def __init__(self, slots: int, load_s: float) -> None:
        """`slots`: maximum number of adapters. `load_s`: seconds to load one."""
        self._slots = slots
        self._load_s = load_s
        self._names: dict[str, None] = {}
        self.loads = 0  # how often an adapter was loaded

    @property
    def used(self) -> int:
        return len(self._names)

    def use(self, name: str) -> float:
        """Use an adapter for a request. Returns the seconds by which loading delays the request."""
        is_loaded = name in self._names
        self._names.pop(name, None)
        self._names[name] = None
        if is_loaded:
            return 0.0
        if len(self._names) > self._slots:
            del self._names[next(iter(self._names))]
        self.loads += 1
        return self._load_s


PRIORITIES_KEPT = 1000


class KvListener(Protocol):
    """Receives the changes of the prefix cache."""

    def publish(self, events: Sequence[KvEvent]) -> None: ...

    def restart(self) -> None: ...

    def source(self) -> dict[str, object]: ...

    def server_info(self) -> dict[str, object]: ...


class Engine:
    """One emulated engine. It belongs to the event loop in which it was created."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.rank = 0  # the data-parallel rank, if several engines are behind one port
        self.core: EngineCore[Job] = EngineCore(settings.core_config(), settings.timing())
        self.faults = FaultPlan(settings.name, settings.seed)
        self.stats = Statistics()
        self.adapters = AdapterPool(settings.max_loras, settings.lora_load_s)
        # The priorities of the last requests, as the clients sent them; None: no priority.
        self.priorities: deque[Any] = deque(maxlen=PRIORITIES_KEPT)
        self.scrapes = 0  # number of answered requests for the metrics page
        self._lagging = LaggingGauges(settings.gauge_lag_s) if settings.gauge_lag_s else None
        self.sleep_level = 0  # as in vLLM: 0: awake; 1: weights offloaded; 2: weights discarded
        self.on_step: Callable[[], None] | None = None  # called after each step boundary
        self.on_finished: Callable[[Job], None] | None = None
        self.kv_listener: KvListener | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self.set_faults(settings.faults)

    def submit(self, job: Job) -> None:
        """Queue a job. Raises ValueError if the job could never run."""
        self.core.submit(job, monotonic())
        self._note_gauges()
        if self._timer is None:
            self._arm()

    def late_s(self, jobs: Sequence[Job], faults: Faults) -> float:
        """Seconds by which these jobs are delayed before they enter the queue.

        An adapter that is not in memory is loaded first. The delay of the fault `straggle` is a
        multiple of the longest prefill time of these jobs at this engine.
        """
        if not jobs:
            return 0.0
        adapter = jobs[0].adapter
        late_s = self.adapters.use(adapter) if adapter else 0.0
        if faults.straggle == 1.0:
            return late_s
        return late_s + (faults.straggle - 1.0) * max(self.core.alone_s(job) for job in jobs)

    def abort(self, job: Job) -> None:
        """Abort a job whose remaining output is not needed. This has no effect after its end.

        The job is not counted as ended by "abort", because vLLM does not count such requests.
        """
        self.core.abort(job.id, monotonic())
        self._note_gauges()

    def kill(self, job: Job, error: Exception | None = None) -> bool:
        """End a job although its client still waits. The client gets the output so far, or `error`.

        False: the job has already ended.
        """
        if not self.core.abort(job.id, monotonic()):
            return False
        self.stats.ended["abort"] += 1
        if not job.done.done():
            if error is not None:
                job.done.set_exception(error)
            else:
                job.finish_reason = "abort"
                job.done.set_result(True)
        return True

    def gauges(self) -> Gauges:
        """The gauges of the metrics page: running requests, waiting requests and KV usage."""
        core = self.core
        state = Gauges(core.running, core.waiting, core.kv_usage)
        return state if self._lagging is None else self._lagging.read(state, monotonic())

    def _note_gauges(self) -> None:
        if self._lagging is not None:
            core = self.core
            state = Gauges(core.running, core.waiting, core.kv_usage)
            self._lagging.note(state, monotonic())

    def set_faults(self, faults: Faults) -> bool:
        """Replace the faults of the engine. False: nothing was changed, because `faults` are for
        another engine.
        """
        if not self.faults.set(faults):
            return False
        self.core.slowdown = faults.slow
        self._stall_or_resume()
        return True

    def sleep(self, level: int) -> None:
        """Stop working and drop the cache, as vLLM does when it releases its memory."""
        self.sleep_level = level
        self._stall_or_resume()
        if level:
            self.reset_cache()

    def reset_cache(self) -> bool:
        """Drop the prefix cache. False: nothing was dropped, because a request holds blocks."""
        is_reset = self.core.reset_cache()
        self._tell_kv()
        return is_reset

    def restart(self) -> list[Job]:
        """Behave like a restarted process: the engine loses all state. Returns the lost jobs."""
        lost = self.core.rows() + self.core.queued()
        self.core = EngineCore(self.settings.core_config(), self.settings.timing())
        self.core.slowdown = self.faults.current.slow
        self.stats = Statistics()
        self.adapters = AdapterPool(self.settings.max_loras, self.settings.lora_load_s)
        self.sleep_level = 0
        if self.kv_listener is not None:
            self.kv_listener.restart()
        for job in lost:
            if not job.done.done():
                job.done.set_result(False)
        self._stall_or_resume()
        return lost

    def close(self) -> None:
        """Stop the timer. Running requests get no answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stall_or_resume(self) -> None:
        now = monotonic()
        if self.faults.current.freeze or self.sleep_level:
            self.core.stall(now)
        else:
            self.core.resume(now)
        self.close()
        self._arm()

    def _arm(self) -> None:
        now = monotonic()
        due = self.core.next_event(now)
        if due is None:
            return
        # uvloop's timers count whole milliseconds. The wait is rounded up; otherwise the loop
        # would spin during the last millisecond.
        wait_ms = -int((now - due) * 1e3 // 1)
        if wait_ms > 0:
            self._timer = self._loop.call_later(wait_ms * 1e-3, self._turn)
        else:
            self._timer = self._loop.call_soon(self._turn)

    def _tell_kv(self) -> None:
        log = self.core.kv_log
        if log:
            if self.kv_listener is not None:
                self.kv_listener.publish(log)
            log.clear()

    def _turn(self) -> None:
        self._timer = None
        core, stats = self.core, self.stats
        before = core.clock
        events = core.advance(monotonic())
        tokens = 0
        for kind, job in events:
            if kind == FINISHED:
                stats.finished(job, core.clock)
                if self.on_finished is not None:
                    self.on_finished(job)
                if not job.done.done():
                    job.done.set_result(True)
                continue
            if kind == FIRST_TOKEN:
                job.first_token_at = core.clock
                stats.first_token(core.clock - job.arrival)
            else:
                tokens += 1
            if job.is_left:
                self.abort(job)
                continue
            if job.done.done():
                continue  # a fault ended the job, or its client left in this turn of the loop
            if job.cut_after != 0:
                if job.on_token is not None:
                    job.on_token(job.sent)
                job.sent += 1
            if job.sent == job.cut_after:
                job.done.set_result(False)
        # Every decoding request gets one token per step, so all of them waited for this step.
        if tokens:
            stats.between_tokens(core.clock - before, tokens)
        if core.kv_log:
            self._tell_kv()
        self._note_gauges()
        if self.on_step is not None:
            self.on_step()
        if self._timer is None:
            self._arm()
