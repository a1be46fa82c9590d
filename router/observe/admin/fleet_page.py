"""The page GET /fleet: the replicas and the queue, as text for people. Pure.

The numbers are those of GET /replicas and GET /queue, which programs should read.

Must never: name a tenant, because the page needs no token, or print a control character of a name
that an engine has reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.core.text.printable import printable
from router.core.text.table import Column, build, plain

_NAME_CHARS: Final = 40  # maximum characters of a name
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


def fleet_page(replicas: Sequence[Replica], queue: Mapping[str, Any]) -> str:
    """Return the page. `replicas`, `queue`: the data of GET /replicas and of GET /queue."""
    ready = sum(r["state"] in _READY for r in replicas)
    running = sum(r["inflight"] for r in replicas)
    waits = f"{queue['waiting']:,} waiting in the queue" if queue["enabled"] else "no queue"
    head = f"{ready} of {len(replicas)} replicas ready; {running:,} requests in flight; {waits}\n"
    has_regions = any(r["region"] for r in replicas)
    columns = [column for column in _REPLICA if has_regions or column.key != "region"]
    pages = [head, plain(build(replicas, columns))]
    if queue["enabled"]:
        pages.append(plain(build(_classes(queue["pools"]), _CLASS)))
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
    """Return why the replica gets no requests, or only some."""
    notes = []
    if replica["reclaimed_in_s"] is not None:
        notes.append(f"reclaimed in {replica['reclaimed_in_s']:.0f} s")
    if replica["busy_s"]:
        notes.append(f"avoided for {replica['busy_s']:.1f} s after 429 or 503")
    closed: dict[str, list[str]] = {}
    for name, why in replica["closed_to"].items():
        closed.setdefault(why, []).append(name)
    notes += [f"closed to {', '.join(names)}: {why}" for why, names in closed.items()]
    return "; ".join(notes)


def _name(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _NAME_CHARS else shown[: _NAME_CHARS - 1] + "…"


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
