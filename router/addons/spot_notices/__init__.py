"""Notices that spot machines are reclaimed, from a file and from clouds' metadata services.

`formats` reads the notices of each cloud, and is pure. `watcher` queries the sources. What a notice
means for a replica is decided in `app/reclaims.py`, which the admin API uses as well.
"""

from __future__ import annotations

import logging

from router.addons.spot_notices.watcher import SpotWatcher
from router.config.model import Config
from router.dispatch.addon import Host
from router.observe.events import log_event


def make(host: Host, config: Config) -> SpotWatcher:
    return SpotWatcher(config.spot, host.reclaims.noticed, host.reclaims.withdrawn, _problem)


def _problem(source: str, why: str) -> None:
    log_event(
        logging.WARNING, "no answer about spot machines", key=source, source=source, error=why
    )
