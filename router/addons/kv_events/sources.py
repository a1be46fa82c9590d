"""Reads the KV event publishers of a replica from the configuration. The functions are pure."""

from __future__ import annotations

from router.config.model import KvEvents
from router.fleet.engines.common.publishers import Source, connectable


def configured(settings: KvEvents, host: str, ranks: range = range(1)) -> list[Source]:
    """Return the configured sources of KV events, which override the replica's answers.

    `host`: the replica's host. `ranks`: the numbers of its data-parallel ranks. The settings are
    those of rank 0; rank r publishes on port + r, as in vLLM and SGLang.
    """
    found: list[Source] = []
    for rank in ranks:
        endpoint = connectable(settings.endpoint, host, rank)
        if endpoint is not None:
            replay = settings.replay and connectable(settings.replay, host, rank)
            found.append(Source(endpoint, replay or None, settings.topic, rank))
    return found
