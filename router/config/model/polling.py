"""Declares the section `polling`: reads of the engines' metrics."""

from __future__ import annotations

from router.config.model.setting_types import Bytes, Frozen, MiB, Seconds, SecondsOrOff


class Polling(Frozen, frozen=True):
    """How the metrics of engines are read."""

    # Time between two reads of a replica's metrics, with 20 % jitter. 0: never.
    interval_s: SecondsOrOff = 1.0
    timeout_s: Seconds = 1.0  # Maximum time that one read may take.
    size: Bytes = 4 * MiB  # A response with more bytes of metrics is ignored.
    stale_s: Seconds = 10.0  # Metrics that are older than this count as unknown.
