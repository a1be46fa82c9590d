"""The pages GET /fleet and GET /queue?format=text: replicas and the queue, for people. Pure.

The numbers and reasons are those of GET /replicas and GET /queue, which programs should read.

Must never: name a tenant on the page GET /fleet, because it needs no token, or print a control
character of a text that an engine or a client has sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.core.text.printable import printable
from router.core.text.table import Column, build, plain

_NAME_CHARS: Final = 40  # maximum characters of a name
_FEW: Final = 8  # maximum number of replicas that are named in one line
_TEXT_CHARS: Final = 200  # maximum characters of a reason
_READY: Final = ("ready", "half_open")
_ADDED: Final = ("waiting", "blocked", "passed", "granted")  # the counts of a class in each pool

Replica = Mapping[str, Any]

_REPLICA: Final[Sequence[Column[Replica]]] = (
    Column("id", "replica", text=lambda r: _name(r["id"])),
    Column("state", "state", text=lambda r: r["state"]),
    Column("engine", "engine", text=lambda r: _name(r["engine"] or "–")),
    Column("models", "models", text=lambda r: _name(", ".join(r["models"] or ["–"]))),
    Column("region", "region", text=lambda r: _name(r["region"] or "–")),
    Column("inflight", "in flight", value=lambda r: r["inflight"]),
    Column("slots", "slots", value=lambda r: _whole(r["slots"])),
    Column("waiting", "waiting", "at engine", value=lambda r: r["waiting"]),
    Column("kv", "KV cache", "%", value=lambda r: _scaled(r["kv_usage_estimate"], 100.0)),
    Column("ttft", "TTFT", "ms", value=lambda r: _scaled(r["ttft_s"], 1000.0)),
    Column("tpot", "TPOT", "ms", value=lambda r: _scaled(r["tpot_s"], 1000.0)),
    Column("served", "served", value=lambda r: r["served"]),
    Column("failed", "failed", value=lambda r: r["failed"]),
    Column("note", "note", text=lambda r: _note(r)),
)
_CLASS: Final[Sequence[Column[Mapping[str, Any]]]] = (
    Column("name", "class", text=lambda c: c["name"]),
    Column("waiting", "waiting", value=lambda c: c["waiting"]),
    Column("blocked", "blocked", "by key", value=lambda c: c["blocked"]),
    Column("eldest", "longest", "s", value=lambda c: c["eldest_s"]),
    Column("passed", "sent at once", value=lambda c: c["passed"]),
    Column("granted", "sent later", value=lambda c: c["granted"]),
    Column("dropped", "not sent", value=lambda c: c["dropped"]),
)
_TENANT: Final[Sequence[Column[Mapping[str, Any]]]] = (
    Column("key", "tenant", text=lambda t: _name(t["key"] or "–")),
    Column("user", "user", text=lambda t: _name(t["user"] or "–")),
    Column("waiting", "waiting", value=lambda t: t["waiting"]),
)


def fleet_page(replicas: Sequence[Replica], queue: Mapping[str, Any], unready: str = "") -> str:
    """Return the page. `replicas`, `queue`: the data of GET /replicas and of GET /queue.

    `unready`: why load balancers should not use the router, such as `draining`; "": they should.
    """
    states = Counter(r["state"] for r in replicas)
    ready = sum(states.pop(state, 0) for state in _READY)
    others = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    running = sum(r["inflight"] for r in replicas)
    waits = f"{queue['waiting']:,} waiting in the queue" if queue["enabled"] else "no queue"
    fit = f"{ready} of {len(replicas)} replicas ready{f' ({others})' if others else ''}"
    head = f"{fit}; {running:,} requests in flight; {waits}\n"
    if unready:
        head += f"this router is not ready: {unready}\n"
    has_regions = any(r["region"] for r in replicas)
    columns = [column for column in _REPLICA if has_regions or column.key != "region"]
    pages = [head, plain(build(replicas, columns))]
    if queue["enabled"]:
        pages.append(plain(build(_classes(queue["pools"]), _CLASS)))
    return "\n".join(pages)


def queue_page(queue: Mapping[str, Any]) -> str:
    """Return the queue as text. `queue`: the data of GET /queue."""
    if not queue["enabled"]:
        return "the queue is off (queue.enabled): each request is sent at once\n"
    pages = [f"{queue['waiting']:,} requests wait in the queue\n"]
    pools = queue["pools"]
    for pool in pools:
        if len(pools) > 1:
            names = [_name(name) for name in pool["replicas"]]
            pages.append(f"{pool['waiting']:,} wait for {_few(names) or 'no replica'}\n")
        pages.append(plain(build(_classes([pool]), _CLASS)))
    if queue["tenants"]:
        pages.append(plain(build(queue["tenants"], _TENANT)))
    if queue["tenants_unnamed"]:
        pages.append(f"and {queue['tenants_unnamed']:,} more tenants\n")
    return "\n".join(pages)


def _classes(pools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add the counts of all pools by class, the most urgent class first."""
    found: dict[str, dict[str, Any]] = {}
    for pool in pools:
        for name, counts in pool["classes"].items():
            total = found.setdefault(
                name,
                {"name": name, "eldest_s": 0.0, "dropped": 0} | dict.fromkeys(_ADDED, 0),
            )
            for what in _ADDED:
                total[what] += counts[what]
            total["eldest_s"] = max(total["eldest_s"], counts["eldest_s"])
            total["dropped"] += sum(counts["dropped"].values())
    return list(found.values())


def _note(replica: Replica) -> str:
    """Return why the replica gets no requests, or only some, or that something is wrong with it."""
    notes = []
    state, why = replica["state"], replica["why"]
    if state != "ready":
        notes.append(f"for {_duration(replica['since_s'])}" + (f": {_text(why)}" if why else ""))
    elif why:
        notes.append(_text(why))
    if replica["ejected_s"]:
        notes.append(f"trial in {_duration(replica['ejected_s'])}")
    if replica["panic"]:
        notes.append("gets requests, because too few replicas of its models are ready")
    if replica["reclaimed_in_s"] is not None:
        notes.append(f"reclaimed in {replica['reclaimed_in_s']:.0f} s")
    if replica["busy_s"]:
        notes.append(f"avoided for {replica['busy_s']:.1f} s after error answers")
    weight, configured = replica["weight"], replica["weight_configured"]
    if weight != configured:
        notes.append(f"weight {weight:.2g} of {configured:g}")
    elif weight != 1.0:
        notes.append(f"weight {weight:g}")
    closed: dict[str, list[str]] = {}
    for name, reason in replica["closed_to"].items():
        closed.setdefault(reason, []).append(name)
    notes += [f"closed to {', '.join(names)}: {reason}" for reason, names in closed.items()]
    return "; ".join(notes)


def _duration(seconds: float) -> str:
    """Return a duration in its largest unit: 59 s, 12 min, 5 h, 3 d."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _few(names: Sequence[str]) -> str:
    left = len(names) - _FEW
    return ", ".join(names[:_FEW]) + (f" and {left} more" if left > 0 else "")


def _text(text: str) -> str:
    return _cut(text, _TEXT_CHARS)


def _cut(text: str, most: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _name(text: str) -> str:
    return _cut(text, _NAME_CHARS)


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
