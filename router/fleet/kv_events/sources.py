"""Where a replica publishes its KV events: what its HTTP endpoints and the configuration say.

Pure. Endpoints with a wildcard host are the publisher's own point of view, and become the
replica's host. One whose publisher connects instead of binding (see the package) is no source.
"""

from __future__ import annotations

from typing import Any

import msgspec

from router.config.address import join_host_port, split_host_port
from router.config.model import KvEvents

_WILDCARDS = ("*", "0.0.0.0", "::", "[::]", "[*]")
_MOST_RANKS = 256  # publishers of one replica; more is nonsense


class Source(msgspec.Struct, frozen=True):
    """One publisher."""

    endpoint: str  # tcp://host:port or ipc://path to connect to
    replay: str | None = None
    topic: str = ""
    rank: int = 0  # data-parallel rank


def configured(settings: KvEvents, host: str) -> list[Source]:
    """What the configuration says; it overrules what the replica says. `host`: the replica's."""
    endpoint = connectable(settings.endpoint, host, 0)
    if endpoint is None:
        return []
    replay = settings.replay and connectable(settings.replay, host, 0)
    return [Source(endpoint, replay or None, settings.topic)]


def from_vllm(raw: bytes, host: str) -> list[Source]:
    """The answer of `GET /kv_event_sources` (vLLM 0.30+): publishers by data-parallel rank."""
    answer = _decoded(raw)
    entries: dict[int, dict[str, Any]] = {}
    for name, value in answer.items():
        if isinstance(value, dict) and name.isascii() and name.isdecimal() and len(name) < 6:
            entries[int(name)] = value
    found = []
    # Rank r publishes on port + r. Entries that all name the same port leave that to the reader.
    shared = len({str(entry.get("endpoint")) for entry in entries.values()}) == 1
    for rank, entry in sorted(entries.items())[:_MOST_RANKS]:
        if entry.get("enable_kv_cache_events") is False or entry.get("publisher") != "zmq":
            continue
        shift = rank if shared else 0
        endpoint = _publishers(entry.get("endpoint"), host, shift)
        if endpoint is not None:
            replay = _publishers(entry.get("replay_endpoint"), host, shift)
            found.append(Source(endpoint, replay, _topic(entry), rank))
    return found


def from_sglang(raw: bytes, host: str) -> list[Source]:
    """The answer of `GET /server_info` (SGLang): its `kv_events`, one port for each rank."""
    entry = _decoded(raw).get("kv_events")
    if not isinstance(entry, dict) or entry.get("publisher") != "zmq":
        return []
    named, ranks = entry.get("endpoint_host"), entry.get("dp_size")
    if named is not None and not isinstance(named, str):
        return []
    if not named or named in _WILDCARDS:
        named = host
    found = []
    for rank in range(min(ranks, _MOST_RANKS) if type(ranks) is int and ranks > 0 else 1):
        endpoint = _of_rank(named, entry.get("endpoint_port_base"), rank)
        if endpoint is not None:
            replay = _of_rank(named, entry.get("replay_endpoint_port_base"), rank)
            found.append(Source(endpoint, replay, _topic(entry), rank))
    return found


def _of_rank(host: str, base: Any, rank: int) -> str | None:
    return connectable(f"tcp://{_bracketed(host)}:{base}", host, rank)


def connectable(endpoint: str, host: str, shift: int) -> str | None:
    """An endpoint to connect to: wildcards replaced, the port raised by `shift`; None: unusable."""
    scheme, separator, address = endpoint.partition("://")
    if not separator or not address:
        return None
    if scheme == "ipc":
        return endpoint if not shift else f"{endpoint}_dp{shift}"
    if scheme != "tcp":
        return None
    named, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not _is_port(int(port) + shift):
        return None
    if named in _WILDCARDS:
        named = host
    try:
        named, number = split_host_port(f"{_bracketed(named)}:{int(port) + shift}")
    except ValueError:
        return None
    return f"tcp://{join_host_port(named, number)}"


def _publishers(endpoint: Any, host: str, shift: int) -> str | None:
    """`connectable`, for the publisher's own setting: only what it binds."""
    if not isinstance(endpoint, str):
        return None
    if not any(mark in endpoint for mark in ("*", "::", "ipc://")):
        return None  # it connects somewhere itself (vllm/distributed/kv_events.py)
    return connectable(endpoint, host, shift)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _topic(entry: dict[str, Any]) -> str:
    topic = entry.get("topic")
    return topic if isinstance(topic, str) else ""


def _is_port(number: Any) -> bool:
    return type(number) is int and 0 < number < 65536


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
