"""Decides when DNS records are looked up again. Pure."""

from __future__ import annotations

from random import Random

from router.config.model import Discovery

_DOUBLINGS_MAX = 30  # More would exceed any configured maximum, and in the end overflow.
_JITTER = 0.2  # So that routers that failed together do not ask again together.


def lifetime_s(ttl_s: float, rules: Discovery) -> float:
    """Return the seconds for which records with this TTL are used."""
    return min(max(ttl_s, rules.ttl_min_s), rules.ttl_max_s)


def retry_after_s(failures: int, rules: Discovery, rng: Random) -> float:
    """Return the seconds until a lookup that failed is repeated.

    `failures`: how often it has failed in a row, at least 1. The time doubles with each failure.
    """
    pause = rules.ttl_min_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(pause, rules.retry_max_s) * rng.uniform(1.0 - _JITTER, 1.0 + _JITTER)
