"""Declares the section `continuation`: streams that another replica continues."""

from __future__ import annotations

from router.config.model.setting_types import Bytes, Count, Frozen, KiB, MiB


class Continuation(Frozen, frozen=True):
    """Continuation: if a replica fails during a stream, another replica generates the rest."""

    enabled: bool = False  # Turn continuation on.
    # Maximum size of one stream's generated text in memory. A longer stream is not continued.
    text: Bytes = 256 * KiB
    text_total: Bytes = 64 * MiB  # Maximum size of the generated text of all streams in memory.
    attempts: Count = 2  # Maximum number of times that one stream is continued.
