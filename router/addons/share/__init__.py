"""Tells the other routers of a fleet about this one.

What is told, and what it changes, is in `router/share`. `store` carries the messages through a
server of Redis or Valkey, and `workers` between the workers of one machine.
"""

from __future__ import annotations

from router.config.model import Config
from router.dispatch.addon import Addon, Host


def make(host: Host, config: Config) -> Addon:
    if config.share.url:
        from router.addons.share.store import StoreAddon

        return StoreAddon(host, config.share)
    if host.siblings is None:  # A worker without others, in a test.
        return Addon()
    from router.addons.share.workers import WorkersAddon

    return WorkersAddon(host, config.share, host.siblings)
