"""Makes one answer of the admin port from the answers of all workers.

Numbers of requests and the like are added, those that each worker sees for itself are not: a worker
that answers shows its own state of a replica, and the largest value of what is told or measured.

Must never: change the answers, of which the first is the own one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

Answers = Sequence[Mapping[str, Any]]

# Gauges whose values are of one worker only, and are added. Of other gauges the largest is shown.
SUMMED: Final = frozenset(
    {
        "hedgerow_client_connections",
        "hedgerow_hedge_budget_tokens",
        "hedgerow_held_body_bytes",
        "hedgerow_model_queue_depth",
        "hedgerow_queue_depth",
        "hedgerow_replica_connections",
        "hedgerow_requests_under_way",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
    }
)
# Gauges that are 1 if all is well: one worker that is not ready makes the router not ready.
LEAST: Final = frozenset(
    {"hedgerow_ready", "hedgerow_config_reload_success", "hedgerow_share_connected"}
)

_OF_A_REPLICA: Final = ("inflight", "served", "failed", "failures", "ejections", "connections")
_OF_A_POOL: Final = ("waiting", "body_bytes", "skipped")
_OLDEST: Final = "eldest_s"
_MOST_TENANTS: Final = 100


def replicas(answers: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """GET /replicas, from that of each worker."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for answer in answers:
        for entry in answer:
            found.setdefault(entry["id"], []).append(entry)
    return [replica(entries) for entries in found.values()]


def replica(entries: Answers) -> dict[str, Any]:
    """GET /replicas/ID."""
    return {**entries[0], **{name: total([e[name] for e in entries]) for name in _OF_A_REPLICA}}


def queue(answers: Answers) -> dict[str, Any]:
    """GET /queue."""
    own = answers[0]
    if not own.get("enabled"):
        return dict(own)
    pools = []
    for pool in own["pools"]:
        same = [p for a in answers for p in a["pools"] if p["replicas"] == pool["replicas"]]
        classes = {
            name: {
                **total([p["classes"][name] for p in same]),
                _OLDEST: max(p["classes"][name][_OLDEST] for p in same),
            }
            for name in pool["classes"]
        }
        headroom = max(p["headroom"] for p in same)
        sums = {name: total([p[name] for p in same]) for name in _OF_A_POOL}
        pools.append({**pool, **sums, "headroom": headroom, "classes": classes})
    waiting: dict[tuple[str, str], int] = {}
    for entry in (entry for answer in answers for entry in answer["tenants"]):
        flow = entry["key"], entry["user"]
        waiting[flow] = waiting.get(flow, 0) + entry["waiting"]
    first = sorted(waiting.items(), key=lambda item: -item[1])[:_MOST_TENANTS]
    return {
        **own,
        "waiting": total([answer["waiting"] for answer in answers]),
        "pools": pools,
        "tenants": [{"key": key, "user": user, "waiting": n} for (key, user), n in first],
        "tenants_unnamed": total([answer["tenants_unnamed"] for answer in answers])
        + len(waiting)
        - len(first),
    }


def hedging(answers: Answers) -> dict[str, Any]:
    """GET /hedging."""
    names = ("counts", "budget_tokens")
    return {**answers[0], **{name: total([a[name] for a in answers]) for name in names}}


def usage(answers: Answers) -> dict[str, Any]:
    """GET /usage. A usage file has the amounts of all workers already."""
    own = answers[0]
    if own["stored"]:
        return dict(own)
    tenants: dict[str, list[Mapping[str, Any]]] = {}
    for entry in (entry for answer in answers for entry in answer["tenants"]):
        tenants.setdefault(entry["tenant"], []).append(entry)
    return {
        **own,
        "total": total([answer["total"] for answer in answers]),
        "tenants": [{**same[0], **total([_counted(e) for e in same])} for same in tenants.values()],
    }


_COUNTED: Final = (
    *("requests", "prompt_tokens", "cached_tokens", "output_tokens", "estimated", "cost"),
    *("unpriced_tokens", "classes"),
)


def _counted(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in _COUNTED}


def usage_csv(answers: Sequence[bytes]) -> bytes:
    """GET /usage?format=csv, where no file has the amounts. The first three columns are names."""
    rows: dict[tuple[str, ...], list[float | None]] = {}
    head: list[str] = []
    for answer in answers:
        head, *lines = csv.reader(io.StringIO(answer.decode()))
        for line in lines:
            values = [float(text) if text else None for text in line[3:]]
            key = tuple(line[:3])
            rows[key] = total([rows[key], values]) if key in rows else values
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    for key, values in sorted(rows.items()):
        shown = ["" if v is None else int(v) if v.is_integer() else v for v in values]
        writer.writerow([*key, *shown])
    return text.getvalue().encode()


def total(values: Sequence[Any]) -> Any:
    """Add numbers, and the numbers in mappings and lists of the same form.

    Of anything else the first value is returned; None counts as no value.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    first = known[0]
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for value in known for name in value)
        return {name: total([value.get(name) for value in known]) for name in names}
    if isinstance(first, list):
        return [total(row) for row in zip(*known, strict=True)]
    if isinstance(first, int | float) and not isinstance(first, bool):
        return sum(known)
    return first


# -- metrics ----------------------------------------------------------------------------------

# name, type, help, unit, and of each sample its name, its labels and its value
Told = tuple[str, str, str, str, list[tuple[str, dict[str, str], float]]]


def told(families: Iterable[Metric]) -> list[Told]:
    """Return metric families as plain values."""
    return [
        (f.name, f.type, f.documentation, f.unit, [(s.name, s.labels, s.value) for s in f.samples])
        for f in families
    ]


def metrics(own: Iterable[Metric], others: Sequence[Sequence[Told]]) -> Iterable[Metric]:
    """Yield the own families with the samples of the others, then those that only others have."""
    beside: dict[str, list[Told]] = {}
    for answer in others:
        for family in answer:
            beside.setdefault(family[0], []).append(family)
    for metric in own:
        yield _joined(metric, beside.pop(metric.name, []))
    for families in beside.values():
        name, kind, text, unit, _ = families[0]
        metric = Metric(name, text, kind, unit if name.endswith(f"_{unit}") else "")
        yield _joined(metric, families)


def _joined(metric: Metric, families: Sequence[Told]) -> Metric:
    values: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[dict[str, str], float]] = {}
    samples = [(s.name, s.labels, s.value) for s in metric.samples]
    for name, labels, value in (*samples, *(s for f in families for s in f[4])):
        key = name, tuple(labels.items())
        before = values.get(key)
        values[key] = labels, value if before is None else _both(metric, before[1], value)
    metric.samples = [Sample(key[0], *found) for key, found in values.items()]
    return metric


def _both(metric: Metric, one: float, other: float) -> float:
    if metric.type in ("counter", "histogram") or metric.name in SUMMED:
        return one + other
    return min(one, other) if metric.name in LEAST else max(one, other)
