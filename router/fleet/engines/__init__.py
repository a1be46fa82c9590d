"""The engines Hedgerow can read: one file each, all of it data and pure functions."""

from __future__ import annotations

from router.fleet.engines.base import Abort, Check, Engine, Facts, Known
from router.fleet.engines.detect import ENGINES, detect

__all__ = ["ENGINES", "Abort", "Check", "Engine", "Facts", "Known", "detect"]
