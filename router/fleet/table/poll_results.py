"""Records the results of polls: the metrics of a replica's engine, or why there are none.

Must never: send a poll, or treat old signals as current.
"""

from __future__ import annotations

from typing import Final

from router.core.kv_estimate import report_kv
from router.core.lease import poll_counted, poll_failed, signals_lost
from router.fleet.engines.common.orca import read_load_header
from router.fleet.monitor.signal_changes import has_worked, restarted
from router.fleet.replica import Replica
from router.fleet.signals import NO_SIGNALS, Signals
from router.fleet.table.still_page import credible
from router.fleet.table.table import Table

# Number of failed polls in a row after which an engine is treated as one without metrics.
POLLS_AWAITED: Final = 3
# A poll that fails for one of these reasons makes the engine count as one without metrics at once.
WITHOUT_METRICS: Final = frozenset(("status", "garbage", "nothing"))


class PollResults:
    """The results of the polls of one fleet. All times are monotonic seconds."""

    __slots__ = ("_table", "failed", "stale_s")

    def __init__(self, table: Table, stale_s: float) -> None:
        self._table = table
        self.stale_s = stale_s  # Age in seconds above which signals count as unknown.
        self.failed: dict[str, int] = {}  # Number of failed polls, by problem.

    def observed(self, replica: Replica, signals: Signals, poll: int, now: float) -> None:
        """Record the result of a poll of the replica's metrics. `poll`: the poll's number, from
        `poll_begins`."""
        if replica.removed:
            return
        table = self._table
        before, last, polled_at = replica.signals, replica.last_signals, replica.signals_at
        replica.last_signals = signals
        replica.signals_at = now
        replica.signals = signals = credible(replica, last, signals, now)
        replica.slots = signals.slots
        table.noticed(replica)
        table.same_engine.observed(replica, last)
        replica.polls_awaited = 0
        poll_counted(replica, poll, signals.running, signals.waiting, now)
        if signals.kv_tokens is not None:
            replica.kv_tokens = signals.kv_tokens
        report_kv(replica, signals.kv_usage, signals.running)
        replica.learned.observed(
            signals.running,
            signals.waiting,
            signals.kv_usage,
            signals.preemptions,
            replica.pending_tokens,
            replica.inflight,
        )
        if replica.adapters:
            replica.loaded_adapters.reported(signals.adapters, signals.adapter_slots)
        replica.cadence_s = replica.cadence.look(now)
        replica.speed_learner.look(replica, now)
        table.speeds.share(replica)
        if has_worked(last, signals):
            replica.progress.polled(polled_at, now)
            if table.look(replica, now):
                table.rebuild()
        table.knowledge.sized(replica)
        table.knowledge.tend()
        if restarted(last, signals):  # The signals in `last` may be older than `stale_s`.
            table.knowledge.restarted(replica)
            replica.learned.forget()
            replica.loaded_adapters.clear()
            replica.health.begins_slowly(now)
            # The new process may be another version of the engine.
            replica.refuses_priority = False
            table.on_event("restarted", replica)
            table.read_list(replica)  # The new process may serve another model.
            table.died(replica)
        elif replica.misses_cache(last.cache_hits, signals.cache_hits, now):
            table.knowledge.restarted(replica)
            table.on_event("cache_reset", replica)
        if signals.asleep != before.asleep:
            if signals.asleep:  # A sleeping vLLM or SGLang frees the memory of the KV cache.
                replica.loaded_adapters.clear()
                table.knowledge.restarted(replica)
            table.on_event("asleep" if signals.asleep else "awake", replica)
            table.rebuild()
        table.room(replica)

    def unobserved(self, replica: Replica, problem: str, now: float) -> None:
        """Record a poll without a result. The last signals stay valid until they are too old
        (`stale_s`)."""
        table = self._table
        self.failed[problem] = self.failed.get(problem, 0) + 1
        table.noticed(replica)
        poll_failed(replica)
        if replica.polls_awaited:
            replica.polls_awaited = 0 if problem in WITHOUT_METRICS else replica.polls_awaited - 1
        replica.cadence_s = replica.cadence.look(now)
        replica.speed_learner.look(replica, now)
        table.speeds.share(replica)
        if now - replica.signals_at > self.stale_s:
            self._discard(replica)
        table.room(replica)

    def unpolled(self, replica: Replica) -> None:
        """Record that a replica is not polled any more, so its last signals will not be renewed."""
        poll_failed(replica)  # So that the gates read the facts of the replica again.
        replica.polls_awaited = 0
        self._discard(replica)
        self._table.room(replica)

    def _discard(self, replica: Replica) -> None:
        """Discard the last signals of a replica."""
        if replica.signals is NO_SIGNALS:
            return
        was_asleep = replica.signals.asleep
        replica.signals = NO_SIGNALS
        report_kv(replica, None, None)
        replica.slots = None
        signals_lost(replica)
        if was_asleep:
            self._table.rebuild()

    def load_reported(self, replica: Replica, value: bytes) -> None:
        """Read the header `endpoint-load-metrics` of a response. vLLM sends this header if the
        client's request asked for it."""
        usage = read_load_header(value).kv_usage
        if usage is not None:
            report_kv(replica, usage, max(0, replica.load - replica.waiting))
