"""Reads the KV event publishers of a replica from the configuration. The functions are pure."""

from __future__ import annotations

from router.config.model import KvEvents
from router.fleet.engines.common.publishers import Source, connectable


def configured(settings: KvEvents, host: str) -> list[Source]:
    """Return the configured sources of KV events, which override the replica's answers.

    `host`: the replica's host.
    """
    endpoint = connectable(settings.endpoint, host, 0)
    if endpoint is None:
        return []
    replay = settings.replay and connectable(settings.replay, host, 0)
    return [Source(endpoint, replay or None, settings.topic)]
