"""Reads the load that an engine reports in a response header (ORCA, Open Request Cost Aggregation).

Pure. Must never: raise, for any value of the header.
"""

from __future__ import annotations

from router.core.numbers import decimal_number
from router.fleet.engines.common.base import Odd, count, decoded, mapping, share
from router.fleet.signals import NO_SIGNALS, Signals


def read_load_header(value: bytes, odd: Odd | None = None) -> Signals:
    """Return the signals of the header `endpoint-load-metrics`, which has the form TEXT or JSON.

    vLLM 0.13 and later sends the number of waiting requests and the KV cache usage. With data
    parallelism, the form TEXT contains these values for every engine, JSON only for the last
    engine.
    """
    doubts: Odd = set() if odd is None else odd
    waiting: list[int | None] = []
    usage: list[float | None] = []

    def take(name: str, figure: object) -> None:
        if name == "num_requests_waiting":
            waiting.append(count(figure, "header:" + name, doubts))
        elif name == "kv_cache_usage_perc":
            usage.append(share(figure, "header:" + name, doubts))

    form, _, rest = value.strip().partition(b" ")
    if form == b"JSON":
        for name, figure in mapping(mapping(decoded(rest)).get("named_metrics")).items():
            take(name, figure)
    elif form == b"TEXT":
        for part in rest.split(b","):
            raw_name, _, figure = part.strip().partition(b"=")
            number = decimal_number(figure)
            take(
                raw_name.decode("latin-1").removeprefix("named_metrics."),
                figure if number is None else number,
            )
    else:
        return NO_SIGNALS
    counts = [number for number in waiting if number is not None]
    shares = [number for number in usage if number is not None]
    return Signals(
        waiting=sum(counts) if counts and len(counts) == len(waiting) else None,
        kv_usage=max(shares) if shares and len(shares) == len(usage) else None,
    )
