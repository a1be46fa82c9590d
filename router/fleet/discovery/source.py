"""The interface between the watcher and a source of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from router.fleet.discovery.roster import Found


class Look(NamedTuple):
    """The result of one look at a source."""

    wait_s: float  # Seconds until the next look.
    # The replicas that the source names now; `None`: nothing has changed, or nothing is known.
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
