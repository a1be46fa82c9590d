"""Declares the section `aborts`: calls of the engines' abort endpoints."""

from __future__ import annotations

from router.config.model.setting_types import Frozen, Seconds


class Aborts(Frozen, frozen=True):
    """Calls of the abort endpoint of engines that continue a request after its connection closes
    (SGLang).
    """

    # Add a request ID (`rid`) to the body for engines that have an abort endpoint. When a request
    # is cancelled, call that endpoint.
    enabled: bool = True
    timeout_s: Seconds = 1.0  # Maximum time of a call.
