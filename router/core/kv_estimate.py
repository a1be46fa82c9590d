"""Estimates the share of a replica's KV cache that is in use now, from the engine's last report.

A report is up to a poll interval old, and the gauges of vLLM 0.32 lag by up to another second. So
the estimate compares two counts: the requests that held the cache according to the report, and the
requests at the replica now (`load`).

1. Fewer requests now: the requests that ended freed their share. The estimate is the reported usage
   times `load / counted`. A waiting request counts like a running one, because it takes the next
   free place.
2. More requests now: each additional request adds its uncached prompt tokens to the usage. This
   covers requests sent after the report, sent before it but not yet in the gauges, and waiting at
   the engine. The estimate is the usage once their prefill is done. The number of additional
   requests is a net count, so the sum is reduced in proportion when other requests have ended.
3. If the engine reports no number of running requests, rule 1 does not apply, and rule 2 counts
   from the load at the time of the report.
4. If the KV cache size (`kv_tokens`) is unknown, rule 2 adds nothing. The mean share of the running
   requests would be a poor substitute: contexts differ by orders of magnitude.
5. If the usage is unknown or too old, the estimate is unknown.

Generated tokens since the report are not counted: a stream adds about 50 tokens in a second.

The result is stored in `kv_usage`, where gates, routing policies and the hedger read it. It is
updated when a report arrives and when `load` changes, so reading it costs one attribute access.

Must never: do I/O, or look at a clock.
"""

from __future__ import annotations

from router.core.replica_load import ReplicaLoad


def kv_estimate(place: ReplicaLoad, more: int = 0, tokens: int = 0) -> float:
    """Return the estimated share of the KV cache in use, 0 to 1; -1: unknown.

    `more`: requests that are granted but hold no lease yet; `tokens`: their uncached prompt tokens.
    """
    usage = place.kv_reported
    if usage < 0.0:
        return -1.0
    beyond = place.load + more - place.kv_counted
    if beyond <= 0:
        if beyond < 0 and place.kv_scales:
            counted = float(place.kv_counted)
            usage *= (counted + float(beyond)) / counted
        return usage
    sent = place.kv_sent + more
    capacity = place.kv_tokens
    if sent <= 0 or capacity is None or capacity <= 0:
        return usage
    added = float(place.kv_sent_tokens + tokens) / float(capacity)
    if beyond < sent:
        added *= float(beyond) / float(sent)
    usage += added
    return min(1.0, usage)


def renew_kv(place: ReplicaLoad) -> None:
    """Update `kv_usage` after `load` has changed."""
    usage = kv_estimate(place)
    place.kv_usage = None if usage < 0.0 else usage


def report_kv(place: ReplicaLoad, usage: float | None, running: int | None) -> None:
    """Take an engine's report of its KV cache usage and of its running requests.

    `usage`: `None` if it is unknown or too old. `running`: `None` if the engine did not report it.
    Call this after `load` and `kv_tokens` were updated from the same report.
    """
    if usage is None:
        place.kv_reported = -1.0
        place.kv_usage = None
        return
    load = place.load
    counted = load if running is None else running
    place.kv_reported = usage
    place.kv_counted = counted
    place.kv_scales = running is not None
    # Requests that the reported usage does not include. Each is assumed to have the mean number of
    # tokens of the requests that were sent since the report.
    sent = place.kv_sent
    missing = min(max(0, load - counted), sent)
    place.kv_sent_tokens = place.kv_sent_tokens * missing // sent if sent else 0
    place.kv_sent = missing
    renew_kv(place)
