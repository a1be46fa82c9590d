"""Tells the other routers of a fleet about this one, through a server of Redis or Valkey.

What is told, and what it changes, is in `router/share`; `store` carries the messages.
"""

from __future__ import annotations

from router.addons.share.store import StoreAddon
from router.config.model import Config
from router.dispatch.addon import Host


def make(host: Host, config: Config) -> StoreAddon:
    return StoreAddon(host, config.share)
