"""Temporary."""

from __future__ import annotations


class HedgeCounts:
    pass
