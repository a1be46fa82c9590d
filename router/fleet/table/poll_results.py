"""Records the results of polls: the metrics of a replica's engine, or why there are none.

`credible` detects a page of metrics that stands still, so that outdated gauges keep no engine idle.

Engines write their gauges in a step of the engine. An engine without a step keeps the last values:
after all of its clients have disconnected, or if it hangs, its page may show running and waiting
requests and a full KV cache for ever. A replica with such a page would get no request that could
change the page.

A page stands still if all of its signals, the totals included, are equal for some seconds, and the
router has no request there that could hang. Then the reported requests and the KV usage count as
unknown, as if the engine did not report them, until any signal changes. An engine that works for
other clients changes its totals. If an engine counts tokens only when a request ends, the time is
longer, and a busy engine may get a few requests too many: their start changes the page.

A page also stands still if streams of the router show content meanwhile, and the engine is known to
count its tokens in each step.

Must never: send a poll, read a clock, change the reported totals, or treat old signals as current.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.core.kv_estimate import report_kv
from router.core.lease import poll_counted, poll_failed, signals_lost
from router.fleet.engines.common.orca import read_load_header
from router.fleet.monitor.signal_changes import has_worked, restarted
from router.fleet.replica import Replica
from router.fleet.signals import NO_SIGNALS, Signals
from router.fleet.table.table import Table

# Factor on the time for an engine whose totals grow only when a request ends.
_SLOWER: Final = 2.0


def credible(replica: Replica, last: Signals, signals: Signals, now: float) -> Signals:
    """Return the signals of a poll, without the load if the page stands still.

    `last`: the signals of the poll before, as they were reported.
    """
    if signals != last:
        replica.reports.since = now
        replica.reports.is_still = False
    if replica.load > replica.foreign_load:
        replica.reports.idle_since = now
    has_load = bool(signals.running or signals.waiting)
    if not (has_load or signals.kv_usage):
        return signals
    if not replica.reports.is_still:
        replica.reports.is_still = _stands_still(replica, now)
    if not replica.reports.is_still:
        return signals
    if has_load:
        return msgspec.structs.replace(signals, running=None, waiting=None, kv_usage=None)
    return msgspec.structs.replace(signals, kv_usage=None)


def _stands_still(replica: Replica, now: float) -> bool:
    since = replica.reports.since
    still_s = replica.health.rules.suspect_min_s
    if replica.descriptor.counts_live and replica.reports.last.generated_tokens is not None:
        if replica.progress.at - since >= still_s:
            return True
    else:
        still_s *= _SLOWER
    return now - max(since, replica.reports.idle_since) >= still_s


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
        reports = replica.reports
        before, last, polled_at = reports.signals, reports.last, reports.at
        reports.last = signals
        reports.at = now
        reports.signals = signals = credible(replica, last, signals, now)
        replica.slots = signals.slots
        table.noticed(replica)
        table.same_engine.observed(replica, last)
        replica.reports.polls_awaited = 0
        poll_counted(replica, poll, signals.running, signals.waiting, now)
        if signals.kv_tokens is not None:
            replica.kv_tokens = signals.kv_tokens
        report_kv(replica, signals.kv_usage, signals.running)
        replica.learned.capacity.observed(
            signals.running,
            signals.waiting,
            signals.kv_usage,
            signals.preemptions,
            replica.pending_tokens,
            replica.inflight,
        )
        if replica.listed.adapters:
            replica.loaded_adapters.reported(signals.adapters, signals.adapter_slots)
        self._look(replica, now)
        if has_worked(last, signals):
            replica.progress.polled(polled_at, now)
            if table.look(replica, now):
                table.rebuild()
        table.knowledge.sized(replica)
        table.knowledge.tend()
        if restarted(last, signals):  # The signals in `last` may be older than `stale_s`.
            table.knowledge.restarted(replica)
            replica.learned.capacity.forget()
            replica.loaded_adapters.clear()
            replica.health.begins_slowly(now)
            # The new process may be another version of the engine.
            replica.errors.takes_priorities(True)
            table.hooks.event("restarted", replica)
            table.read_list(replica)  # The new process may serve another model.
            table.died(replica)
        elif replica.reports.misses_cache(last.cache_hits, signals.cache_hits, now):
            table.knowledge.restarted(replica)
            table.hooks.event("cache_reset", replica)
        if signals.asleep != before.asleep:
            if signals.asleep:  # A sleeping vLLM or SGLang frees the memory of the KV cache.
                replica.loaded_adapters.clear()
                table.knowledge.restarted(replica)
            table.hooks.event("asleep" if signals.asleep else "awake", replica)
            table.rebuild()
        table.hooks.room(replica)

    def unobserved(self, replica: Replica, problem: str, now: float) -> None:
        """Record a poll without a result. The last signals stay valid until they are too old
        (`stale_s`)."""
        table = self._table
        self.failed[problem] = self.failed.get(problem, 0) + 1
        table.noticed(replica)
        poll_failed(replica)
        if replica.reports.polls_awaited:
            replica.reports.polls_awaited = (
                0 if problem in WITHOUT_METRICS else replica.reports.polls_awaited - 1
            )
        self._look(replica, now)
        if now - replica.reports.at > self.stale_s:
            self._discard(replica)
        table.hooks.room(replica)

    def _look(self, replica: Replica, now: float) -> None:
        """Measure the speed of the replica's streams since the last poll."""
        learned = replica.learned
        replica.cadence_s = learned.cadence.look(now)
        learned.speeds.look(replica, now)
        self._table.speeds.share(replica)

    def unpolled(self, replica: Replica) -> None:
        """Record that a replica is not polled any more, so its last signals will not be renewed."""
        poll_failed(replica)  # So that the gates read the facts of the replica again.
        replica.reports.polls_awaited = 0
        self._discard(replica)
        self._table.hooks.room(replica)

    def _discard(self, replica: Replica) -> None:
        """Discard the last signals of a replica."""
        if replica.reports.signals is NO_SIGNALS:
            return
        was_asleep = replica.reports.signals.asleep
        replica.reports.signals = NO_SIGNALS
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
