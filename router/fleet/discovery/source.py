"""The interface between the watcher and a source of replicas, and when a source looks again."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from router.config.model import Discovery
from router.fleet.discovery.roster import Found

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


_NAMED_MAX: Final = 3  # Maximum number of problems in one text.


class Look(NamedTuple):
    """The result of one look at a source."""

    wait_s: float  # Seconds until the next look.
    # The replicas that the source names now, which may be none; `None`: nothing has changed, or
    # nothing is known.
    found: Sequence[Found] | None = None
    # False: a part of the source has never answered. Then no replica is removed.
    is_complete: bool = True
    problem: str = ""  # What failed; "": nothing. A part of a source may fail.


class Source:
    """A source of replicas. Only one task uses a source."""

    def __init__(self, name: str) -> None:
        self.name = name  # The name in logs and metrics, such as `dns:vllm.svc:8000`.

    async def look(self) -> Look:
        """Ask the source. Must not block the event loop, and must end within a bounded time."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release what the source holds. Called once, after the last look."""


def summary(problems: Sequence[str]) -> str:
    """Return one text with the first problems; "" if there are none."""
    more = len(problems) - _NAMED_MAX
    return "; ".join([*problems[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])
