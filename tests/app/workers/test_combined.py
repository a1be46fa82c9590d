"""One answer of the admin port from those of several workers."""

from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from router.app.workers import combined


def test_numbers_are_added_and_the_rest_is_the_own() -> None:
    own = {"a": 1, "b": {"x": 2}, "c": "own", "d": None, "e": True, "f": [1, 2]}
    other = {"a": 3, "b": {"x": 1, "y": 5}, "c": "other", "d": 4, "e": False, "f": [10, 20]}
    assert combined.total([own, other]) == {
        "a": 4,
        "b": {"x": 3, "y": 5},
        "c": "own",
        "d": 4,
        "e": True,
        "f": [11, 22],
    }
    assert combined.total([None, None]) is None


def entry(name: str, **more: Any) -> dict[str, Any]:
    counts = {"inflight": 0, "served": 0, "failed": 0, "failures": {}, "ejections": 0}
    return {"id": name, "state": "ready", **counts, "connections": {"open": 1, "idle": 1}, **more}


def test_replicas_are_matched_by_id() -> None:
    own = [entry("a", inflight=1, load=7), entry("b")]
    other = [entry("b", served=2, state="down"), entry("a", inflight=2, load=8), entry("c")]
    a, b, c = combined.replicas([own, other])
    assert (a["id"], a["inflight"], a["load"], a["connections"]["open"]) == ("a", 3, 7, 2)
    assert (b["served"], b["state"]) == (2, "ready")
    assert c["id"] == "c"


def pool(waiting: int, eldest_s: float) -> dict[str, Any]:
    classes = {"high": {"waiting": waiting, "eldest_s": eldest_s, "dropped": {"late": waiting}}}
    sums = {"waiting": waiting, "body_bytes": 10, "skipped": 0}
    return {
        "policy": "fair",
        "replicas": ["a"],
        "headroom": eldest_s / 10,
        **sums,
        "classes": classes,
    }


def queue(waiting: int, eldest_s: float, *tenants: tuple[str, int]) -> dict[str, Any]:
    rows = [{"key": key, "user": "", "waiting": n} for key, n in tenants]
    return {
        "enabled": True,
        "waiting": waiting,
        "pools": [pool(waiting, eldest_s)],
        "tenants": rows,
        "tenants_unnamed": 0,
    }


def test_the_queue_has_the_sums_and_the_oldest_request() -> None:
    found = combined.queue([queue(2, 1.0, ("x", 2)), queue(5, 3.0, ("y", 4), ("x", 1))])
    (one,) = found["pools"]
    assert (found["waiting"], one["waiting"], one["headroom"]) == (7, 7, 0.3)
    assert one["classes"]["high"] == {"waiting": 7, "eldest_s": 3.0, "dropped": {"late": 7}}
    assert [(t["key"], t["waiting"]) for t in found["tenants"]] == [("y", 4), ("x", 3)]
    off = {"enabled": False}
    assert combined.queue([off, off]) == off


def test_usage_is_added_unless_a_file_has_it() -> None:
    used = dict.fromkeys(combined._COUNTED, 1) | {"classes": {"high": {"requests": 1}}}
    page = {"stored": False, "total": {"requests": 1}, "tenants": [{"tenant": "a", **used}]}
    found = combined.usage([page, page])
    assert (found["total"]["requests"], found["tenants"][0]["requests"]) == (2, 2)
    assert found["tenants"][0]["classes"] == {"high": {"requests": 2}}
    stored = {**page, "stored": True}
    assert combined.usage([stored, stored]) == stored


def test_rows_of_csv_are_added() -> None:
    own = b"day,tenant,class,requests,cost\r\n,a,high,1,0.5\r\n,b,low,2,\r\n"
    other = b"day,tenant,class,requests,cost\r\n,a,high,3,0.25\r\n"
    rows = combined.usage_csv([own, other]).split(b"\r\n")
    assert rows == [b"day,tenant,class,requests,cost", b",a,high,4,0.75", b",b,low,2,", b""]


def families(count: float, name: str = "x") -> list[Metric]:
    counter = CounterMetricFamily("hedgerow_requests", "Text.", labels=["kind"])
    counter.add_metric(["chat"], count)
    counter.add_metric([name], 1.0)
    histogram = HistogramMetricFamily("hedgerow_ttft_seconds", "Text.", labels=["class"])
    histogram.add_metric(["high"], [("1.0", count), ("+Inf", count + 1)], count)
    gauges = [
        GaugeMetricFamily(name, "Text.", value=count)
        for name in ("hedgerow_queue_depth", "hedgerow_ready", "hedgerow_loop_lag_seconds")
    ]
    return [counter, histogram, *gauges]


def test_counters_are_added_and_gauges_as_their_meaning_is() -> None:
    only = GaugeMetricFamily("hedgerow_only", "Text.", value=3.0)
    others = [combined.told([*families(2.0, "y"), only])]
    found = {
        (s.name, *s.labels.values()): s.value
        for metric in combined.metrics(families(5.0), others)
        for s in metric.samples
    }
    assert found["hedgerow_requests_total", "chat"] == 7.0
    assert found["hedgerow_requests_total", "x"] == found["hedgerow_requests_total", "y"] == 1.0
    assert found["hedgerow_ttft_seconds_bucket", "high", "1.0"] == 7.0
    assert found["hedgerow_ttft_seconds_sum", "high"] == 7.0
    assert found["hedgerow_queue_depth",] == 7.0
    assert found["hedgerow_ready",] == 2.0
    assert found["hedgerow_loop_lag_seconds",] == 5.0
    assert found["hedgerow_only",] == 3.0
