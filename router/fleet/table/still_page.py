"""Detects a page of metrics that stands still, so that outdated gauges keep no engine idle.

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

Must never: read a clock, or change the reported totals.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.fleet.replica import Replica
from router.fleet.signals import Signals

# Factor on the time for an engine whose totals grow only when a request ends.
_SLOWER: Final = 2.0


def credible(replica: Replica, last: Signals, signals: Signals, now: float) -> Signals:
    """Return the signals of a poll, without the load if the page stands still.

    `last`: the signals of the poll before, as they were reported.
    """
    if signals != last:
        replica.page_since = now
        replica.page_is_still = False
    if replica.load > replica.foreign_load:
        replica.idle_since = now
    has_load = bool(signals.running or signals.waiting)
    if not (has_load or signals.kv_usage):
        return signals
    if not replica.page_is_still:
        replica.page_is_still = _stands_still(replica, now)
    if not replica.page_is_still:
        return signals
    if has_load:
        return msgspec.structs.replace(signals, running=None, waiting=None, kv_usage=None)
    return msgspec.structs.replace(signals, kv_usage=None)


def _stands_still(replica: Replica, now: float) -> bool:
    since = replica.page_since
    still_s = replica.health.rules.suspect_min_s
    if replica.descriptor.counts_live and replica.last_signals.generated_tokens is not None:
        if replica.progress.at - since >= still_s:
            return True
    else:
        still_s *= _SLOWER
    return now - max(since, replica.idle_since) >= still_s
