"""Defines how the router finds out, from an engine's answers, where the engine publishes KV events.

The functions are pure. In an endpoint with a wildcard host, the wildcard is replaced by the
replica's host. A publisher that connects instead of binding a port (see `kv_events`) cannot be
used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from router.config.address import join_host_port, split_host_port
from router.core.numbers import whole_number

WILDCARDS: Final = ("*", "0.0.0.0", "::", "[::]", "[*]")


class Source(msgspec.Struct, frozen=True):
    """One publisher of KV events."""

    endpoint: str  # tcp://host:port or ipc://path, to which the router connects.
    replay: str | None = None
    topic: str = ""
    rank: int = 0  # The data-parallel rank of the publisher.


class Publisher(msgspec.Struct, frozen=True):
    """How an engine reports where it publishes KV events."""

    path: str  # The path that is requested with GET.
    read: Callable[[bytes, str], list[Source]]  # Arguments: the answer, the replica's host.


def connectable(endpoint: str, host: str, shift: int) -> str | None:
    """Return an endpoint to which the router can connect; None: there is no such endpoint.

    A wildcard host is replaced by `host`, and `shift` is added to the port.
    """
    scheme, separator, address = endpoint.partition("://")
    if not separator or not address:
        return None
    if scheme == "ipc":
        return endpoint if not shift else f"{endpoint}_dp{shift}"
    if scheme != "tcp":
        return None
    named, colon, text = address.rpartition(":")
    port = whole_number(text, 5)
    if not colon or port is None or not _is_port(port + shift):
        return None
    if named in WILDCARDS:
        named = host
    try:
        named, number = split_host_port(f"{_bracketed(named)}:{port + shift}")
    except ValueError:
        return None
    return f"tcp://{join_host_port(named, number)}"


def bound(endpoint: Any, host: str, shift: int) -> str | None:
    """Like `connectable`, for the endpoint in a publisher's own settings.

    Returns `None` also if the publisher connects to the endpoint instead of binding it.
    """
    if not isinstance(endpoint, str):
        return None
    if not any(mark in endpoint for mark in ("*", "::", "ipc://")):
        return None  # The publisher connects to this endpoint (vLLM: distributed/kv_events.py).
    return connectable(endpoint, host, shift)


def of_rank(host: str, base: Any, rank: int) -> str | None:
    return connectable(f"tcp://{_bracketed(host)}:{base}", host, rank)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def topic_of(entry: dict[str, Any]) -> str:
    topic = entry.get("topic")
    return topic if isinstance(topic, str) else ""


def _is_port(number: Any) -> bool:
    return type(number) is int and 0 < number < 65536
