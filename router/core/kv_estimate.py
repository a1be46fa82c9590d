"""Estimates the fraction of a replica's KV cache that is in use, from the engine's last report.

A report is up to a poll interval old, and the gauges of vLLM 0.32 are up to one second older. So
the estimate compares two counts: the requests that held the cache according to the report
(`counted`), and the requests at the replica now (`load`).

1. If `load` is lower, the requests that ended freed their part of the cache. The estimate is the
   reported usage times `load / counted`. A waiting request counts like a running one, because it
   takes the next free slot.
2. If `load` is higher, each additional request adds its uncached prompt tokens to the usage.
   Additional requests were sent after the report, or are not in the gauges yet, or wait at the
   engine. The estimate is the usage after their prefill. If other requests have ended meanwhile,
   fewer requests are additional than were sent, and the added tokens are reduced in proportion.
3. If the engine does not report the number of running requests, rule 1 does not apply. Rule 2 then
   compares with `load` at the time of the report.
4. If the size of the KV cache (`kv_tokens`) is unknown, rule 2 adds nothing. The mean usage of the
   running requests would be a poor substitute, because contexts differ by orders of magnitude.
5. If the usage is unknown or too old, the estimate is unknown.

Tokens that were generated since the report are not counted. A stream generates about 50 tokens per
second.

The result is stored in `kv_usage` of the replica, which the queue, routing policies and the hedger
read. The result is updated when a report arrives and when `load` changes, so that reading it costs
only one attribute access.

Must never: do I/O, or look at a clock.
"""

from __future__ import annotations

from router.core.replica_load import ReplicaLoad


def kv_estimate(place: ReplicaLoad, more: int = 0, tokens: int = 0) -> float:
    """Return the estimated fraction of the KV cache in use, 0 to 1; -1: unknown.

    `more` is the number of requests that were assigned to the replica but have no lease yet.
    `tokens` is the number of uncached prompt tokens of these requests.
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
    """Store an engine's report of its KV cache usage and of its running requests.

    `usage` is `None` if it is unknown or too old. `running` is `None` if the engine did not report
    it. Call this function after `load` and `kv_tokens` were updated from the same report.
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
