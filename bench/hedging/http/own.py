"""Reads Hedgerow's counters of hedging from its /metrics."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

WON = "hedges_ended{outcome=won}"


def hedges(admin_port: int) -> dict[str, float]:
    """Return the hedging counters that are not 0. A key is the name without `hedgerow_`, with
    labels.
    """
    link = http.client.HTTPConnection("127.0.0.1", admin_port, timeout=5)
    try:
        link.request("GET", "/metrics")
        return dict(read(link.getresponse().read().decode()))
    finally:
        link.close()


def read(exposition: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if "hedge" not in sample.name.removeprefix("hedgerow_") or not sample.value:
                continue
            if sample.name.endswith(("_bucket", "_created")):
                continue
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            name = sample.name.removeprefix("hedgerow_").removesuffix("_total")
            yield (f"{name}{{{labels}}}" if labels else name), sample.value
