"""Where a replica publishes its KV events by the configuration. Pure."""

from __future__ import annotations

from router.config.model import KvEvents
from router.fleet.engines.common.publishers import Source, connectable


def configured(settings: KvEvents, host: str) -> list[Source]:
    """What the configuration says; it overrules what the replica says. `host`: the replica's."""
    endpoint = connectable(settings.endpoint, host, 0)
    if endpoint is None:
        return []
    replay = settings.replay and connectable(settings.replay, host, 0)
    return [Source(endpoint, replay or None, settings.topic)]
